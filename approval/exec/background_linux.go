package exec

import (
	"sync"
	"time"
)

// background reads values that another process can hold up. The kernel reads a process's
// environment, and its memory in detail, only while that process is not changing its memory.
// One that was interrupted while it forks may have no CPU for a minute among thousands that
// compute. A reader waits as long, at any priority.
type background[K comparable, V any] struct {
	mu       sync.Mutex
	readings map[K]*reading[V]
	reading  int // those that are not done: each has a thread
}

// reading is a value that is being read. The channel is closed when it is there.
type reading[V any] struct {
	began time.Time
	done  chan struct{}
	value V
}

const (
	// kept is how long a value is kept that was not asked for since it was there.
	kept = time.Second
	// maxWaited is how many values are waited for, and maxReading how many are read at a time.
	maxWaited, maxReading = 8, 64
)

// get returns what read returns, if it does so soon. Otherwise it returns how long it has been
// waiting, and a later call with the same key returns the value. There is one reading at a time
// for each key.
func (b *background[K, V]) get(key K, read func() V) (value V, waited time.Duration) {
	r, wait := b.start(key, read)
	if r == nil {
		return value, 1
	}
	if wait {
		select {
		case <-r.done:
		case <-time.After(patience):
		}
	}
	select {
	case <-r.done:
		b.remove(key, r)
		return r.value, 0
	default:
		return value, max(time.Since(r.began), 1)
	}
}

// start returns the reading of a key, which it may start, and whether to wait for it; or nil if
// there are too many.
func (b *background[K, V]) start(key K, read func() V) (r *reading[V], wait bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.readings[key]; r != nil {
		return r, false
	}
	if b.reading == maxReading {
		return nil, false
	}
	if b.readings == nil {
		b.readings = map[K]*reading[V]{}
	}
	r = &reading[V]{began: time.Now(), done: make(chan struct{})}
	b.readings[key] = r
	b.reading++
	go func() {
		r.value = read()
		b.mu.Lock()
		b.reading--
		b.mu.Unlock()
		close(r.done)
		time.AfterFunc(kept, func() { b.remove(key, r) })
	}()
	return r, b.reading <= maxWaited
}

func (b *background[K, V]) remove(key K, r *reading[V]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.readings[key] == r {
		delete(b.readings, key)
	}
}
