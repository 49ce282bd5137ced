package read

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
)

// Log calls each for the entries of the audit log, newest first, until it returns an
// error, which Log returns. If keep is not nil, only the raw lines for which it returns
// true are decoded; several goroutines call keep at once.
type Log func(keep func(line []byte) bool, each func(event.Entry) error) error

// Timeline returns the audit entries of a request that was made at the time asked
// (zero: any time), oldest first.
func Timeline(log Log, k approval.Key, asked time.Time) (found []event.Entry, err error) {
	mark := fmt.Appendf(nil, `"request_id":%q`, k.ID)
	var from, stop time.Time
	if !asked.IsZero() {
		from = asked.Add(-time.Minute) // the log's time may differ slightly
		stop = from.Add(-24 * time.Hour)
	}
	old := errors.New("older")
	about := func(line []byte) bool { return bytes.Contains(line, mark) || writtenBefore(line, stop) }
	err = log(about, func(e event.Entry) error {
		switch {
		case e.Time.Before(stop):
			return old
		case e.RequestID == k.ID && e.Workspace == k.Workspace && !e.Time.Before(from):
			found = append(found, e)
		}
		return nil
	})
	if errors.Is(err, old) {
		err = nil
	}
	slices.Reverse(found)
	return found, err
}

// writtenBefore compares the undecoded time of a line.
func writtenBefore(line []byte, t time.Time) bool {
	_, rest, ok := bytes.Cut(line[:min(len(line), 80)], []byte(`"time":"`))
	day := t.UTC().Format(time.DateOnly)
	return ok && len(rest) >= len(day) && string(rest[:len(day)]) < day
}
