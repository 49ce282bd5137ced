package watcher

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Shared is one inotify instance for all that a process waits for at a time: an instance takes 64 KiB, and a user has few.
// It outlasts the last that waits by Idle, because to open and to close one takes longer than policy. The zero value is ready; nil is an
// instance for each.
type Shared struct {
	Idle time.Duration // 0: at once

	mu      sync.Mutex
	src     *source // nil: there is none
	waiting map[*waiting]struct{}
	idle    *time.Timer
}

// waiting is one that waits for the file at path. An event and an error are enough: each means "look".
type waiting struct {
	path   string
	events chan fsnotify.Event
	errors chan error
}

// Await is like the function of this name.
func (s *Shared) Await(ctx context.Context, path string, ready func() (bool, error)) error {
	if s == nil {
		return Await(ctx, path, ready)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("await %s: %w", path, err)
	}
	w := &waiting{path, make(chan fsnotify.Event, 1), make(chan error, 1)}
	src := &source{events: w.events, errors: w.errors, watches: s.join(w)}
	defer s.leave(w)
	return await(ctx, src, path, ready)
}

// join returns what watches for w, nil if inotify cannot be used.
func (s *Shared) join(w *waiting) watches {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.src == nil {
		src, err := openSource()
		if err != nil {
			return nil
		}
		s.src, s.waiting = src, map[*waiting]struct{}{}
		go s.tell(src)
	}
	s.waiting[w] = struct{}{}
	return s.src
}

func (s *Shared) leave(w *waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, w)
	switch {
	case len(s.waiting) > 0 || s.src == nil:
	case s.idle == nil:
		s.idle = time.AfterFunc(s.Idle, s.close)
	default:
		s.idle.Reset(s.Idle)
	}
}

// close closes the instance if none waits.
func (s *Shared) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 && s.src != nil {
		_ = s.src.close() // nothing waits for it
		s.src = nil
	}
}

// tell tells each what it waits for, until the source is closed.
func (s *Shared) tell(src *source) {
	for {
		var failed error
		var ev fsnotify.Event
		var open bool
		select {
		case ev, open = <-src.events:
			if !open {
				return
			}
		case failed = <-src.errors:
		}
		s.mu.Lock()
		for w := range s.waiting {
			switch {
			case failed != nil:
				offer(w.errors, failed)
			case ev.Name == w.path, ev.Name == filepath.Dir(w.path):
				offer(w.events, ev)
			}
		}
		s.mu.Unlock()
	}
}

// offer sends v, unless something is there to be received already.
func offer[T any](to chan T, v T) {
	select {
	case to <- v:
	default:
	}
}
