package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/chat/messagestest"
	"github.com/permesso-dev/permesso/chat/tui"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

func TestEveryMessageOfThePagesIsReadAndWritten(t *testing.T) {
	messagestest.RequireKeys[pageMessages](t, "../../chat/messages", "tui_pages")
}

// newPagesOf is the gate of a terminal UI, and its pages by name.
func newPagesOf(h *rig) (*tuiGate, map[string]tui.Page) {
	g := newTUIGate(&app{&console.Console{Out: io.Discard, Err: io.Discard, ConfigFlag: h.config, HomeFlag: h.layout.Home, Env: func(name string) string {
		return map[string]string{"HOME": h.dir, "XDG_RUNTIME_DIR": h.dir}[name]
	}}})
	pages := map[string]tui.Page{}
	for _, p := range g.pages() {
		pages[p.Name] = p
	}
	return g, pages
}

// itemWith loads a page, and returns its one item with a text.
func itemWith(t *testing.T, p tui.Page, text string) tui.Item {
	t.Helper()
	items, err := p.Load(t.Context())
	require.NoError(t, err)
	var found []tui.Item
	for _, i := range items {
		if strings.Contains(i.Text, text) {
			found = append(found, i)
		}
	}
	require.Len(t, found, 1, "%q in %v", text, items)
	return found[0]
}

func act(t *testing.T, p tui.Page, i tui.Item) string {
	t.Helper()
	text, err := p.Act(t.Context(), i)
	require.NoError(t, err)
	return text
}

// The pages show what the commands print, with a daemon and without one, and change it.
func TestPagesOfTheTerminalUI(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", clearConfig+`[tools.dates]
capability = "calendar:read"
handler = { kind = "command", argv = ["/bin/echo", "May 5"] }
`)
	d := h.serve()
	g, pages := newPagesOf(h)

	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(`{"tool_name":"inbox"}`)).Status)
	id := h.ask(`{"tool_name":"dates"}`)
	h.awaitPending("default", id)
	require.Contains(t, itemWith(t, pages["history"], " · dates").Text, " · pending · ")
	require.Contains(t, itemWith(t, pages["history"], " · inbox").Text, " · auto_approved · ")
	asked := itemWith(t, pages["history"], " · dates")
	st, _, err := g.Story(t.Context(), itemWith(t, pages["history"], " · inbox").Open)
	require.NoError(t, err)
	require.Equal(t, "inbox", st.Pending.ToolName, "policy decided, and its card can be shown")

	st, _, err = g.Story(t.Context(), asked.Open)
	require.NoError(t, err)
	_, err = g.Decide(t.Context(), decide.Input{Key: asked.Open, PendingSHA256: st.SHA256, Verdict: approval.Approved, Scope: approval.Always})
	require.NoError(t, err)
	h.response(id)
	code, printed, errs := h.run("", "grants")
	require.Zero(t, code, errs)
	i := itemWith(t, pages["grants"], "Always: ")
	require.Equal(t, strings.TrimSpace(printed), i.Text)
	require.Contains(t, i.Question, "Revoke this grant? Such requests need approval again. Always: dates with any arguments in default, until ")
	require.Equal(t, "Revoked.", act(t, pages["grants"], i))
	require.Equal(t, "It was revoked before.", act(t, pages["grants"], i))
	require.Empty(t, itemWith(t, pages["grants"], "revoked").Question)

	i = itemWith(t, pages["taints"], "default (")
	require.Contains(t, i.Question, "Forget what was read in default?")
	require.Contains(t, act(t, pages["taints"], i), "Cleared: default had ")
	require.Empty(t, itemWith(t, pages["taints"], "no taint").Question)

	pauses := pages["pauses"]
	require.Equal(t, "Paused.", act(t, pauses, itemWith(t, pauses, "default: not paused")))
	i = itemWith(t, pauses, "default: ⏸ paused since ")
	require.Equal(t, "Resume default? What was approved there starts.", i.Question)
	require.Equal(t, "Pause everything? Nothing starts until it is resumed.", itemWith(t, pauses, "everything: not paused").Question)
	require.Equal(t, "Paused.", act(t, pauses, itemWith(t, pauses, "everything: ")))
	require.Equal(t, "Resumed.", act(t, pauses, i))
	require.Equal(t, "Pause default? Nothing starts there until it is resumed.", itemWith(t, pauses, "default: ⏸").Question, "it is paused with everything")
	require.Equal(t, "It was not paused.", act(t, pauses, i))

	d.stop()
	i = itemWith(t, pauses, "everything: ⏸")
	require.Equal(t, "Resumed.", act(t, pauses, i))
	itemWith(t, pauses, "everything: not paused")
	require.Contains(t, itemWith(t, pages["history"], " · dates").Text, " · approved · ")
}

// The log has who saw a secret before it is shown.
func TestRevealOfTheTerminalUI(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", clearConfig)
	h.serve()
	g, _ := newPagesOf(h)
	id := h.ask(`{"tool_name":"post","request_data":{"text":"ghp_0123456789abcdefghijABCDEFGHIJ012345"}}`)
	h.awaitPending("default", id)
	k := approval.Key{Workspace: "default", ID: id}
	w, err := g.Reveal(t.Context(), k)
	require.NoError(t, err)
	st, _, err := g.Story(t.Context(), k)
	require.NoError(t, err)
	require.Equal(t, st.SHA256, w.SHA256)
	code, log, errs := h.run("", "audit", "tail")
	require.Zero(t, code, errs)
	require.Contains(t, log, "revealed")
}
