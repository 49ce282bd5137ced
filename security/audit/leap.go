package audit

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
)

// What Steady goes by.
const (
	longest = 7 * 24 * time.Hour // between two entries, for a clock to be believed at once
	trial   = 24 * time.Hour     // for which the log must go on after a longer pause
)

// Leap is a pause in the log that is so long that the clock may be wrong.
type Leap struct {
	From time.Time // the entry before; zero: there is none
	To   time.Time // the entry after, or now
}

func (l *Leap) Error() string {
	if l.From.IsZero() {
		return "the audit log has no entry that the clock could be compared with"
	}
	return fmt.Sprintf("the clock leapt from %s to %s between two entries of the audit log",
		l.From.UTC().Format(time.RFC3339), l.To.UTC().Format(time.RFC3339))
}

// Steady compares a clock with the log. Nobody can tell a clock that was set
// forward from a gate that was switched off for long, so after a pause of more
// than a week the clock is believed only once the log has gone on for a day: in
// that time somebody can see that something is wrong. The error is a *Leap, or
// of reading.
func Steady(fsys afero.Fs, dir string, now time.Time) error {
	after, leap := now, &Leap{To: now}
	err := Backwards(fsys, dir, nil, func(e approval.Entry) error {
		if after.Sub(e.Time) > longest {
			leap = &Leap{From: e.Time, To: after}
			return errEnough
		}
		leap = nil
		after = e.Time
		if now.Sub(e.Time) > trial {
			return errEnough
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, errEnough):
		return err
	case leap != nil:
		return leap
	}
	return nil
}
