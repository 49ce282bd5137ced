package watcher

import (
	"container/heap"
	"io/fs"
	"math/rand/v2"
	"time"
)

const (
	defaultInterval = 5 * time.Second
	defaultPoll     = time.Second
	defaultFlood    = 2000

	manyGroups = 100 // beyond these, timers slow down in proportion
	mostLooks  = 4   // looks at once, not counting those that may hang on a remote file system
)

// A group is a set of folders that are looked at together.
type group struct {
	name    string
	folders []*folder
	flood   flood

	full   time.Time // when the next Rescan is due
	poll   time.Time // when the next poll is due; zero: it is not polled
	asked  bool      // that Rescan was asked for, it is not the timer's
	busy   bool      // a look is under way; it is not in the schedule
	remote bool
	index  int // in the schedule
}

// A folder is a Folder and what we know of it. Only a look touches seen, all else
// belongs to the loop.
type folder struct {
	Folder
	group   *group
	watched fs.FileInfo // the folder as it was when the watch was placed; nil: no watch
	why     string      // why it is polled; "": it is watched, or its group floods
	seen    *listing
}

func (g *group) due() time.Time {
	if !g.poll.IsZero() && g.poll.Before(g.full) {
		return g.poll
	}
	return g.full
}

// schedule is a heap of groups, the one that is due first on top.
type schedule []*group

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due().Before(s[j].due()) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

// Push is for package heap.
func (s *schedule) Push(x any) {
	g := x.(*group) //nolint:forcetypeassert // only groups go in
	g.index = len(*s)
	*s = append(*s, g)
}

// Pop is for package heap.
func (s *schedule) Pop() any {
	old := *s
	g := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	return g
}

// soon asks for a Rescan of a group at that time at the latest.
func (l *loop) soon(g *group, at time.Time) {
	if !at.Before(g.full) {
		return
	}
	g.full, g.asked = at, true
	if !g.busy {
		heap.Fix(&l.schedule, g.index)
	}
}

// all asks for a Rescan of every group, but not twice within a poll period:
// somebody who makes the queue overflow again and again must not get the whole
// house looked at each time.
func (l *loop) all(now time.Time) {
	if next := l.lastAll.Add(l.pollPeriod()); !next.After(now) {
		l.lastAll = now
	} else if !l.lastAll.After(now) {
		l.lastAll = next
	}
	at := l.lastAll
	for _, g := range l.groups {
		l.soon(g, at)
	}
}

// dispatch starts the looks that are due, as many as there may be, and sets the
// timer for the next. Timers that are close together fire as one.
func (l *loop) dispatch(now time.Time) {
	for len(l.schedule) > 0 {
		g := l.schedule[0]
		if due := g.due(); due.After(now) {
			l.arm(now, due)
			return
		}
		if l.looks >= mostLooks && !g.remote {
			return // the end of a look brings us here again
		}
		heap.Pop(&l.schedule)
		l.start(g, now)
	}
}

func (l *loop) arm(now, due time.Time) {
	if l.armed.Equal(due) {
		return
	}
	l.armed = due
	l.timer.Reset(max(due.Sub(now), l.slack()))
}

// start begins a look at a group.
func (l *loop) start(g *group, now time.Time) {
	k := &look{group: g, began: now, full: !g.full.After(now.Add(l.slack())), change: -1}
	for _, f := range g.folders {
		floods := g.flood.on && !f.Trusted
		if floods {
			k.change = 0
		}
		k.polls = append(k.polls, &poll{folder: f, compare: f.why != "" || floods, counts: floods})
	}
	if k.full {
		g.full, g.asked = now.Add(l.interval(g.asked)), false
	}
	g.busy = true
	if !g.remote {
		l.looks++
		l.locals.Add(1)
	}
	go l.carryOut(k, !g.remote)
}

func (l *loop) carryOut(k *look, local bool) {
	if local {
		defer l.locals.Done()
	}
	l.do(k, func() bool { return l.ctx.Err() != nil })
	select {
	case l.done <- report{look: k, local: local}:
	case <-l.ctx.Done():
	}
}

// A report is a look that has ended.
type report struct {
	*look
	local bool
}

// finish takes the report of a look and says when the next is due. A group gets
// no more than half of the time, however long a look at it takes.
func (l *loop) finish(r report, now time.Time) {
	g := r.group
	g.busy = false
	if r.local {
		l.looks--
	}
	if len(g.folders) == 0 {
		l.forget(g)
		return
	}
	heap.Push(&l.schedule, g)
	if g.flood.ebbs(now, r.change, l.floodLimit()) {
		l.Log.Info().Str("ws", g.name).Msg("flood is over, watching again")
	}
	g.remote = false
	for _, p := range r.polls {
		if p.folder.group == g { // not removed or replaced meanwhile
			l.settle(p.folder, p.current)
		}
	}
	rest := now.Add(now.Sub(r.began))
	if g.full.Before(rest) {
		g.full = rest
	}
	l.repoll(g, rest)
	heap.Fix(&l.schedule, g.index)
}

// repoll says when a group is polled next, if it is.
func (l *loop) repoll(g *group, earliest time.Time) {
	polled := g.flood.on
	for _, f := range g.folders {
		polled = polled || f.why != ""
	}
	if was := !g.poll.IsZero(); was != polled {
		l.polled += map[bool]int{true: 1, false: -1}[polled]
	}
	if !polled {
		g.poll = time.Time{}
		return
	}
	g.poll = time.Now().Add(l.pollPeriod())
	if g.poll.Before(earliest) {
		g.poll = earliest
	}
}

// interval is the time to the next Rescan of a group: at most what is promised,
// and different each time. After Rescans that were asked for, by an overflow for
// instance, it may be anything, lest a thousand groups come in a bunch again.
func (l *loop) interval(asked bool) time.Duration {
	named := len(l.groups)
	if _, ok := l.groups[""]; ok {
		named--
	}
	longest := max(slower(l.base(), named)-l.slack(), time.Microsecond)
	if asked {
		return rand.N(longest) //nolint:gosec // spreads work, guards nothing
	}
	return longest - rand.N(longest/5+1) //nolint:gosec // likewise
}

func (l *loop) base() time.Duration {
	if l.Interval > 0 {
		return l.Interval
	}
	return defaultInterval
}

// slack is how late a timer may be.
func (l *loop) slack() time.Duration { return min(l.base()/50, l.pollPeriod()/10) }

func (l *loop) pollPeriod() time.Duration {
	if l.pollEvery > 0 {
		return slower(l.pollEvery, l.polled)
	}
	return slower(defaultPoll, l.polled)
}

func (l *loop) floodLimit() int {
	if l.FloodPerSecond > 0 {
		return l.FloodPerSecond
	}
	return defaultFlood
}

func slower(d time.Duration, groups int) time.Duration {
	return d * time.Duration(max(groups, manyGroups)) / manyGroups
}
