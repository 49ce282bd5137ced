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

func (g *Gate) wakeAll(keys []approval.Key) {
	for _, k := range keys {
		g.Wake(k)
	}
}

// Hint is Wake for events that our own writes may cause. It ignores those about a pending
// that the gate knows, and about a key that it settled a moment ago: a decision or a pending
// that another program puts there is found by a rescan.
func (g *Gate) Hint(k approval.Key, d approval.Doc) {
	if g.index.touchUnlessOurs(k, d) {
		g.enqueue(k)
	}
}

// Decided wakes a key that this process has decided. If the gate saw the decision's file, and
// has settled the key already, there is nothing left to do.
func (g *Gate) Decided(k approval.Key) { g.Hint(k, approval.DocDecision) }

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
