package approval

import "time"

// QuietHours is the part of each day in which people are left in peace: what asks
// them does so silently, and waits longer. The zero QuietHours never comes.
type QuietHours struct {
	From, To time.Duration // since midnight, by the clock on the wall; equal: there is none
	Timeout  time.Duration // how long what was asked at night waits; 0: as by day
}

// Covers says whether it is night at t, by the clock of t's own zone.
func (n QuietHours) Covers(t time.Time) bool {
	if n.From == n.To {
		return false
	}
	at := time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute +
		time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
	if n.From < n.To {
		return n.From <= at && at < n.To
	}
	return at >= n.From || at < n.To // over midnight
}
