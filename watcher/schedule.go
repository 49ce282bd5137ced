package watcher

import (
	"cmp"
	"io/fs"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	defaultInterval = 5 * time.Second
	defaultPoll     = time.Second
	defaultFlood    = 2000

	manyGroups = 100 // above this number, periods grow in proportion
	maxScans   = 4   // concurrent scans, not counting those of remote file systems, which may hang
)

// A group is a set of folders that are scanned together.
type group struct {
	name    string
	folders []*folder
	flood   flood

	nextRescan time.Time // when the next Rescan is due
	nextPoll   time.Time // when the next poll is due; zero: it is not polled
	requested  bool      // the next Rescan was requested, not periodic
	busy       bool      // a scan is in progress, or waits for its turn
	remote     bool
}

// A folder is a Folder and its state. Only a scan uses seen and named; the loop owns
// the other fields.
type folder struct {
	Folder
	group   *group
	watched fs.FileInfo // the folder as it was when the watch was placed; nil: no watch
	why     reason      // why it is polled; empty: watched, or its group floods
	seen    *listing
	named   fs.FileInfo // the folder when its names were last rescanned; nil: its time says nothing
}

func (g *group) due() time.Time {
	if !g.nextPoll.IsZero() && g.nextPoll.Before(g.nextRescan) {
		return g.nextPoll
	}
	return g.nextRescan
}

// rescanBy requests a Rescan of a group at that time or earlier.
func (l *loop) rescanBy(g *group, at time.Time) {
	if !at.Before(g.nextRescan) {
		return
	}
	g.nextRescan, g.requested = at, true
	l.dueBy(at)
}

// rescanAll requests a Rescan of every group, at most once within a poll period: an
// agent that makes the queue overflow repeatedly must not cause a complete rescan
// each time.
func (l *loop) rescanAll(now time.Time) {
	if next := l.lastRescanAll.Add(l.pollPeriod()); !next.After(now) {
		l.lastRescanAll = now
	} else if !l.lastRescanAll.After(now) {
		l.lastRescanAll = next
	}
	at := l.lastRescanAll
	for _, g := range l.groups {
		l.rescanBy(g, at)
	}
}

// dueBy says that a group is due at that time.
func (l *loop) dueBy(at time.Time) {
	if at.Before(l.next) {
		l.next = at
	}
}

// dispatch starts the due scans, up to the limit, and sets the timer for the next.
// Timers that are close together fire together.
func (l *loop) dispatch(now time.Time) {
	if !l.next.After(now) {
		l.collect(now)
	}
	for len(l.ready) > 0 {
		g := l.ready[0]
		if l.localScans >= maxScans && !g.remote {
			return // finishScan leads here again
		}
		l.ready = l.ready[1:]
		l.startScan(g, now)
	}
	l.setTimer(now, l.next)
}

// collect appends the due groups to those that wait for a scan, the first due first, and
// finds out when the next is due. Nothing else looks at every group.
func (l *loop) collect(now time.Time) {
	l.next = now.Add(time.Hour)
	for _, g := range l.groups {
		switch due := g.due(); {
		case g.busy:
		case due.After(now):
			l.dueBy(due)
		default:
			g.busy = true
			l.ready = append(l.ready, g)
		}
	}
	slices.SortFunc(l.ready, func(a, b *group) int { return a.due().Compare(b.due()) })
}

func (l *loop) setTimer(now, due time.Time) {
	if l.timerAt.Equal(due) {
		return
	}
	l.timerAt = due
	l.timer.Reset(max(due.Sub(now), l.slack()))
}

// startScan starts a scan of a group.
func (l *loop) startScan(g *group, now time.Time) {
	if len(g.folders) == 0 { // they were removed while it waited
		l.deleteGroup(g)
		return
	}
	k := &scan{group: g, began: now, rescan: !g.nextRescan.After(now.Add(l.slack())), asked: g.requested, changes: -1}
	for _, f := range g.folders {
		floods := g.flood.on && !f.Trusted
		if floods {
			k.changes = 0
		}
		k.polls = append(k.polls, &poll{folder: f, compare: f.why != (reason{}) || floods, counts: floods, watched: f.watched})
	}
	if k.rescan {
		g.nextRescan, g.requested = now.Add(l.interval(g.requested)), false
	}
	if !g.remote {
		l.localScans++
		l.locals.Add(1)
	}
	go l.scanAsync(k, !g.remote)
}

func (l *loop) scanAsync(k *scan, local bool) {
	if local {
		defer l.locals.Done()
	}
	l.runScan(k, func() bool { return l.ctx.Err() != nil })
	select {
	case l.done <- report{scan: k, local: local}:
	case <-l.ctx.Done():
	}
}

// A report is a finished scan.
type report struct {
	*scan
	local bool
}

// finishScan handles a finished scan and schedules the next. A group is scanned at
// most half of the time, even if its scans are slow.
func (l *loop) finishScan(r report, now time.Time) {
	g := r.group
	g.busy = false
	if r.local {
		l.localScans--
	}
	if len(g.folders) == 0 {
		l.deleteGroup(g)
		return
	}
	if g.flood.ends(now, r.changes, l.floodLimit()) {
		l.Log.Info().Str("ws", g.name).Msg("flood is over, watching again")
	}
	if !r.rescan || r.changed {
		l.applyStates(r.scan)
	}
	rest := now.Add(now.Sub(r.began))
	if g.nextRescan.Before(rest) {
		g.nextRescan = rest
	}
	l.schedulePoll(g, rest)
	l.dueBy(g.due())
}

func (l *loop) applyStates(k *scan) {
	k.group.remote = false
	for _, p := range k.polls {
		if p.folder.group == k.group { // not removed or replaced in the meantime
			l.applyState(p.folder, p.current)
		}
	}
}

// schedulePoll sets when a group is polled next, if it is polled.
func (l *loop) schedulePoll(g *group, earliest time.Time) {
	polled := g.flood.on
	for _, f := range g.folders {
		polled = polled || f.why != (reason{})
	}
	if was := !g.nextPoll.IsZero(); was != polled {
		l.polledGroups += map[bool]int{true: 1, false: -1}[polled]
	}
	if !polled {
		g.nextPoll = time.Time{}
		return
	}
	g.nextPoll = time.Now().Add(l.pollPeriod())
	if g.nextPoll.Before(earliest) {
		g.nextPoll = earliest
	}
}

// interval is the time to the next Rescan of a group: at most Interval, and random,
// so that groups do not rescan together. After a requested Rescan (such as after an
// overflow) it may be much shorter, to spread the groups again.
func (l *loop) interval(asked bool) time.Duration {
	longest := max(l.longest()-l.slack(), time.Microsecond)
	if asked {
		return rand.N(longest) //nolint:gosec // spreads load, no security
	}
	return longest - rand.N(longest/5+1) //nolint:gosec // likewise
}

// longest is the longest time between two Rescans of a group.
func (l *loop) longest() time.Duration {
	named := len(l.groups)
	if _, ok := l.groups[""]; ok {
		named--
	}
	return slower(cmp.Or(l.Interval, defaultInterval), named)
}

// slack is the allowed delay of a timer. Many groups share one.
func (l *loop) slack() time.Duration {
	most := l.pollPeriod()
	if l.polledGroups > 0 {
		most /= 10
	}
	return min(l.longest()/50, most)
}

func (l *loop) pollPeriod() time.Duration {
	return slower(cmp.Or(l.pollEvery, defaultPoll), l.polledGroups)
}

func (l *loop) floodLimit() int { return cmp.Or(l.FloodPerSecond, defaultFlood) }

func slower(d time.Duration, groups int) time.Duration {
	return d * time.Duration(max(groups, manyGroups)) / manyGroups
}
