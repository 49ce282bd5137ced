package telegram

import (
	"sync"

	"github.com/permesso-dev/permesso/approval"
)

// locks is one lock for each request, for as long as somebody wants it.
type locks struct {
	mu   sync.Mutex
	held map[approval.Key]*lock
}

type lock struct {
	sync.Mutex
	users int
}

// take waits for the lock of k and returns what gives it back.
func (l *locks) take(k approval.Key) (release func()) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[approval.Key]*lock{}
	}
	m := l.held[k]
	if m == nil {
		m = &lock{}
		l.held[k] = m
	}
	m.users++
	l.mu.Unlock()
	m.Lock()
	return func() {
		m.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if m.users--; m.users == 0 {
			delete(l.held, k)
		}
	}
}
