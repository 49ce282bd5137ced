package chat

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/grant"
)

// fakeGrants is a revoker with grants of two workspaces.
type fakeGrants struct {
	grants  []grant.Grant
	revoked []string
	by      approval.Person
	refuse  error
	late    bool // another person revoked first
	broken  error
}

func (a *fakeGrants) Given(p *approval.Pending, d *approval.Decision) *grant.Grant {
	return grant.From(p, d)
}

func (a *fakeGrants) Remembered(_ context.Context, workspaces []string) (list []grant.Grant, err error) {
	for _, g := range a.grants {
		for _, ws := range workspaces {
			if g.Workspace == ws {
				list = append(list, g)
			}
		}
	}
	return list, a.broken
}

func (a *fakeGrants) Revoke(_ context.Context, g grant.Grant, by approval.Person) (bool, error) {
	if a.refuse != nil {
		return false, a.refuse
	}
	a.revoked, a.by = append(a.revoked, g.ID), by
	return !a.late, nil
}

func newFakeGrants() *fakeGrants {
	until := time.Date(2027, 2, 19, 12, 0, 0, 0, time.UTC)
	action := approval.Terms{
		Form: grant.Action, Workspace: "personal", ClientID: "ws:personal", ActionType: "send_message",
	}
	elsewhere := action
	elsewhere.Workspace, elsewhere.ClientID = "other", "ws:other"
	path := approval.Terms{
		Form: grant.Target, Workspace: "personal", ClientID: "ws:personal", Tool: "write_file", ToolSHA256: "5e",
		TargetKind: "path_glob", Target: "/tmp/\u202ex",
	}
	return &fakeGrants{grants: []grant.Grant{
		{ID: cardID, Terms: action, ExpiresAt: until},
		{ID: "a7f3c0000000000a", Terms: path, ExpiresAt: until},
		{ID: "a7f3dddddddddddd", Terms: elsewhere, ExpiresAt: until},
	}}
}

func undoReply(a *fakeGrants, m Message) Reply {
	d := &fakeGate{waiting: []approval.StoredPending{waiting()}}
	m.From, m.Via = ann, "telegram"
	if m.Workspaces == nil {
		m.Workspaces = []string{"personal"}
	}
	ic := &Interceptor{Decider: d, Viewer: d}
	if a != nil {
		ic.Revoker = a
	}
	return ic.Handle(context.Background(), m)
}

func TestUndo(t *testing.T) {
	a := newFakeGrants()
	require.Equal(t, "Revoked: a7f3b2c1 (Always: every send_message that the agent does itself, but no tool, in personal, "+
		"until 2027-02-19). Such requests need approval again.", undoReply(a, Message{Text: "undo a7f3b2c1"}).Text)
	require.Equal(t, []string{cardID}, a.revoked)
	require.Equal(t, ann, a.by)
	require.Equal(t, `Revocato: a7f3c000 (Sempre: write_file su "/tmp/\u{202E}x" in personal, fino al 2027-02-19). `+
		"Richieste come questa vanno di nuovo approvate.", undoReply(a, Message{Text: "REVOKE a7f3c", Language: "it"}).Text)
	require.Len(t, a.revoked, 2)
}

func TestUndoNothing(t *testing.T) {
	nothing := "No grant to revoke for a7f3d, or it was already revoked."
	for _, tc := range []struct {
		why, text, says string
		ws              []string
		change          func(*fakeGrants)
	}{
		{"another workspace's", "undo a7f3d", nothing, nil, nil},
		{"two fit", "undo a7f3", "Several requests begin with a7f3: type more digits.", nil, nil},
		{"unauthorized", "undo a7f3b2c1", "You are not an approver here.", []string{}, nil},
		{"not an approver there", "undo a7f3b2c1", "You are not an approver here.", nil, func(a *fakeGrants) { a.refuse = &decide.Refusal{Reason: decide.ErrNotAuthorized} }},
		{"one word too many", "undo a7f3b2c1 now", "Not understood, nothing was decided.", nil, nil},
		{"a disk error", "undo a7f3b2c1", "do not rely on it", nil, func(a *fakeGrants) { a.broken = errors.New("disk") }},
	} {
		a := newFakeGrants()
		if tc.change != nil {
			tc.change(a)
		}
		r := undoReply(a, Message{Text: tc.text, Workspaces: tc.ws})
		require.Contains(t, r.Text, tc.says, tc.why)
		require.Empty(t, a.revoked, tc.why)
		require.Equal(t, a.broken != nil, r.Err != nil, tc.why)
	}
	late := newFakeGrants()
	late.late = true
	require.Contains(t, undoReply(late, Message{Text: "undo a7f3b2c1"}).Text, "or it was already revoked")
	require.Equal(t, "Undo is not available here. Run: permesso revoke a7f3", undoReply(nil, Message{Text: "undo a7f3"}).Text)
}

func TestConfirmationHasUndoHint(t *testing.T) {
	card := waiting()
	says := func(text, lang string) string {
		return undoReply(newFakeGrants(), Message{Text: text, Card: &card, Language: lang}).Text
	}
	require.Contains(t, says("6", ""), "12:11 UTC · Always: x_post to x.com/ricardo in personal, 90 days · "+
		"To undo: send undo a7f3b2c1 here, or run permesso revoke a7f3b2c1")
	require.Contains(t, says("2", ""), " · For this session: x_post to x.com/ricardo in personal · To undo: ")
	require.Contains(t, says("6", "it"), " · Sempre: x_post verso x.com/ricardo in personal, 90 giorni · "+
		"Per annullare: scrivi qui undo a7f3b2c1, oppure esegui permesso revoke a7f3b2c1")
	require.NotContains(t, says("3", ""), "ndo")
	require.NotContains(t, says("1", ""), "ndo", "no grant was given")
	card = waiting(func(p *approval.Pending) { p.Territory = "permanent" })
	require.NotContains(t, says("1", ""), "ndo", "a territory gives none")
}
