package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
)

// A key that the gate refuses is not a key that is not set.
func TestRefusedKeyIsTold(t *testing.T) {
	t.Parallel()
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"detail":"Invalid API key"}`))
	}))
	t.Cleanup(gate.Close)
	v := newIncident(t, inFresh)
	v.env["PERMESSO_URL"], v.env["PERMESSO_KEY"] = gate.URL, "permesso_revoked"
	code, _, errs := v.run([]string{"request", "say"}, "")
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "the gate does not know the key in PERMESSO_KEY, or it was revoked")
	require.NotContains(t, errs, "set PERMESSO_KEY")

	code, _, errs = v.run([]string{"request"}, "")
	require.Equal(t, console.ExitUsage, code)
	require.Contains(t, errs, "request needs TOOL, --action-type or --question")
}

// An interrupted command says so, and nothing of the language's library.
func TestInterruptedCommand(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	code, errs := newTerminal(t).run(ctx, h, "pending")()
	require.Equal(t, console.ExitError, code)
	require.Equal(t, "permesso: interrupted\n", errs)
}

// A pause names the other pause because of which nothing runs, and resume what stays.
func TestPausesNameEachOther(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	h.must("pause", "--reason", "all of it")
	out := h.must("pause", "default")
	require.Contains(t, out, "paused: nothing runs until permesso resume default\n")
	require.Regexp(t, `also paused: everything, since .*: all of it: permesso resume\n`, out)

	var r struct {
		Ended  *struct{ Workspace string }
		Paused []struct{ Workspace string }
	}
	require.NoError(t, json.Unmarshal([]byte(h.must("resume", "--json")), &r))
	require.Equal(t, ipc.AllWorkspaces, r.Ended.Workspace)
	require.Len(t, r.Paused, 1)
	require.Equal(t, "default", r.Paused[0].Workspace)
	h.must("resume", "default")
	require.JSONEq(t, `{"ended":null,"paused":[]}`, h.must("resume", "--json"))
}

// A question's card names the command that answers it, and nothing that is true of actions only.
func TestShowQuestion(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	id := h.ask(`{"type":"question","title":"Which?","options":["main","next"]}`)
	h.awaitPending("default", id)
	out := h.must("show", id)
	require.Contains(t, out, "→ permesso answer "+id[:8]+" N|TEXT  /  permesso deny "+id[:8]+"\n")
	require.Contains(t, out, `2 "next"`)
	require.NotContains(t, out, "reply to this message")
	require.NotContains(t, out, "dangerous writes")
	h.must("answer", id, "2")
	h.response(id)
	out = h.must("show", id)
	require.Contains(t, out, "answer:   next")
	require.NotContains(t, out, "what:")
}

// An approved request that a pause holds is shown as decided.
func TestHeldByAPause(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	id, other := h.ask(`{"tool_name":"say","request_data":{"n":1}}`), h.ask(`{"tool_name":"say","request_data":{"n":2}}`)
	h.awaitPending("default", id)
	h.awaitPending("default", other)
	h.must("pause", "default")
	require.Contains(t, h.must("approve", id), "after permesso resume")

	require.Regexp(t, id[:8]+` .* · approved by operator:\S+, held by the pause\n`, h.must("pending"))
	var list []waitingItem
	require.NoError(t, json.Unmarshal([]byte(h.must("pending", "--json")), &list))
	for _, item := range list {
		require.Equal(t, item.RequestID == id, item.Decision != nil)
	}
	out := h.must("show", id)
	require.Regexp(t, `\ndecision: approved by operator:\S+; held by the pause until permesso resume default, or \d\d:\d\d:\d\d when it expires\n`, out)
	require.NotContains(t, out, "→ approve")
	require.Contains(t, h.must("show", other), "→ approve")
	require.Regexp(t, `"decision":\{"verdict":"approved",.*"held":true\}`, h.must("show", id, "--json"))
	require.Contains(t, h.must("status"), "default 1 pending, 1 held, 0 running")
	require.Regexp(t, id[:8]+` .*approved, held`, h.must("history"))
	code, _, errs := h.run("", "deny", id)
	require.Equal(t, console.ExitRefused, code)
	require.Regexp(t, `already decided: approved by .*; held by the pause until permesso resume default, or .* when it expires`, errs)

	h.must("resume", "default")
	h.response(id)
	require.Contains(t, h.must("status"), "default 1 pending, 0 running")
}

// A decision without a daemon is shown at once, and takes effect when it starts.
func TestDecidedWithoutADaemon(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	id := h.ask(`{"tool_name":"say"}`)
	h.awaitPending("default", id)
	d.stop()
	h.must("deny", id)
	require.Regexp(t, `denied by operator:\S+, takes effect when the daemon starts\n`, h.must("pending"))
	require.Regexp(t, `\ndecision: denied by operator:\S+; takes effect when the daemon starts\n`, h.must("show", id))
	code, out, errs := h.run("", "cancel", "--operator", id)
	require.Equal(t, console.ExitRefused, code)
	require.Regexp(t, `^already decided: denied by operator:\S+; takes effect when the daemon starts\n$`, out)
	require.NotContains(t, errs, "may still run")
}

// Who revokes a key learns what still waits, and the card says that the key is revoked.
func TestRevokedKeyLeavesRequests(t *testing.T) {
	t.Parallel()
	h := newRestRig(t)
	base := h.serve().apiURL()
	agent := &restClient{h, base, h.newKey()}
	for range 2 {
		status, a := agent.do("POST", "/v1/approvals", `{"tool_name":"say"}`)
		require.Equal(t, http.StatusCreated, status, a)
	}
	key := strings.Fields(h.must("key", "list"))[0]
	require.Equal(t, "revoked\nrequests of this key that still wait: 2; permesso pending lists them\n", h.must("key", "revoke", key))
	var list []waitingItem
	require.NoError(t, json.Unmarshal([]byte(h.must("pending", "--json")), &list))
	require.Len(t, list, 2)
	require.Regexp(t, `\nkey:      revoked at .* by `, h.must("show", list[0].RequestID))
}
