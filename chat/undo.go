package chat

import (
	"context"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// howToUndo stands behind an approval that is remembered.
func (t turn) howToUndo(d *approval.Decision, w *approval.Waiting) string {
	if w == nil || t.Revoker == nil {
		return ""
	}
	g := t.Revoker.Given(w.Pending, d)
	if g == nil {
		return ""
	}
	return say(t.undoHere, "id", Escape(approval.ShortID(g.ID)))
}

// undo takes back the one consent that the typed digits fit. Only what belongs
// to the workspaces that this chat serves the person is looked at.
func (t turn) undo(ctx context.Context, prefix string) Reply {
	nothing := Reply{Text: say(t.nothingToUndo, "id", prefix)}
	if t.Revoker == nil {
		return Reply{Text: say(t.undoElsewhere, "id", prefix)}
	}
	all, err := t.Revoker.Remembered(ctx, t.Workspaces)
	if err != nil {
		return Reply{Text: t.unconfirmed, Err: err}
	}
	var fit []approval.Grant
	for _, g := range all {
		if strings.HasPrefix(g.ID, prefix) && g.RevokedAt.IsZero() {
			fit = append(fit, g)
		}
	}
	switch {
	case len(fit) == 0:
		return nothing
	case len(fit) > 1:
		return Reply{Text: say(t.ambiguous, "id", prefix)}
	}
	done, err := t.Revoker.Revoke(ctx, fit[0], t.From)
	switch {
	case err != nil:
		return t.refused(err, fit[0].Workspace)
	case !done:
		return nothing
	}
	return Reply{Text: say(t.undone, "what", t.consent(fit[0]))}
}

// consent names what was remembered.
func (t turn) consent(g approval.Grant) string {
	r := t.style.renderer(&approval.Pending{})
	what := g.ActionType
	if g.Kind == approval.GrantTarget {
		what = strings.TrimSpace(g.Capability + " " + g.Target)
	}
	return Escape(approval.ShortID(g.ID)) + " (" + r.short(what) + ")"
}
