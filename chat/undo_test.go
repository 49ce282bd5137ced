package chat

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// attic is what is remembered, of two workspaces.
type attic struct {
	grants  []approval.Grant
	revoked []string
	by      approval.Person
	refuse  error
	late    bool // somebody else was first
	broken  error
}

func (a *attic) Given(p *approval.Pending, d *approval.Decision) *approval.Grant {
	if d.Verdict != approval.Approved || p.Territory != "permanent" {
		return nil
	}
	return &approval.Grant{ID: p.RequestID}
}

func (a *attic) Remembered(_ context.Context, workspaces []string) (list []approval.Grant, err error) {
	for _, g := range a.grants {
		for _, ws := range workspaces {
			if g.Workspace == ws {
				list = append(list, g)
			}
		}
	}
	return list, a.broken
}

func (a *attic) Revoke(_ context.Context, g approval.Grant, by approval.Person) (bool, error) {
	if a.refuse != nil {
		return false, a.refuse
	}
	a.revoked, a.by = append(a.revoked, g.ID), by
	return !a.late, nil
}

func remembered() *attic {
	return &attic{grants: []approval.Grant{
		{ID: cardID, Workspace: "personal", Kind: approval.GrantRule, ActionType: "send_message"},
		{ID: "a7f3c0000000000a", Workspace: "personal", Kind: approval.GrantTarget, Capability: "fs:write", Target: "/tmp/\u202ex"},
		{ID: "a7f3dddddddddddd", Workspace: "other", Kind: approval.GrantRule, ActionType: "send_message"},
	}}
}

func undoing(a *attic, m Message) Reply {
	d := &desk{waiting: []approval.Waiting{waiting()}}
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
	a := remembered()
	require.Equal(t, "Taken back: a7f3b2c1 (send_message). From now on it is asked again.", undoing(a, Message{Text: "undo a7f3b2c1"}).Text)
	require.Equal(t, []string{cardID}, a.revoked)
	require.Equal(t, ann, a.by)
	require.Equal(t, `Revocato: a7f3c000 (fs:write /tmp/\u{202E}x). D'ora in poi si chiede di nuovo.`, undoing(a, Message{Text: "REVOKE a7f3c", Language: "it"}).Text)
	require.Len(t, a.revoked, 2)
}

func TestUndoNothing(t *testing.T) {
	nothing := "Nothing of yours is remembered under a7f3d, or it was taken back before."
	for _, tc := range []struct {
		why, text, says string
		ws              []string
		change          func(*attic)
	}{
		{"another workspace's", "undo a7f3d", nothing, nil, nil},
		{"two fit", "undo a7f3", "Several requests begin with a7f3: type more digits.", nil, nil},
		{"a stranger", "undo a7f3b2c1", "Nothing here for you.", []string{}, nil},
		{"who may not decide there", "undo a7f3b2c1", "Nothing here for you.", nil, func(a *attic) { a.refuse = &approval.Refusal{Reason: approval.ErrNotAuthorized} }},
		{"one too many", "undo a7f3b2c1 now", "Unclear, nothing was decided.", nil, nil},
		{"the disk", "undo a7f3b2c1", "do not count on it", nil, func(a *attic) { a.broken = errors.New("disk") }},
	} {
		a := remembered()
		if tc.change != nil {
			tc.change(a)
		}
		r := undoing(a, Message{Text: tc.text, Workspaces: tc.ws})
		require.Contains(t, r.Text, tc.says, tc.why)
		require.Empty(t, a.revoked, tc.why)
		require.Equal(t, a.broken != nil, r.Err != nil, tc.why)
	}
	late := remembered()
	late.late = true
	require.Contains(t, undoing(late, Message{Text: "undo a7f3b2c1"}).Text, "or it was taken back before")
	require.Equal(t, "Not here: permesso revoke a7f3", undoing(nil, Message{Text: "undo a7f3"}).Text)
}

func TestConfirmationSaysHowToUndo(t *testing.T) {
	card := waiting(func(p *approval.Pending) { p.Territory = "permanent" })
	says := func(text, lang string) string {
		return undoing(remembered(), Message{Text: text, Card: &card, Language: lang}).Text
	}
	require.Contains(t, says("6", ""), "not at all · Undo: write undo a7f3b2c1 here, or permesso revoke a7f3b2c1")
	require.Contains(t, says("6", "it"), " · Per annullare: scrivi qui undo a7f3b2c1, oppure permesso revoke a7f3b2c1")
	require.NotContains(t, says("3", ""), "ndo")
	card = waiting()
	require.NotContains(t, says("1", ""), "ndo", "nothing is remembered of it")
}
