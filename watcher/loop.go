package watcher

import (
	"container/heap"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A loop is one Run: one goroutine that takes the events and is the only one to
// place watches. It does no file work of its own beyond that, because a look at a
// remote folder may hang.
type loop struct {
	*Watcher
	ctx    context.Context //nolint:containedctx // lives exactly as long as Run
	src    *source
	blind  string // why there is no inotify at all
	timer  *time.Timer
	armed  time.Time
	done   chan report
	locals sync.WaitGroup // looks that Run waits for: those that cannot hang

	groups   map[string]*group
	folders  map[string]*folder // by path
	schedule schedule
	said     map[string]bool // reasons for polling that stand in the log
	looks    int             // local ones under way
	polled   int             // groups that are polled
	lastAll  time.Time
}

func newLoop(ctx context.Context, w *Watcher) *loop {
	l := &loop{
		Watcher: w,
		ctx:     ctx,
		timer:   time.NewTimer(time.Hour),
		done:    make(chan report),
		groups:  make(map[string]*group),
		folders: make(map[string]*folder),
		said:    make(map[string]bool),
	}
	open := w.open
	if open == nil {
		open = openSource
	}
	src, err := open()
	if err != nil {
		src, l.blind = &source{}, explain(err)
	}
	l.src = src
	return l
}

func (l *loop) stop() {
	l.timer.Stop()
	if l.src.close != nil {
		_ = l.src.close() // nothing depends on it any more
	}
	l.locals.Wait()
}

func (l *loop) run() {
	kick := l.kicked()
	l.admit(time.Now())
	for {
		now := time.Now()
		l.dispatch(now)
		select {
		case <-l.ctx.Done():
			return
		case ev, ok := <-l.src.events:
			if !ok {
				l.closed()
				continue
			}
			l.event(ev, time.Now())
		case err := <-l.src.errors:
			l.lost(err)
		case r := <-l.done:
			l.finish(r, time.Now())
		case <-kick:
			l.admit(time.Now())
		case <-l.timer.C:
			l.armed = time.Time{}
		}
	}
}

// lost is any error of inotify, mostly an overflow of the kernel's queue: events
// are missing, we cannot know which.
func (l *loop) lost(err error) {
	msg := "inotify reported an error, looking at everything"
	if errors.Is(err, fsnotify.ErrEventOverflow) {
		msg = "events were lost, looking at everything"
	}
	l.Log.Warn().Err(err).Msg(msg)
	l.all(time.Now())
}

// closed turns to polling after the source has ended by itself.
func (l *loop) closed() {
	if l.ctx.Err() != nil {
		return
	}
	l.src, l.blind = &source{}, explain(fsnotify.ErrClosed)
	for _, f := range l.folders {
		f.watched = nil
	}
	l.all(time.Now())
}

// event wakes the name, counts, and notices when a folder itself has gone.
func (l *loop) event(ev fsnotify.Event, now time.Time) {
	if f, ok := l.folders[ev.Name]; ok && ev.Op&(fsnotify.Remove|fsnotify.Rename) != 0 {
		f.watched = nil
		l.soon(f.group, now)
	}
	dir, name := filepath.Split(ev.Name)
	f, ok := l.folders[filepath.Clean(dir)]
	if !ok {
		return
	}
	if !f.Trusted && !l.bears(f.group, now) {
		return
	}
	if f.wants(name) {
		l.Wake(f.Group, f.Kind, name)
	}
}

// bears counts an event of an untrusted folder and reports whether the group may
// still be heard.
func (l *loop) bears(g *group, now time.Time) bool {
	if g.flood.rises(now, l.floodLimit()) {
		l.Log.Warn().Str("ws", g.name).Int("per_second", l.floodLimit()).Msg("too many events, polling instead")
		for _, f := range g.folders {
			if !f.Trusted {
				l.unwatch(f)
			}
		}
		l.soon(g, now.Add(l.pollPeriod()))
	}
	return !g.flood.on
}

// admit carries out the Adds and Removes that were asked for.
func (l *loop) admit(now time.Time) {
	for _, c := range l.changes() {
		if c.passed != nil {
			close(c.passed)
			continue
		}
		if c.folder == nil {
			l.remove(c.group)
			continue
		}
		f, g := c.folder, l.join(c.group, now)
		f.group = g
		g.folders = append(g.folders, f)
		if old, ok := l.folders[f.Path]; ok {
			l.drop(old)
		}
		l.folders[f.Path] = f
		l.settle(f, c.current)
		l.soon(g, now)
	}
}

// join finds or makes a group. Its first Rescan is due at once.
func (l *loop) join(name string, now time.Time) *group {
	g, ok := l.groups[name]
	if !ok {
		g = &group{name: name, full: now, asked: true}
		l.groups[name] = g
		heap.Push(&l.schedule, g)
	}
	return g
}

func (l *loop) remove(name string) {
	g, ok := l.groups[name]
	if !ok {
		return
	}
	for _, f := range g.folders {
		l.drop(f)
		l.note(f.Path, "")
	}
}

func (l *loop) forget(g *group) {
	if !g.poll.IsZero() {
		l.polled--
	}
	delete(l.groups, g.name)
}

// drop takes a folder out of its group, and forgets a group that has none left.
func (l *loop) drop(f *folder) {
	l.unwatch(f)
	delete(l.folders, f.Path)
	g := f.group
	g.folders = slices.DeleteFunc(slices.Clone(g.folders), func(o *folder) bool { return o == f })
	f.group = nil
	if len(g.folders) == 0 && !g.busy { // otherwise the end of its look forgets it
		heap.Remove(&l.schedule, g.index)
		l.forget(g)
	}
}

// settle makes the watch of a folder agree with what a look found.
func (l *loop) settle(f *folder, s state) {
	why := s.why
	f.group.remote = f.group.remote || s.remote
	if why == "" {
		why = l.blind
	}
	switch {
	case why != "":
		l.unwatch(f)
	case f.group.flood.on && !f.Trusted:
		// It stays without a watch; the flood has spoken for itself.
	default:
		why = l.watch(f, s)
	}
	if why == f.why {
		return
	}
	f.why = why
	l.note(f.Path, why)
	if why != "" && !l.said[why] {
		l.said[why] = true
		l.Log.Warn().Str("ws", f.Group).Msg(notice(f.Path, why))
	}
}

// watch places or renews a watch and says why it could not. Renewing costs one
// system call and heals a watch that vanished without our hearing of it. A folder
// watched anew is looked at once more, for what came before its watch.
func (l *loop) watch(f *folder, s state) (why string) {
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
		l.soon(f.group, time.Now())
	}
	return ""
}

func (l *loop) unwatch(f *folder) {
	if f.watched == nil {
		return
	}
	f.watched = nil
	if err := l.src.Remove(f.Path); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
		l.Log.Debug().Err(err).Str("path", f.Path).Msg("watch was gone already")
	}
}
