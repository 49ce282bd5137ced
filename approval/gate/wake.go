package gate

import (
	"github.com/permesso-dev/permesso/approval"
)

// Wake queues a key whose documents may have changed. It never blocks. Waking a key
// twice has the effect of once.
func (g *Gate) Wake(k approval.Key) {
	g.index.touch(k)
	g.enqueue(k)
}

// Hint is Wake for events that our own writes may cause. It ignores the event of a
// pending that the gate has just written, and events during a key's cooldown.
func (g *Gate) Hint(k approval.Key, d approval.Doc) {
	if d == approval.DocPending && g.index.isOwnEvent(k, g.Now()) {
		return
	}
	if g.index.touchUnlessCooling(k) {
		g.enqueue(k)
	}
}

func (g *Gate) enqueue(k approval.Key) {
	if !approval.ValidName(k.ID) {
		return
	}
	q := &g.sched
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.busy[k]:
		q.rewake[k] = true
	case !q.queued[k]:
		q.push(k)
	}
}
