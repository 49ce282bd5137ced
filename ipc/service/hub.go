package service

import (
	"sync"

	"github.com/permesso-dev/permesso/approval"
)

// hub wakes callers that wait for a request. It does not say what happened: a woken
// caller reads the request.
type hub struct {
	mu      sync.Mutex
	waiting map[approval.Key]*wait
}

type wait struct {
	woken   chan struct{}
	callers int
}

// subscribe returns a channel that is closed at the next change of a key. A caller that
// subscribes before it reads misses no change. cancel must be called.
func (h *hub) subscribe(k approval.Key) (woken <-chan struct{}, cancel func()) {
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

// wake closes the channel of a key. The zero key wakes all callers.
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
