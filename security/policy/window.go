package policy

import (
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// Window is a part of the week. The zero Window is always.
type Window struct {
	From, To time.Duration // time of day; equal: the whole day. From after To: over midnight
	Days     [7]bool       // by time.Weekday; none: every day. After midnight, the day on which the window began counts
	Zone     *time.Location
}

// contains says whether a time is in the window.
func (w Window) contains(t time.Time) bool {
	if w.Zone == nil {
		w.Zone = time.Local
	}
	t = t.In(w.Zone)
	if w.From != w.To && !(approval.QuietHours{From: w.From, To: w.To}).Covers(t) {
		return false
	}
	day := t.Weekday()
	if w.From > w.To && approval.TimeOfDay(t) < w.To {
		day = (day + 6) % 7
	}
	return w.Days == [7]bool{} || w.Days[day]
}
