package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
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
