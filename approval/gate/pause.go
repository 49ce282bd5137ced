package gate

import "github.com/permesso-dev/permesso/approval"

// begin asks the brake and takes a place, before a claim. Where either says no
// the key is parked, and woken when it may try again.
func (g *Gate) beginClaim(k approval.Key, t approval.Tool) bool {
	if g.Pauses != nil && !g.Pauses.Enter(k.Workspace) {
		if b, ok := g.Pauses.(PauseFailure); ok && b.Failure() != nil {
			g.reportError(b.Failure())
		}
		g.addPaused(k)
		return false
	}
	if !g.takeSlot(k, t) {
		g.leavePause(k.Workspace)
		return false
	}
	return true
}

// forgo gives back all that was taken for a run that will not be: the brake, the
// room and the place.
func (g *Gate) releaseClaim(k approval.Key, t approval.Tool) {
	g.leavePause(k.Workspace)
	g.releaseReservation(k)
	g.releaseSlot(k, t)
}

// leave tells the brake that a claim is made, or was given up.
func (g *Gate) leavePause(ws string) {
	if g.Pauses != nil {
		g.Pauses.Leave(ws)
	}
}

// halt parks a key until Resumed. The pause may have ended between the look at
// it and the parking, so there is another look.
func (g *Gate) addPaused(k approval.Key) {
	g.mu.Lock()
	if !g.isPaused[k] { // a rescan wakes it as well
		g.isPaused[k] = true
		g.paused[k.Workspace] = append(g.paused[k.Workspace], k)
	}
	g.mu.Unlock()
	if g.Pauses.Enter(k.Workspace) {
		g.Pauses.Leave(k.Workspace)
		g.wakePaused(k.Workspace)
	}
}

func (g *Gate) keyPaused(k approval.Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isPaused[k]
}

// Resumed looks which workspaces are no longer paused, and wakes what was held
// there.
func (g *Gate) Resumed() {
	if g.Pauses == nil {
		return
	}
	g.mu.Lock()
	var names []string
	for ws := range g.paused {
		names = append(names, ws)
	}
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
	keys := g.paused[ws]
	delete(g.paused, ws)
	for _, k := range keys {
		delete(g.isPaused, k)
	}
	g.mu.Unlock()
	for _, k := range keys {
		g.Wake(k)
	}
}
