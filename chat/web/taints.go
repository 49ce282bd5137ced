package web

import (
	"net/http"
	"slices"

	"github.com/permesso-dev/permesso/approval"
)

// clearTaints clears what the agent of a pending request has read. The request stays
// pending; later ones are judged anew.
func (v *visit) clearTaints() {
	k := approval.Key{Workspace: v.r.PathValue("ws"), ID: v.r.PathValue("id")}
	p, err := v.loadRequest(k)
	switch {
	case err != nil:
		v.internalError(err)
		return
	case p == nil:
		v.fail(http.StatusNotFound, v.w.RequestNotFound)
		return
	case !p.MayClear:
		v.fail(http.StatusForbidden, v.w.NotAllowed)
		return
	}
	if err := v.Backend.ClearTaints(v.r.Context(), v.se.user, k.Workspace, p.Pending.SessionID); err != nil {
		v.internalError(err)
		return
	}
	v.redirectWithNote(pathOf(k), note{text: v.w.TaintsCleared, Acted: true})
}

// clearWorkspaceTaints clears the taints of one session of a workspace, or of all ("").
func (v *visit) clearWorkspaceTaints() {
	ws, ok := formValue(v.r, "ws")
	session, ok2 := formValue(v.r, "session")
	switch {
	case !ok || !ok2:
		v.fail(http.StatusBadRequest, v.w.BadForm)
		return
	case !v.mayClear(ws):
		v.fail(http.StatusForbidden, v.w.NotAllowed)
		return
	}
	if err := v.Backend.ClearTaints(v.r.Context(), v.se.user, ws, session); err != nil {
		v.internalError(err)
		return
	}
	v.redirectWithNote("workspaces", note{text: v.w.TaintsCleared, Acted: true})
}

// isTainted reports whether clearing the taints would change the ruling.
func isTainted(p *approval.Pending) bool {
	return slices.ContainsFunc(p.Ruling.Change, func(r approval.Reason) bool { return r.Code == "clear_taints" })
}

// mayClear reports whether the user may clear taints: the operator, where they may decide.
func (v *visit) mayClear(ws string) bool {
	return v.Backend.ClearTaints != nil && v.rights.Operator && slices.Contains(v.rights.Decide, ws)
}
