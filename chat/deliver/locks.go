package deliver

import (
	"sync"

	"github.com/permesso-dev/permesso/approval"
)

// locks is a lock for each request, in memory only while in use.
type locks struct {
	mu    sync.Mutex
	locks map[approval.Key]*lock
}

type lock struct {
	sync.Mutex
	users int
}

// acquire waits for the lock of k and returns its release.
func (l *locks) acquire(k approval.Key) (release func()) {
	l.mu.Lock()
	if l.locks == nil {
		l.locks = map[approval.Key]*lock{}
	}
	m := l.locks[k]
	if m == nil {
		m = &lock{}
		l.locks[k] = m
	}
	m.users++
	l.mu.Unlock()
	m.Lock()
	return func() {
		m.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if m.users--; m.users == 0 {
			delete(l.locks, k)
		}
	}
}
