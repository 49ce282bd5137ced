package web

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// pendingCache holds the pending requests as last read, so that a page does not
// read hundreds of files. An event only names a key to read again. The files are
// the truth, and all of them are read again regularly.
type pendingCache struct {
	loadMu sync.Mutex // held while files are read

	mu           sync.Mutex
	items        map[approval.Key]*item
	dirty        map[approval.Key]bool
	reloadAll    bool // at the next use
	reloadSoon   bool // the same, but not within reloadDelay
	loadedAt     time.Time
	rev          int64         // of the newest change
	removed      []item        // the newest last; their pendings have only the fields that tell who may see them
	forgottenRev int64         // removed has nothing up to this revision
	changed      chan struct{} // closed when something may have changed
}

// item is one pending request. It is never changed, only replaced.
type item struct {
	approval.StoredPending
	since   int64 // the revision that added it
	removed int64 // the revision that removed it; 0: pending
}

const (
	maxRemoved     = 2000
	reloadDelay    = 5 * time.Second // every claim sends an event without a key
	reloadInterval = time.Minute     // because events can be lost
)

func (f *pendingCache) init() {
	f.items, f.dirty, f.reloadAll, f.changed = map[approval.Key]*item{}, map[approval.Key]bool{}, true, make(chan struct{})
}

// touch marks a key, or everything, to be read again.
func (f *pendingCache) touch(k approval.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case k == (approval.Key{}):
		f.reloadSoon = true
	case len(f.dirty) > maxRemoved:
		f.reloadAll = true
	default:
		f.dirty[k] = true
	}
	f.broadcast()
}

// wake wakes the subscribers although nothing changed.
func (f *pendingCache) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broadcast()
}

func (f *pendingCache) broadcast() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// subscribe returns a channel that is closed when something may have changed. A
// caller that subscribes before it reads misses no change.
func (f *pendingCache) subscribe() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// waiting updates the cache and returns its items, oldest first, with their
// revision.
func (s *Server) waiting(ctx context.Context) ([]*item, int64, error) {
	f := &s.cache
	f.loadMu.Lock()
	defer f.loadMu.Unlock()
	f.mu.Lock()
	age, dirty := s.Now().Sub(f.loadedAt), f.dirty
	all := f.reloadAll || f.reloadSoon && age >= reloadDelay || age >= reloadInterval
	f.reloadAll, f.reloadSoon, f.dirty = false, f.reloadSoon && !all, map[approval.Key]bool{}
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
		f.reloadAll = true // it is unknown which keys were read
		return nil, 0, err
	}
	list := slices.SortedFunc(maps.Values(f.items), func(a, b *item) int { return byAge(a.Pending, b.Pending) })
	return list, f.rev, nil
}

// byAge compares requests: the oldest is first.
func byAge(p, q *approval.Pending) int {
	return cmp.Or(p.Timestamp.Compare(q.Timestamp), strings.Compare(p.RequestID, q.RequestID))
}

func (s *Server) readAll(ctx context.Context) error {
	names := s.Workspaces()
	var found []approval.StoredPending
	if len(names) > 0 {
		var err error
		if found, err = s.Viewer.Waiting(ctx, names); err != nil {
			return err
		}
	}
	now := map[approval.Key]bool{}
	for _, w := range found {
		if d, err := s.Viewer.Decided(ctx, w); err == nil && d == nil {
			now[w.Key()] = true
			s.cache.put(w)
		}
	}
	s.cache.retain(now)
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	s.cache.loadedAt = s.Now()
	return nil
}

func (s *Server) readOne(ctx context.Context, k approval.Key) error {
	st, err := s.Viewer.Story(ctx, k)
	switch {
	case err != nil && st.Pending == nil:
		return err
	case err != nil, st.SHA256 == "", st.Decision != nil: // unreadable documents exist, so it is not waiting
		s.cache.drop(k)
	default:
		s.cache.put(approval.StoredPending{Pending: st.Pending, SHA256: st.SHA256})
	}
	return nil
}

func (f *pendingCache) put(w approval.StoredPending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.items[w.Key()]; old != nil && old.SHA256 == w.SHA256 {
		return
	}
	f.rev++
	f.items[w.Key()] = &item{w, f.rev, 0}
}

func (f *pendingCache) drop(k approval.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(k)
}

func (f *pendingCache) retain(now map[approval.Key]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.items {
		if !now[k] {
			f.remove(k)
		}
	}
}

// remove deletes an item. The caller holds the lock.
func (f *pendingCache) remove(k approval.Key) {
	i := f.items[k]
	if i == nil {
		return
	}
	delete(f.items, k)
	f.rev++
	p := &approval.Pending{RequestID: k.ID, SourceGroup: k.Workspace, Principal: i.Pending.Principal}
	f.removed = append(f.removed, item{approval.StoredPending{Pending: p, SHA256: i.SHA256}, i.since, f.rev})
	if len(f.removed) > maxRemoved {
		f.forgottenRev = f.removed[0].removed
		f.removed = f.removed[1:]
	}
}

// clear empties the cache while no page is open.
func (f *pendingCache) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items, f.dirty, f.reloadAll = map[approval.Key]*item{}, map[approval.Key]bool{}, true
	f.removed, f.forgottenRev = nil, f.rev
}

// removedBetween lists the items that existed at one revision and were removed up to
// another. known is false if the first is too old. What was removed after the second is
// listed the next time, and only then: a page removes a row once.
func (f *pendingCache) removedBetween(rev, to int64) (list []*item, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range f.removed {
		if i.since <= rev && rev < i.removed && i.removed <= to {
			list = append(list, &i)
		}
	}
	return list, rev >= f.forgottenRev
}

// filterVisible returns the items that the user may see.
func (s *Server) filterVisible(u User, rights Rights, list []*item) []*item {
	return slices.DeleteFunc(slices.Clone(list), func(i *item) bool { return !s.visible(u, rights, i.Pending) })
}

// visible hides requests that only another person may decide.
func (s *Server) visible(u User, rights Rights, p *approval.Pending) bool {
	ws := p.SourceGroup
	return slices.Contains(rights.See, ws) && (u.Operator && rights.Operator || s.People.May(u, ws, p))
}

// prerender keeps the rows of the list rendered while a session or a link exists.
func (s *Server) prerender(ctx context.Context) {
	for {
		moved := s.cache.subscribe()
		switch {
		case !s.configured() || !s.inUse():
			s.cache.clear()
			s.rowCache.clear()
		default:
			if list, _, err := s.waiting(ctx); err == nil {
				s.prerenderRows(list)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-moved:
		}
	}
}
