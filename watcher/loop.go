package watcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A loop is one Run: one goroutine that receives the events and is the only one to
// place watches. It does no other file work, because access to a remote folder may
// hang.
type loop struct {
	*Watcher
	ctx       context.Context //nolint:containedctx // lives exactly as long as Run
	src       *source
	noInotify reason // why inotify is unavailable
	timer     *time.Timer
	timerAt   time.Time
	done      chan report
	locals    sync.WaitGroup // scans that Run waits for: those that cannot hang

	groups        map[string]*group
	folders       map[string]*folder // by path
	logged        map[reason]bool    // reasons for polling that were logged
	localScans    int                // local scans in progress
	polledGroups  int                // number of polled groups
	ready         []*group           // due, waiting for a scan
	next          time.Time          // when the first of the others is due, or earlier
	lastRescanAll time.Time
}

func newLoop(ctx context.Context, w *Watcher) *loop {
	l := &loop{
		Watcher: w,
		ctx:     ctx,
		timer:   time.NewTimer(time.Hour),
		done:    make(chan report),
		groups:  make(map[string]*group),
		folders: make(map[string]*folder),
		logged:  make(map[reason]bool),
	}
	open := w.open
	if open == nil {
		open = openSource
	}
	src, err := open()
	if err != nil {
		src, l.noInotify = &source{}, explain(err)
	}
	l.src = src
	return l
}

func (l *loop) stop() {
	l.timer.Stop()
	if l.src.close != nil {
		_ = l.src.close() // nothing uses it any more
	}
	l.locals.Wait()
}

func (l *loop) run() {
	kick := l.wakeups()
	l.applyChanges(time.Now())
	for {
		now := time.Now()
		l.dispatch(now)
		select {
		case <-l.ctx.Done():
			return
		case ev, ok := <-l.src.events:
			if !ok {
				l.onClosed()
				continue
			}
			l.onEvent(ev, time.Now())
		case err := <-l.src.errors:
			l.onError(err)
		case r := <-l.done:
			l.finishScan(r, time.Now())
		case <-kick:
			l.applyChanges(time.Now())
		case <-l.timer.C:
			l.timerAt = time.Time{}
		}
	}
}

// onError handles an error of inotify, usually an overflow of the kernel's queue:
// unknown events are missing.
func (l *loop) onError(err error) {
	msg := "inotify error, rescanning all folders"
	if errors.Is(err, fsnotify.ErrEventOverflow) {
		msg = "inotify events lost, rescanning all folders"
	}
	l.Log.Warn().Err(err).Msg(msg)
	l.rescanAll(time.Now())
}

// onClosed switches to polling after the source has ended.
func (l *loop) onClosed() {
	if l.ctx.Err() != nil {
		return
	}
	l.src, l.noInotify = &source{}, explain(fsnotify.ErrClosed)
	for _, f := range l.folders {
		f.watched = nil
	}
	l.rescanAll(time.Now())
}

// onEvent wakes the name, counts the event, and detects the removal of a folder
// itself.
func (l *loop) onEvent(ev fsnotify.Event, now time.Time) {
	if f, ok := l.folders[ev.Name]; ok && ev.Op&(fsnotify.Remove|fsnotify.Rename) != 0 {
		f.watched = nil
		l.rescanBy(f.group, now)
	}
	dir, name := filepath.Split(ev.Name)
	f, ok := l.folders[filepath.Clean(dir)]
	if !ok {
		return
	}
	if !f.Trusted && !l.acceptEvent(f.group, now) {
		return
	}
	if f.IgnoreRemovals && ev.Op&^(fsnotify.Remove|fsnotify.Rename) == 0 {
		return
	}
	if f.wants(name) {
		l.Wake(f.Group, f.Kind, name)
	}
}

// acceptEvent counts an event of an untrusted folder and returns whether its group
// is within the limit.
func (l *loop) acceptEvent(g *group, now time.Time) bool {
	if g.flood.exceeds(now, l.floodLimit()) {
		l.Log.Warn().Str("ws", g.name).Int("per_second", l.floodLimit()).Msg("too many events, polling instead")
		for _, f := range g.folders {
			if !f.Trusted {
				l.unwatch(f)
			}
		}
		l.rescanBy(g, now.Add(l.pollPeriod()))
	}
	return !g.flood.on
}

// applyChanges applies the queued Adds and Removes.
func (l *loop) applyChanges(now time.Time) {
	for _, c := range l.changes() {
		if c.passed != nil {
			close(c.passed)
			continue
		}
		if c.folder == nil {
			l.removeGroup(c.group)
			continue
		}
		f, g := c.folder, l.joinGroup(c.group, now)
		f.group = g
		g.folders = append(g.folders, f)
		if old, ok := l.folders[f.Path]; ok {
			l.removeFolder(old)
		}
		l.folders[f.Path] = f
		l.applyState(f, c.current)
		l.rescanBy(g, now)
	}
}

// joinGroup finds or creates a group. Its first Rescan is due at once.
func (l *loop) joinGroup(name string, now time.Time) *group {
	g, ok := l.groups[name]
	if !ok {
		g = &group{name: name, nextRescan: now, requested: true}
		l.groups[name] = g
		l.dueBy(now)
	}
	return g
}

func (l *loop) removeGroup(name string) {
	g, ok := l.groups[name]
	if !ok {
		return
	}
	for _, f := range g.folders {
		l.removeFolder(f)
		l.note(f.Path, reason{})
	}
}

func (l *loop) deleteGroup(g *group) {
	if !g.nextPoll.IsZero() {
		l.polledGroups--
	}
	delete(l.groups, g.name)
}

// removeFolder removes a folder from its group, and deletes an empty group.
func (l *loop) removeFolder(f *folder) {
	l.unwatch(f)
	delete(l.folders, f.Path)
	g := f.group
	g.folders = slices.DeleteFunc(slices.Clone(g.folders), func(o *folder) bool { return o == f })
	f.group = nil
	if len(g.folders) == 0 && !g.busy { // otherwise finishScan deletes it
		l.deleteGroup(g)
	}
}

// applyState places or removes the watch of a folder by the state that a scan
// found.
func (l *loop) applyState(f *folder, s state) {
	why := s.why
	f.group.remote = f.group.remote || s.remote
	if why == (reason{}) {
		why = l.noInotify
	}
	switch {
	case why != (reason{}):
		l.unwatch(f)
	case f.group.flood.on && !f.Trusted:
		// No watch during a flood, which was logged already.
	default:
		why = l.watch(f, s)
	}
	if why == f.why {
		return
	}
	f.why = why
	l.note(f.Path, why)
	if why != (reason{}) && !l.logged[why] {
		l.logged[why] = true
		line := l.Log.Warn().Str("ws", f.Group)
		if why.hint != "" {
			line = line.Str("hint", why.hint)
		}
		line.Msg(notice(f.Path, why).what)
	}
}

// watch places or renews a watch and returns why it failed. Renewing costs one
// system call and restores a watch that was lost without an event. A new watch
// requests a Rescan, for changes before the watch.
func (l *loop) watch(f *folder, s state) (why reason) {
	same := f.watched != nil && os.SameFile(f.watched, s.info)
	if !same {
		l.unwatch(f)
	}
	if err := l.src.Add(f.Path); err != nil {
		l.unwatch(f)
		return explain(err)
	}
	f.watched = s.info
	if !same {
		l.rescanBy(f.group, time.Now())
	}
	return reason{}
}

func (l *loop) unwatch(f *folder) {
	if f.watched == nil {
		return
	}
	f.watched = nil
	if err := l.src.Remove(f.Path); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
		l.Log.Debug().Err(err).Str("path", f.Path).Msg("watch already removed")
	}
}
