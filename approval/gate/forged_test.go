package gate_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/seal"
)

// writeDoc writes a file like a host program that does not have the MAC key.
func (h *rig) writeDoc(d approval.Doc, k approval.Key, body string) {
	require.NoError(h.t, h.store.Commit(context.Background(), volatile(d, k, []byte(body))))
}

// Every file in the slot that is not a decision of this pending is described and
// removed. The request stays pending.
func TestForgedDecisions(t *testing.T) {
	otherKey, err := seal.LoadOrCreate(ipc.OS(), t.TempDir())
	require.NoError(t, err)
	encode := func(h *rig, k approval.Key, change func(*approval.Decision)) []byte {
		d := &approval.Decision{
			Version: 1, RequestID: k.ID, Approved: true, Verdict: approval.Approved, Scope: approval.Once,
			PendingSHA256: approval.Digest(h.read(approval.DocPending, k)), DecidedBy: "mallory", DecidedByID: "local:0", Via: "cli",
			DecidedAt: h.clock.now().UTC(), RunBefore: h.clock.now().Add(time.Hour).UTC(),
		}
		if change != nil {
			change(d)
		}
		b, err := d.Encode()
		require.NoError(t, err)
		return b
	}
	for name, forge := range map[string]func(h *rig, k approval.Key) string{
		"as the predecessor wrote it": func(_ *rig, k approval.Key) string {
			return `{"request_id":"` + k.ID + `","approved":true,"decided_by":"ann","decided_at":"2026-01-02T03:04:05Z"}`
		},
		"no JSON":        func(*rig, approval.Key) string { return "approve" },
		"nothing":        func(*rig, approval.Key) string { return "" },
		"without a seal": func(h *rig, k approval.Key) string { return string(encode(h, k, nil)) },
		"another's seal": func(h *rig, k approval.Key) string {
			return string(otherKey.Seal(approval.DocDecision, k, encode(h, k, nil)))
		},
		"a pending's": func(h *rig, k approval.Key) string {
			return string(h.key.Seal(approval.DocPending, k, encode(h, k, nil)))
		},
		"another request": func(h *rig, k approval.Key) string {
			return string(h.key.Seal(approval.DocDecision, key(99), encode(h, k, nil)))
		},
		"another workspace": func(h *rig, k approval.Key) string {
			return string(h.key.Seal(approval.DocDecision, approval.Key{Workspace: other, ID: k.ID}, encode(h, k, nil)))
		},
		"another pending": func(h *rig, k approval.Key) string {
			return string(h.key.Seal(approval.DocDecision, k, encode(h, k, func(d *approval.Decision) { d.PendingSHA256 = approval.Digest(nil) })))
		},
		"it contradicts itself": func(h *rig, k approval.Key) string {
			return string(h.key.Seal(approval.DocDecision, k, encode(h, k, func(d *approval.Decision) { d.Verdict = approval.Denied })))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, k := newRig(t, options{inline: true}), key(1)
			h.ask(k, request(k, "run", ""))
			h.writeDoc(approval.DocDecision, k, forge(h, k))
			h.step(k)
			require.False(t, h.has(approval.DocDecision, k), "the slot is free")
			require.True(t, h.has(approval.DocPending, k), "still pending")
			require.Zero(t, h.executor.count())
			require.Contains(t, h.refusals(personal), `"`+k.ID+`.decision": decision is not valid for the pending request`)
			require.Contains(t, h.logs.String(), "they hand them to the daemon", "and names the correct way")
			require.Equal(t, []event.Kind{event.Requested, event.Forged}, h.history(k))
			h.decide(decision(k, approval.Approved))
			h.step(k)
			require.Equal(t, "approved", h.outcome(k))
			require.Equal(t, "ann", *h.response(k).Decision.By)
		})
	}
}

// A decision before there is a pending, and one after the request is settled.
func TestDecisionsWithoutPending(t *testing.T) {
	h := newRig(t, options{inline: true})
	h.writeDoc(approval.DocDecision, key(1), `{"approved":true}`)
	h.step(key(1))
	require.False(t, h.has(approval.DocDecision, key(1)))
	require.Equal(t, "none", h.outcome(key(1)))
	require.Contains(t, h.refusals(personal), key(1).ID)

	h.writeRequest(key(2), request(key(2), "never", ""))
	h.step(key(2))
	h.writeDoc(approval.DocDecision, key(2), `{"approved":true}`)
	h.step(key(2))
	require.Contains(t, h.refusals(personal), `"`+key(2).ID+`.decision": decision for a settled request`)
	require.Equal(t, []event.Kind{event.AutoRejected, event.RefusedDecider}, h.history(key(2)))
	require.True(t, h.isSettled(key(2)))
	require.Zero(t, h.executor.count())
}

// If a claim or record does not verify, its key stops and the step returns an error.
func TestForgedClaimOrRecordStopsTheKey(t *testing.T) {
	for _, d := range []approval.Doc{approval.DocClaim, approval.DocRecord} {
		h, k := newRig(t, options{inline: true}), key(1)
		h.writeDoc(d, k, `{"request_id":"`+k.ID+`"}`)
		h.writeRequest(k, request(k, "auto", ""))
		_, err := h.gate.Step(context.Background(), k)
		require.ErrorIs(t, err, seal.ErrSeal)
		require.Zero(t, h.executor.count())
		require.True(t, h.has(d, k), "kept for the operator")
		h.writeRequest(key(2), request(key(2), "auto", ""))
		h.step(key(2))
		require.Equal(t, "auto_approved", h.outcome(key(2)), "other keys continue")
	}
}

// A pending in the predecessor's format is handled like any request: policy evaluates
// it, and the gate replaces it with its own document.
func TestPendingFromHostProgram(t *testing.T) {
	legacy := func(k approval.Key, tool string) string {
		return `{"request_id":"` + k.ID + `","short_id":"a7","tool_name":"` + tool + `","source_group":"elsewhere","chat_jid":"x@g.us",` +
			`"request_data":{"n":9007199254740993},"handler_type":"service","timestamp":"2026-01-01T00:00:00Z"}`
	}
	h := newRig(t, options{frozenClock: true, inline: true})
	asks, allowed, denied, broken, blocked := key(1), key(2), key(3), key(4), key(5)
	h.writeDoc(approval.DocPending, asks, legacy(asks, "run"))
	h.writeDoc(approval.DocPending, allowed, legacy(allowed, "auto"))
	h.writeDoc(approval.DocPending, denied, legacy(denied, "never"))
	h.writeDoc(approval.DocPending, broken, "not json")
	h.writeDoc(approval.DocPending, blocked, legacy(blocked, "run"))
	h.writeDoc(approval.DocDecision, blocked, `{"request_id":"`+blocked.ID+`","approved":true}`)
	h.reopen() // Start finds it, too
	h.step(h.keys...)

	p := h.pending(asks)
	require.NotNil(t, p, "sealed by the gate")
	require.Equal(t, personal, p.SourceGroup, "the folder determines the workspace")
	require.Equal(t, approval.ShortID(asks.ID), p.ShortID)
	require.Empty(t, p.ChatJID, "the file's value has no authority")
	require.Equal(t, h.clock.now(), p.Timestamp)
	require.JSONEq(t, `{"n":9007199254740993}`, string(p.RequestData))
	require.Equal(t, "auto_approved", h.outcome(allowed))
	require.Equal(t, []string{`{"n":9007199254740993}`}, h.executor.argsOf(allowed))
	require.Equal(t, approval.StatusAutoRejected, h.response(denied).Status)
	require.Equal(t, approval.StatusMalformed, h.response(broken).Status)
	require.True(t, h.isSettled(broken))
	require.NotNil(t, h.pending(blocked))
	require.False(t, h.has(approval.DocDecision, blocked), "a decision before the evaluation does not count")

	h.decide(decision(asks, approval.Approved))
	h.step(asks)
	require.Equal(t, "approved", h.outcome(asks))
	require.Equal(t, []string{`{"n":9007199254740993}`}, h.executor.argsOf(asks))
}

// A workspace that is not configured asks no person.
func TestUnknownWorkspace(t *testing.T) {
	h := newRig(t, options{inline: true})
	require.NoError(t, h.layout.Prepare(ipc.OS(), "unknown"))
	h.reopen()
	for n, tool := range []string{"run", "auto", "never"} {
		k := keyIn("unknown", n)
		h.writeRequest(k, request(k, tool, ""))
		h.step(k)
		require.Equal(t, "auto_rejected: workspace_unknown workspace=unknown", h.outcome(k))
		require.True(t, h.isSettled(k))
		require.Equal(t, []event.Kind{event.AutoRejected}, h.history(k))
	}
	k := keyIn("unknown", 10)
	h.writeDoc(approval.DocPending, k, request(k, "run", ""))
	h.step(k)
	require.Equal(t, approval.StatusAutoRejected, h.response(k).Status)
	require.Zero(t, h.executor.count())
}

// A changed pending has no valid MAC: it is evaluated as a new request, and the
// decision for the old one does not count.
func TestChangedPending(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.ask(k, request(k, "run", `{"to":"ann"}`))
	h.decide(decision(k, approval.Approved))
	path := filepath.Join(h.layout.Pendings(personal), k.ID+".json")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(b), "ann", "eve", 1)), 0o600))
	h.step(k)
	require.Zero(t, h.executor.count())
	require.Equal(t, approval.StatusMalformed, h.response(k).Status, "a request has no such members")
	_, err = h.decider().Decide(context.Background(), decision(k, approval.Approved))
	require.ErrorIs(t, err, decide.ErrDecided)
}
