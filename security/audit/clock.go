package audit

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval/event"
)

var errStop = errors.New("enough")

// Limits of CheckClock.
const (
	maxPause    = 7 * 24 * time.Hour // longest pause between two entries without suspicion
	trustPeriod = 24 * time.Hour     // period of logging that ends the suspicion
)

// ClockJump is a pause in the log so long that the clock may be wrong.
type ClockJump struct {
	From time.Time // the entry before; zero: there is none
	To   time.Time // the entry after, or now
}

func (l *ClockJump) Error() string {
	if l.From.IsZero() {
		return "the audit log has no entry to compare the clock with"
	}
	return fmt.Sprintf("the clock jumped from %s to %s between two entries of the audit log",
		l.From.UTC().Format(time.RFC3339), l.To.UTC().Format(time.RFC3339))
}

// CheckClock compares a clock with the log. A clock that was set forward looks the same
// as a daemon that was off for long. So after a pause of more than a week the clock
// is trusted only when the log has continued for a day, in which the operator can
// notice the error. The error is a *ClockJump, or of reading.
func CheckClock(fsys afero.Fs, dir string, now time.Time) error {
	after, leap := now, &ClockJump{To: now}
	err := Backwards(fsys, dir, nil, func(e event.Entry) error {
		if after.Sub(e.Time) > maxPause {
			leap = &ClockJump{From: e.Time, To: after}
			return errStop
		}
		leap = nil
		after = e.Time
		if now.Sub(e.Time) > trustPeriod {
			return errStop
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, errStop):
		return err
	case leap != nil:
		return leap
	}
	return nil
}
