package web

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// shelf is what waits, as it was seen last, so that five hundred pendings are
// not read anew for every page. An event says which key to look at; the folders
// say what is so, and are read as a whole from time to time.
type shelf struct {
	look sync.Mutex // held while the folders are read

	mu      sync.Mutex
	items   map[approval.Key]*item
	dirty   map[approval.Key]bool
	all     bool // look at everything
	soon    bool // … if that was not done a moment ago
	read    time.Time
	rev     int64         // of the newest change that was seen
	gone    []departure   // the newest last
	earlier int64         // departures up to this revision are forgotten
	moved   chan struct{} // closed when there is something to look at
}

// item is one that waits. It is never changed, but replaced.
type item struct {
	approval.Waiting
	since int64 // the revision with which it came
}

// departure is one that waits no longer. Of its pending only as much is kept as
// says who could see it.
type departure struct {
	item
	rev int64
}

const (
	maxGone   = 2000
	readSoon  = 5 * time.Second // "something changed" comes with every claim
	readAgain = time.Minute     // an event may be lost; a page that is opened then finds what is so
)

func (f *shelf) init() {
	f.items, f.dirty, f.all, f.moved = map[approval.Key]*item{}, map[approval.Key]bool{}, true, make(chan struct{})
}

// stir notes that a key, or everything, is to be looked at.
func (f *shelf) stir(k approval.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case k == (approval.Key{}):
		f.soon = true
	case len(f.dirty) > maxGone:
		f.all = true
	default:
		f.dirty[k] = true
	}
	f.knock()
}

// wake lets whoever listens look, without saying that anything changed.
func (f *shelf) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.knock()
}

func (f *shelf) knock() {
	close(f.moved)
	f.moved = make(chan struct{})
}

// listen gives a channel that is closed when there is something to look at.
// Whoever listens before looking misses nothing.
func (f *shelf) listen() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moved
}

// waiting brings the shelf up to date, and gives what is on it, oldest first,
// with the revision of that.
func (s *Server) waiting(ctx context.Context) ([]*item, int64, error) {
	f := &s.shelf
	f.look.Lock()
	defer f.look.Unlock()
	f.mu.Lock()
	age, dirty := s.Now().Sub(f.read), f.dirty
	all := f.all || f.soon && age >= readSoon || age >= readAgain
	f.all, f.soon, f.dirty = false, f.soon && !all, map[approval.Key]bool{}
	f.mu.Unlock()
	var err error
	if all {
		err = s.readAll(ctx)
	} else {
		for k := range dirty {
			if err = s.readOne(ctx, k); err != nil {
				break
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.all = true // nobody knows how far that came
		return nil, 0, err
	}
	list := make([]*item, 0, len(f.items))
	for _, i := range f.items {
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b *item) int {
		if c := a.Pending.Timestamp.Compare(b.Pending.Timestamp); c != 0 {
			return c
		}
		return strings.Compare(a.Pending.RequestID, b.Pending.RequestID)
	})
	return list, f.rev, nil
}

func (s *Server) readAll(ctx context.Context) error {
	names := s.Workspaces()
	var found []approval.Waiting
	if len(names) > 0 {
		var err error
		if found, err = s.Viewer.Waiting(ctx, names); err != nil {
			return err
		}
	}
	now := map[approval.Key]bool{}
	for _, w := range found {
		if s.Viewer.Decided(w) == nil {
			now[w.Key()] = true
			s.shelf.put(w)
		}
	}
	s.shelf.keep(now)
	s.shelf.mu.Lock()
	defer s.shelf.mu.Unlock()
	s.shelf.read = s.Now()
	return nil
}

func (s *Server) readOne(ctx context.Context, k approval.Key) error {
	w, err := s.Viewer.Pending(k)
	if err != nil {
		return err
	}
	if w == nil || s.Viewer.Decided(*w) != nil {
		s.shelf.drop(k)
		return nil
	}
	rec, err := s.Viewer.Record(ctx, k)
	if err != nil || rec != nil {
		s.shelf.drop(k)
		return nil //nolint:nilerr // settled, whatever its record looks like
	}
	s.shelf.put(*w)
	return nil
}

func (f *shelf) put(w approval.Waiting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.items[w.Key()]; old != nil && old.SHA256 == w.SHA256 {
		return
	}
	f.rev++
	f.items[w.Key()] = &item{w, f.rev}
}

func (f *shelf) drop(k approval.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(k)
}

func (f *shelf) keep(now map[approval.Key]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.items {
		if !now[k] {
			f.remove(k)
		}
	}
}

// remove takes one away; the caller holds the lock.
func (f *shelf) remove(k approval.Key) {
	i := f.items[k]
	if i == nil {
		return
	}
	delete(f.items, k)
	f.rev++
	p := &approval.Pending{RequestID: k.ID, SourceGroup: k.Workspace, Principal: i.Pending.Principal}
	f.gone = append(f.gone, departure{item{approval.Waiting{Pending: p, SHA256: i.SHA256}, i.since}, f.rev})
	if len(f.gone) > maxGone {
		f.earlier = f.gone[0].rev
		f.gone = f.gone[1:]
	}
}

// forget empties the shelf, for the time in which nobody looks.
func (f *shelf) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items, f.dirty, f.all = map[approval.Key]*item{}, map[approval.Key]bool{}, true
	f.gone, f.earlier = nil, f.rev
}

// goneSince lists who was there at a revision and has left since; known is false
// where that is too long ago to say.
func (f *shelf) goneSince(rev int64) (left []*item, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.gone {
		if d := &f.gone[i]; d.rev > rev && d.since <= rev {
			left = append(left, &item{d.Waiting, d.since})
		}
	}
	return left, rev >= f.earlier
}

// seen are the items that somebody may see, and so decide.
func (s *Server) seen(g User, rights Rights, list []*item) []*item {
	return slices.DeleteFunc(slices.Clone(list), func(i *item) bool { return !s.visible(g, rights, i.Pending) })
}

// visible hides what waits for somebody else.
func (s *Server) visible(g User, rights Rights, p *approval.Pending) bool {
	ws := p.SourceGroup
	return slices.Contains(rights.See, ws) && (g.Operator && rights.Operator || s.People.May(g, ws, p))
}

// warm renders the rows of what waits before somebody asks for them, as long as
// somebody looks, or is about to.
func (s *Server) warm(ctx context.Context) {
	for {
		moved := s.shelf.listen()
		switch {
		case !s.complete() || !s.anybody():
			s.shelf.forget()
			s.rows.forget()
		default:
			if list, _, err := s.waiting(ctx); err == nil {
				s.warmRows(list)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-moved:
		}
	}
}
