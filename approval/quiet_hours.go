package approval

import "time"

// QuietHours is the part of each day in which cards are sent silently and requests
// wait longer. The zero QuietHours covers no time.
type QuietHours struct {
	From, To time.Duration // local time since midnight; equal: no quiet hours
	Timeout  time.Duration // of requests asked in quiet hours; 0: the workspace's
}

// Covers says whether t is in quiet hours, in t's own time zone.
func (n QuietHours) Covers(t time.Time) bool {
	if n.From == n.To {
		return false
	}
	at := TimeOfDay(t)
	if n.From < n.To {
		return n.From <= at && at < n.To
	}
	return at >= n.From || at < n.To // across midnight
}

// TimeOfDay is what clocks show in t's own time zone, as the time since midnight.
func TimeOfDay(t time.Time) time.Duration {
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute +
		time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
}
