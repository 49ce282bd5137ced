package watcher

import "time"

const (
	floodWindow   = time.Second
	relapseWithin = time.Minute
	longestCalm   = 32 // calm polls asked of a group that relapses again and again
)

// A flood counts the events of one group and remembers whether there were too
// many.
type flood struct {
	on    bool
	began time.Time // of the window that is being counted
	count int
	ended time.Time // of the last flood
	calm  int       // calm polls seen
	need  int       // calm polls wanted
}

// rises counts one event and reports whether it is one too many.
func (f *flood) rises(now time.Time, limit int) bool {
	if now.Sub(f.began) >= floodWindow {
		f.began, f.count = now, 0
	}
	f.count++
	if f.on || f.count <= limit {
		return false
	}
	f.need = min(2*f.need, longestCalm)
	if f.ended.IsZero() || now.Sub(f.ended) > relapseWithin {
		f.need = 1
	}
	f.on, f.calm = true, 0
	return true
}

// ebbs takes the number of changes between two polls, -1 if it is not known, and
// reports whether the flood is over. It need not be exact: a group that is still
// flooding costs one window of events when it is watched again.
func (f *flood) ebbs(now time.Time, changes, limit int) bool {
	if !f.on {
		return false
	}
	f.calm++
	if changes < 0 || changes > limit/2 {
		f.calm = 0
	}
	if f.calm < f.need {
		return false
	}
	f.on, f.ended, f.began, f.count = false, now, now, 0
	return true
}
