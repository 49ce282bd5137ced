package httpapi

import (
	"sync"

	"github.com/permesso-dev/permesso/approval"
)

// hub wakes whoever waits for a request. It never says what happened: whoever is
// woken looks.
type hub struct {
	mu      sync.Mutex
	waiting map[approval.Key]*wait
}

type wait struct {
	woken   chan struct{}
	callers int
}

// join gives the channel that is closed at the next change of a key. Whoever
// joins before looking misses nothing. leave must be called.
func (h *hub) join(k approval.Key) (woken <-chan struct{}, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting == nil {
		h.waiting = map[approval.Key]*wait{}
	}
	w := h.waiting[k]
	if w == nil {
		w = &wait{woken: make(chan struct{})}
		h.waiting[k] = w
	}
	w.callers++
	return w.woken, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if w.callers--; w.callers == 0 && h.waiting[k] == w {
			delete(h.waiting, k)
		}
	}
}

// wake closes the channel of a key. The zero key is everybody's.
func (h *hub) wake(k approval.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k == (approval.Key{}) {
		for _, w := range h.waiting {
			close(w.woken)
		}
		clear(h.waiting)
		return
	}
	if w := h.waiting[k]; w != nil {
		close(w.woken)
		delete(h.waiting, k)
	}
}
