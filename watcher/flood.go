package watcher

import "time"

const (
	floodWindow   = time.Second
	repeatWindow  = time.Minute
	maxQuietPolls = 32 // quiet polls required of a group that floods repeatedly
)

// A flood counts the events of one group and detects too many.
type flood struct {
	on     bool
	began  time.Time // of the current window
	count  int
	ended  time.Time // of the last flood
	quiet  int       // quiet polls seen
	needed int       // quiet polls required
}

// exceeds counts one event and returns true for the event that begins a flood.
func (f *flood) exceeds(now time.Time, limit int) bool {
	if now.Sub(f.began) >= floodWindow {
		f.began, f.count = now, 0
	}
	f.count++
	if f.on || f.count <= limit {
		return false
	}
	f.needed = min(2*f.needed, maxQuietPolls)
	if f.ended.IsZero() || now.Sub(f.ended) > repeatWindow {
		f.needed = 1
	}
	f.on, f.quiet = true, 0
	return true
}

// ends takes the number of changes between two polls, -1 if unknown, and returns
// whether the flood is over. It need not be exact: a group that still floods costs
// one window of events when it is watched again.
func (f *flood) ends(now time.Time, changes, limit int) bool {
	if !f.on {
		return false
	}
	f.quiet++
	if changes < 0 || changes > limit/2 {
		f.quiet = 0
	}
	if f.quiet < f.needed {
		return false
	}
	f.on, f.ended, f.began, f.count = false, now, now, 0
	return true
}
