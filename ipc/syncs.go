package ipc

import (
	"os"
	"sync"
	"sync/atomic"

	"github.com/spf13/afero"
)

const writeNew = os.O_WRONLY | os.O_CREATE | os.O_EXCL

// crowd is how many syncs must be under way before one syncfs serves them all:
// below it each fsync is cheaper and says more about its own file. Every sync
// ends in a commit of the file system's journal, and commits wait for one
// another, so that in a crowd the fewest commits win.
const crowd = 4

// sharedSyncs lets writes that are under way together share their syncs. A
// sync that began before a write was made does not count for it: whoever comes
// while one is running waits for the next.
type sharedSyncs struct {
	under atomic.Int32
	whole shared
	mu    sync.Mutex
	dirs  map[string]*shared
}

// file makes f's data durable. In a crowd one syncfs serves everybody.
func (s *sharedSyncs) file(f afero.File, whole func() error) error {
	n := s.under.Add(1)
	defer s.under.Add(-1)
	if n < crowd {
		return f.Sync()
	}
	return s.whole.do(whole)
}

// dir makes a folder's names durable, with everybody who waits for the same.
func (s *sharedSyncs) dir(name string, sync, whole func() error) error {
	n := s.under.Add(1)
	defer s.under.Add(-1)
	if n >= crowd {
		return s.whole.do(whole)
	}
	s.mu.Lock()
	if s.dirs == nil {
		s.dirs = map[string]*shared{}
	}
	d := s.dirs[name]
	if d == nil {
		d = &shared{}
		s.dirs[name] = d
	}
	s.mu.Unlock()
	return d.do(sync)
}

// shared runs one function at a time for everybody who asked before it began.
type shared struct {
	mu   sync.Mutex
	next *turn // of those who wait for one that has not begun
	busy bool
}

type turn struct {
	done chan struct{}
	err  error
}

// do runs f, or waits until somebody else has: always one that begins after do was
// called.
func (s *shared) do(f func() error) error {
	s.mu.Lock()
	if s.busy {
		if s.next == nil {
			s.next = &turn{done: make(chan struct{})}
		}
		t := s.next
		s.mu.Unlock()
		<-t.done
		return t.err
	}
	s.busy = true
	s.mu.Unlock()
	err := f()
	if t := s.follow(); t != nil {
		go s.serve(t, f)
	}
	return err
}

// serve runs one turn after the other without a pause, as long as somebody waits.
func (s *shared) serve(t *turn, f func() error) {
	for ; t != nil; t = s.follow() {
		t.err = f()
		close(t.done)
	}
}

// follow takes the turn that comes next, and is nil where nobody waits.
func (s *shared) follow() *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.next
	s.next, s.busy = nil, t != nil
	return t
}
