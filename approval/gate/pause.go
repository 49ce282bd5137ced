package gate

import (
	"maps"
	"math"
	"slices"

	"github.com/permesso-dev/permesso/approval"
)

// beginClaim enters the pause guard and takes a handler slot, before a claim. If it
// cannot, it queues the key, releases the reserved space, and returns false. The key is
// woken when it may try again.
func (g *Gate) beginClaim(k approval.Key, t approval.Tool) bool {
	switch {
	case g.Pauses != nil && !g.Pauses.Enter(k.Workspace):
		g.addPaused(k)
	case !g.takeSlot(k, t):
		g.leavePause(k.Workspace)
	default:
		return true
	}
	g.releaseReservation(k)
	return false
}

// releaseClaim releases the pause guard, the reserved space and the slot of a run
// that will not start.
func (g *Gate) releaseClaim(k approval.Key, t approval.Tool) {
	g.leavePause(k.Workspace)
	g.releaseReservation(k)
	g.releaseSlot(k, t)
}

// leavePause tells the pause guard that a claim was written or given up.
func (g *Gate) leavePause(ws string) {
	if g.Pauses != nil {
		g.Pauses.Leave(ws)
	}
}

// addPaused queues a key until Resumed. The pause may have ended before the key was
// queued, so it checks again.
func (g *Gate) addPaused(k approval.Key) {
	g.mu.Lock()
	g.limitsLocked(k.Workspace).paused.add(k)
	g.mu.Unlock()
	if g.Pauses.Enter(k.Workspace) {
		g.Pauses.Leave(k.Workspace)
		g.wakePaused(k.Workspace)
	}
}

func (g *Gate) keyPaused(k approval.Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.rates[k.Workspace]
	return r != nil && r.paused.has[k]
}

// Resumed wakes the keys of workspaces that are no longer paused.
func (g *Gate) Resumed() {
	if g.Pauses == nil {
		return
	}
	g.mu.Lock()
	names := slices.Collect(maps.Keys(g.rates))
	names = slices.DeleteFunc(names, func(ws string) bool { return len(g.rates[ws].paused.keys) == 0 })
	g.mu.Unlock()
	for _, ws := range names {
		if g.Pauses.Enter(ws) {
			g.Pauses.Leave(ws)
			g.wakePaused(ws)
		}
	}
}

func (g *Gate) wakePaused(ws string) {
	g.mu.Lock()
	keys := g.limitsLocked(ws).paused.take(math.MaxInt)
	g.mu.Unlock()
	g.wakeAll(keys)
}
