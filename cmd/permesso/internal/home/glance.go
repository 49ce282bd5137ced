package home

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc"
)

// Glance is what waits, for one line: by the names and times of files. Nothing is locked, replayed or verified for it.
type Glance struct {
	Waiting int       `json:"waiting"`            // without a decision
	Oldest  time.Time `json:"oldest_at,omitzero"` // zero if nothing waits
	Paused  bool      `json:"paused"`             // a workspace, or all
	Daemon  string    `json:"daemon"`
}

// Values of Glance.Daemon.
const (
	DaemonUp     = "up"
	DaemonDown   = "down"
	DaemonSilent = "silent" // it has given no sign of life for a while
)

// Glance counts in the workspaces that sees returns true for. may reports whether a request counts; nil: all.
func (h *Home) Glance(ctx context.Context, sees func(ws string) bool, may func(approval.Key) bool) (Glance, error) {
	g := Glance{Daemon: h.daemonState(time.Now())}
	pauses, err := h.Store.Pauses()
	if err != nil {
		return g, err
	}
	for _, p := range pauses {
		g.Paused = g.Paused || p.Workspace == ipc.AllWorkspaces || sees(p.Workspace)
	}
	names, err := h.Store.Workspaces(ctx)
	if err != nil {
		return g, err
	}
	for _, ws := range names {
		if !sees(ws) {
			continue
		}
		if err := h.addWaiting(ctx, &g, ws, may); err != nil {
			return g, err
		}
	}
	return g, nil
}

func (h *Home) addWaiting(ctx context.Context, g *Glance, ws string, may func(approval.Key) bool) error {
	decided := map[string]bool{}
	for _, d := range []approval.Doc{approval.DocDecision, approval.DocClaim} {
		ids, _, err := h.Store.List(ctx, d, ws)
		if err != nil {
			return err
		}
		for _, id := range ids {
			decided[id] = true
		}
	}
	ids, _, err := h.Store.List(ctx, approval.DocPending, ws)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if decided[id] || may != nil && !may(approval.Key{Workspace: ws, ID: id}) {
			continue
		}
		info, err := os.Lstat(filepath.Join(h.Layout.Pendings(ws), id+".json"))
		if err != nil {
			continue // it has ended meanwhile
		}
		g.Waiting++
		if at := info.ModTime().UTC(); g.Oldest.IsZero() || at.Before(g.Oldest) {
			g.Oldest = at
		}
	}
	return nil
}

// daemonState tells whether a daemon runs. It touches the lock only if the process of the last report exists: another
// process may have its PID.
func (h *Home) daemonState(now time.Time) string {
	r := h.HealthAt(now)
	if r.PID == 0 {
		return DaemonDown
	}
	switch served, err := h.Served(); {
	case err == nil && !served:
		return DaemonDown
	case now.Sub(r.UpdatedAt) > maxReportAge:
		return DaemonSilent
	}
	return DaemonUp
}
