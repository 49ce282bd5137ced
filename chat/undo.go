package chat

import (
	"context"
	"slices"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
)

// undoHint says what an approval gave for later requests, and how to revoke it.
func (t replier) undoHint(d *approval.Decision, w *approval.StoredPending) string {
	if w == nil || t.Revoker == nil {
		return ""
	}
	g := t.Revoker.Given(w.Pending, d)
	if g == nil {
		return ""
	}
	hint := " · " + t.style.Given(w.Pending, g)
	if !t.Buttons {
		hint += Format(t.UndoHere, "id", Escape(approval.ShortID(g.ID)))
	}
	return hint
}

// undo revokes the one grant whose id begins with the prefix, among the workspaces
// that this chat serves the person.
func (t replier) undo(ctx context.Context, prefix string) Reply {
	nothing := Reply{Text: Format(t.NothingToUndo, "id", prefix)}
	if t.Revoker == nil {
		return Reply{Text: Format(t.UndoElsewhere, "id", prefix)}
	}
	all, err := t.Revoker.Remembered(ctx, t.Workspaces)
	if err != nil {
		return Reply{Text: t.Unconfirmed, Err: err}
	}
	fit := slices.DeleteFunc(slices.Clone(all), func(g grant.Grant) bool { return !approval.BeginsID(g.ID, prefix) || !g.RevokedAt.IsZero() })
	switch {
	case len(fit) == 0:
		return nothing
	case len(fit) > 1:
		return Reply{Text: Format(t.Ambiguous, "id", prefix)}
	}
	done, err := t.Revoker.Revoke(ctx, fit[0], t.From)
	switch {
	case err != nil:
		return t.refusalReply(err, fit[0].Workspace)
	case !done:
		return nothing
	}
	return Reply{Text: Format(t.Undone, "what", t.grantText(fit[0]))}
}

// grantText names a grant.
func (t replier) grantText(g grant.Grant) string {
	return Escape(approval.ShortID(g.ID)) + " (" + t.style.Grant(&g) + ")"
}
