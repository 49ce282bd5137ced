package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// What runs nothing shows the card on a terminal, and asks.
func TestRepliesShowAndAsk(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	const question = `{"type":"question","title":"Which branch?","options":["main","next"]}`
	for _, row := range []struct {
		why, request string
		args         []string
		question     string
		status       approval.Status
	}{
		{"an answer", question, []string{"answer", "ID", "2"}, `Answer "next"? [y/N] `, approval.StatusAnswered},
		{"a change", `{"tool_name":"say"}`, []string{"change", "ID", "say", "less"}, `Send the agent the change "say less"? Nothing runs. [y/N] `, approval.StatusOverridden},
		{
			"a question to the agent",
			`{"tool_name":"say"}`,
			[]string{"ask", "ID", "who told you?"},
			"The facts do not answer that. Ask the agent, which ends the request? [y/N] ",
			approval.StatusRequestMore,
		},
	} {
		t.Run(row.why, func(t *testing.T) {
			for answer, code := range map[string]int{"n\n": console.ExitRefused, "y\n": 0} {
				id := h.ask(row.request)
				h.awaitPending("default", id)
				row.args[1] = id
				x := newTerminal(t)
				exit := x.run(t.Context(), h, row.args...)
				x.awaitText(row.question)
				h.requireUndecided(id)
				card, _, _ := strings.Cut(x.String(), row.question)
				require.Contains(t, card, id[:8], "the card comes first")
				require.Equal(t, row.status == approval.StatusAnswered, strings.Contains(card, `2 "next"`), "a question's options, and no codes of an action")
				require.NotContains(t, card, "3 deny")
				x.press(answer)
				got, errs := exit()
				require.Equal(t, code, got, errs)
				if code == 0 {
					require.Equal(t, row.status, h.response(id).Status)
					continue
				}
				require.Equal(t, "permesso: nothing was decided\n", errs)
				h.requireUndecided(id)
			}
		})
	}
}

// What was decided while the list was on the screen is told, and is no error.
func TestDenyAllTellsWhatWasDecidedMeanwhile(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	first, second := h.ask(`{"tool_name":"say","request_data":{"n":1}}`), h.ask(`{"tool_name":"say","request_data":{"n":2}}`)
	h.awaitPending("default", first)
	h.awaitPending("default", second)
	x := newTerminal(t)
	exit := x.run(t.Context(), h, "deny", "--all", "--workspace", "default", "enough")
	x.awaitText("Deny these 2 requests? [y/N] ")
	require.Contains(t, x.String(), first[:8])
	require.Contains(t, x.String(), second[:8])
	code, _, errs := h.run("", "deny", first)
	require.Zero(t, code, errs)
	h.response(first)
	later := h.ask(`{"tool_name":"say","request_data":{"n":3}}`)
	h.awaitPending("default", later)
	x.press("y\n")
	code, errs = exit()
	require.Zero(t, code, errs)
	x.awaitText(first[:8] + ": already decided: denied by operator:")
	x.awaitText("denied 1 of 2\n")
	require.Equal(t, approval.StatusDenied, h.response(second).Status)
	require.FileExists(t, filepath.Join(h.layout.Pendings("default"), later+".json"), "it was not listed")
}
