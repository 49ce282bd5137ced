package ipc

import (
	"os"
	"sync"
	"sync/atomic"

	"github.com/spf13/afero"
)

const writeNew = os.O_WRONLY | os.O_CREATE | os.O_EXCL

// syncFSThreshold is the number of concurrent syncs from which one syncfs serves them
// all. Below it each fsync is cheaper, and its error belongs to its own file. Every sync
// ends in a commit of the file system's journal, and commits wait for one another: with
// many syncs the fewest commits are fastest.
const syncFSThreshold = 4

// sharedSyncs lets concurrent writes share their syncs. A sync that began before a write
// does not cover it: a caller that comes while one is running waits for the next.
type sharedSyncs struct {
	running atomic.Int32
	all     coalescer
	mu      sync.Mutex
	dirs    map[string]*coalescer
}

// file makes f's data durable. With many concurrent syncs one syncfs serves all.
func (s *sharedSyncs) file(f afero.File, syncAll func() error) error {
	n := s.running.Add(1)
	defer s.running.Add(-1)
	if n < syncFSThreshold {
		return f.Sync()
	}
	return s.all.do(syncAll)
}

// dir makes a folder's names durable, in one sync for all callers that wait for it.
func (s *sharedSyncs) dir(name string, sync, syncAll func() error) error {
	n := s.running.Add(1)
	defer s.running.Add(-1)
	if n >= syncFSThreshold {
		return s.all.do(syncAll)
	}
	s.mu.Lock()
	if s.dirs == nil {
		s.dirs = map[string]*coalescer{}
	}
	d := s.dirs[name]
	if d == nil {
		d = &coalescer{}
		s.dirs[name] = d
	}
	s.mu.Unlock()
	return d.do(sync)
}

// coalescer runs a function, one at a time, for all callers that called before it began.
type coalescer struct {
	mu     sync.Mutex
	next   *batch // callers of a run that has not begun
	newest *batch // the last that was made
}

type batch struct {
	done chan struct{}
	err  error
}

// do runs f, or waits for a run by another caller that begins after do was called. The
// first caller of a run runs it, once the one before has ended.
func (s *coalescer) do(f func() error) error {
	s.mu.Lock()
	t, before := s.next, s.newest
	if t != nil {
		s.mu.Unlock()
		<-t.done
		return t.err
	}
	t = &batch{done: make(chan struct{})}
	s.next, s.newest = t, t
	s.mu.Unlock()
	if before != nil {
		<-before.done
	}
	s.mu.Lock()
	s.next = nil // a later caller needs another run
	s.mu.Unlock()
	t.err = f()
	close(t.done)
	return t.err
}
