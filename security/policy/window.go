package policy

import "time"

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
	at := time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute +
		time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
	day := int(t.Weekday())
	switch {
	case w.From == w.To:
	case w.From < w.To && (at < w.From || at >= w.To):
		return false
	case w.From > w.To && at < w.To:
		day = (day + 6) % 7
	case w.From > w.To && at < w.From:
		return false
	}
	return w.Days == [7]bool{} || w.Days[day]
}
