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
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/seal"
)

// put lays a file down as a host program would that knows the folders and not
// the key.
func (h *house) put(d approval.Doc, k approval.Key, body string) {
	require.NoError(h.t, h.store.Create(d, k, []byte(body), approval.Volatile))
}

// Whatever lies in the slot and is not the decision of this very pending is
// described and cleared away, and the request waits on.
func TestForgedDecisions(t *testing.T) {
	stranger, err := seal.LoadOrCreate(ipc.OS(), t.TempDir())
	require.NoError(t, err)
	decision := func(h *house, k approval.Key, change func(*approval.Decision)) []byte {
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
	for name, forge := range map[string]func(h *house, k approval.Key) string{
		"as the predecessor wrote it": func(_ *house, k approval.Key) string {
			return `{"request_id":"` + k.ID + `","approved":true,"decided_by":"ann","decided_at":"2026-01-02T03:04:05Z"}`
		},
		"no JSON":        func(*house, approval.Key) string { return "approve" },
		"nothing":        func(*house, approval.Key) string { return "" },
		"without a seal": func(h *house, k approval.Key) string { return string(decision(h, k, nil)) },
		"another's seal": func(h *house, k approval.Key) string {
			return string(stranger.Seal(approval.DocDecision, k, decision(h, k, nil)))
		},
		"a pending's": func(h *house, k approval.Key) string {
			return string(h.key.Seal(approval.DocPending, k, decision(h, k, nil)))
		},
		"another request": func(h *house, k approval.Key) string {
			return string(h.key.Seal(approval.DocDecision, key(99), decision(h, k, nil)))
		},
		"another workspace": func(h *house, k approval.Key) string {
			return string(h.key.Seal(approval.DocDecision, approval.Key{Workspace: other, ID: k.ID}, decision(h, k, nil)))
		},
		"another pending": func(h *house, k approval.Key) string {
			return string(h.key.Seal(approval.DocDecision, k, decision(h, k, func(d *approval.Decision) { d.PendingSHA256 = approval.Digest(nil) })))
		},
		"it contradicts itself": func(h *house, k approval.Key) string {
			return string(h.key.Seal(approval.DocDecision, k, decision(h, k, func(d *approval.Decision) { d.Verdict = approval.Denied })))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, k := newHouse(t, plan{inline: true}), key(1)
			h.ask(k, request(k, "run", ""))
			h.put(approval.DocDecision, k, forge(h, k))
			h.step(k)
			require.False(t, h.has(approval.DocDecision, k), "the slot is free")
			require.True(t, h.has(approval.DocPending, k), "it waits on")
			require.Zero(t, h.hands.count())
			require.Contains(t, h.refusals(home), `"`+k.ID+`.decision": a decision that is not valid for what is pending`)
			require.Contains(t, h.logs.String(), "permesso decide --stdin", "and how it is done")
			require.Equal(t, []approval.Event{approval.EventRequested, approval.EventForged}, h.history(k))
			h.decide(answer(k, approval.Approved))
			h.step(k)
			require.Equal(t, "approved", h.outcome(k))
			require.Equal(t, "ann", *h.response(k).Decision.By)
		})
	}
}

// A decision that nobody waits for: not before, and not after.
func TestDecisionsOfNothing(t *testing.T) {
	h := newHouse(t, plan{inline: true})
	h.put(approval.DocDecision, key(1), `{"approved":true}`)
	h.step(key(1))
	require.False(t, h.has(approval.DocDecision, key(1)))
	require.Equal(t, "none", h.outcome(key(1)))
	require.Contains(t, h.refusals(home), key(1).ID)

	h.drop(key(2), request(key(2), "never", ""))
	h.step(key(2))
	h.put(approval.DocDecision, key(2), `{"approved":true}`)
	h.step(key(2))
	require.Contains(t, h.refusals(home), `"`+key(2).ID+`.decision": a decision for a request that is settled`)
	require.Equal(t, []approval.Event{approval.EventAutoRejected, approval.EventRefusedDecider}, h.history(key(2)))
	require.True(t, h.atRest(key(2)))
	require.Zero(t, h.hands.count())
}

// Claims and records are the gate's memory of what happened: one that is there
// and cannot be believed stops everything for its key, loudly.
func TestAForgedMemoryStopsTheKey(t *testing.T) {
	for _, d := range []approval.Doc{approval.DocClaim, approval.DocRecord} {
		h, k := newHouse(t, plan{inline: true}), key(1)
		h.put(d, k, `{"request_id":"`+k.ID+`"}`)
		h.drop(k, request(k, "auto", ""))
		_, err := h.gate.Step(k)
		require.ErrorIs(t, err, seal.ErrSeal)
		require.Zero(t, h.hands.count())
		require.True(t, h.has(d, k), "for the operator to look at")
		h.drop(key(2), request(key(2), "auto", ""))
		h.step(key(2))
		require.Equal(t, "auto_approved", h.outcome(key(2)), "the others go on")
	}
}

// A host program's pending, in the format of the predecessor, is a request
// like any other: it is judged, and what waits is the gate's own document.
func TestAHostProgramsPending(t *testing.T) {
	legacy := func(k approval.Key, tool string) string {
		return `{"request_id":"` + k.ID + `","short_id":"a7","tool_name":"` + tool + `","source_group":"elsewhere","chat_jid":"x@g.us",` +
			`"request_data":{"n":9007199254740993},"handler_type":"service","timestamp":"2026-01-01T00:00:00Z"}`
	}
	h := newHouse(t, plan{frozen: true, inline: true})
	asks, allowed, denied, broken, blocked := key(1), key(2), key(3), key(4), key(5)
	h.put(approval.DocPending, asks, legacy(asks, "run"))
	h.put(approval.DocPending, allowed, legacy(allowed, "auto"))
	h.put(approval.DocPending, denied, legacy(denied, "never"))
	h.put(approval.DocPending, broken, "not json")
	h.put(approval.DocPending, blocked, legacy(blocked, "run"))
	h.put(approval.DocDecision, blocked, `{"request_id":"`+blocked.ID+`","approved":true}`)
	h.reopen() // found at start as well as by event
	h.step(h.keys...)

	p := h.pending(asks)
	require.NotNil(t, p, "sealed by the gate")
	require.Equal(t, home, p.SourceGroup, "the folder says where it belongs")
	require.Equal(t, approval.ShortID(asks.ID), p.ShortID)
	require.Empty(t, p.ChatJID, "its own word has no authority")
	require.Equal(t, h.clock.now(), p.Timestamp)
	require.JSONEq(t, `{"n":9007199254740993}`, string(p.RequestData))
	require.Equal(t, "auto_approved", h.outcome(allowed))
	require.Equal(t, []string{`{"n":9007199254740993}`}, h.hands.of(allowed))
	require.Equal(t, approval.StatusAutoRejected, h.response(denied).Status)
	require.Equal(t, approval.StatusMalformed, h.response(broken).Status)
	require.True(t, h.atRest(broken))
	require.NotNil(t, h.pending(blocked))
	require.False(t, h.has(approval.DocDecision, blocked), "what was decided before it was judged does not count")

	h.decide(answer(asks, approval.Approved))
	h.step(asks)
	require.Equal(t, "approved", h.outcome(asks))
	require.Equal(t, []string{`{"n":9007199254740993}`}, h.hands.of(asks))
}

// A workspace that the configuration does not know asks nobody.
func TestAnUnknownWorkspace(t *testing.T) {
	h := newHouse(t, plan{inline: true})
	require.NoError(t, h.layout.Prepare(ipc.OS(), "stranger"))
	h.reopen()
	for n, tool := range []string{"run", "auto", "never"} {
		k := keyIn("stranger", n)
		h.drop(k, request(k, tool, ""))
		h.step(k)
		require.Equal(t, "auto_rejected: workspace 'stranger' is not configured: add [workspaces.stranger] to permesso.toml", h.outcome(k))
		require.True(t, h.atRest(k))
		require.Equal(t, []approval.Event{approval.EventAutoRejected}, h.history(k))
	}
	k := keyIn("stranger", 10)
	h.put(approval.DocPending, k, request(k, "run", ""))
	h.step(k)
	require.Equal(t, approval.StatusAutoRejected, h.response(k).Status)
	require.Zero(t, h.hands.count())
}

// A pending that was changed where it lies is no pending any more: it is judged
// as what it now is, and a decision for the former one does not count.
func TestAChangedPending(t *testing.T) {
	h, k := newHouse(t, plan{inline: true}), key(1)
	h.ask(k, request(k, "run", `{"to":"ann"}`))
	h.decide(answer(k, approval.Approved))
	path := filepath.Join(h.layout.Pendings(home), k.ID+".json")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(b), "ann", "eve", 1)), 0o600))
	h.step(k)
	require.Zero(t, h.hands.count())
	require.Equal(t, approval.StatusMalformed, h.response(k).Status, "with members that no request has")
	_, err = h.decider().Decide(context.Background(), answer(k, approval.Approved))
	require.ErrorIs(t, err, approval.ErrDecided)
}
