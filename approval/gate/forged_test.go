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
	"github.com/permesso-dev/permesso/approval/move"
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
			require.Contains(t, h.logs.String(), "decision_file", "and names the correct way")
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
		return `{"request_id":"` + k.ID + `","short_id":"a7","tool_name":"` + tool + `","source_group":"personal","chat_jid":"x@g.us",` +
			`"request_data":{"n":9007199254740993},"handler_type":"service","timestamp":"2026-01-01T00:00:00Z","notification_sent":true}`
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
	require.Equal(t, personal, p.SourceGroup)
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

// A request in the predecessor's flat form is the request that it stands for, in both
// folders: policy evaluates it, and a person is shown what would run.
func TestFlatRequests(t *testing.T) {
	flat := func(k approval.Key, tool, group string) string {
		return `{"type":"service:` + tool + `","request_id":"` + k.ID + `","source_group":"` + group + `","text":"Meeting at 5"}`
	}
	h := newRig(t, options{inline: true})
	n := 0
	for _, folder := range []approval.Doc{approval.DocRequest, approval.DocPending} {
		put := func(tool, group string) approval.Key {
			n++
			k := key(n)
			if folder == approval.DocRequest {
				h.writeRequest(k, flat(k, tool, group))
			} else {
				h.writeDoc(folder, k, flat(k, tool, group))
			}
			h.step(k)
			return k
		}
		allowed, denied := put("auto", personal), put("never", personal)
		require.Equal(t, "auto_approved", h.outcome(allowed))
		require.Equal(t, []string{`{"text":"Meeting at 5"}`}, h.executor.argsOf(allowed))
		require.Equal(t, approval.StatusAutoRejected, h.response(denied).Status)
		asked := put("run", personal)
		require.Equal(t, `{"text":"Meeting at 5"}`, string(h.pending(asked).RequestData)) //nolint:testifylint // byte for byte
		h.decide(decision(asked, approval.Approved))
		h.step(asked)
		require.Equal(t, "approved", h.outcome(asked))

		foreign := put("auto", other)
		require.Equal(t, "auto_rejected: other_workspace workspace=personal", h.outcome(foreign))
		require.Empty(t, h.executor.argsOf(foreign))
		require.Equal(t, approval.StatusAutoRejected, h.response(put("no_such_tool", personal)).Status)
		require.True(t, h.isSettled(foreign))
	}
}

// A host program's file that is still being written is not refused yet.
func TestIncompletePendingFromHostProgram(t *testing.T) {
	h, k := newRig(t, options{inline: true, frozenClock: true}), key(1)
	whole := request(k, "auto", "")
	h.writeDoc(approval.DocPending, k, whole[:len(whole)-3])
	h.step(k)
	require.Equal(t, "none", h.outcome(k))
	h.clock.move(move.IncompleteGrace + time.Second)
	h.step(k)
	require.Equal(t, approval.StatusMalformed, h.response(k).Status)
	require.True(t, h.isSettled(k))
}

// What an agent sends as metadata comes back unchanged, also from a claim after a crash, and
// is in the pending and the record.
func TestMetadataIsCarried(t *testing.T) {
	const metadata = `{ "trace" : "\u0061", "n":1.50 }`
	h := newRig(t, options{inline: true})
	with := func(k approval.Key, tool string) string {
		return `{"request_id":"` + k.ID + `","tool_name":"` + tool + `","metadata":` + metadata + `}`
	}
	asked, allowed, denied, without := key(1), key(2), key(3), key(4)
	h.ask(asked, with(asked, "run"))
	require.Equal(t, metadata, string(h.pending(asked).Metadata)) //nolint:testifylint // byte for byte
	h.decide(decision(asked, approval.Approved))
	h.step(asked)
	h.writeRequest(allowed, with(allowed, "auto"))
	h.writeRequest(denied, with(denied, "never"))
	h.writeRequest(without, request(without, "auto", ""))
	h.step(allowed, denied, without)
	for _, k := range []approval.Key{asked, allowed, denied} {
		require.Equal(t, metadata, string(h.response(k).Metadata), h.outcome(k)) //nolint:testifylint // byte for byte
		require.Contains(t, string(h.read(approval.DocRecord, k)), `"metadata":`+metadata)
	}
	require.Equal(t, "null", string(h.response(without).Metadata))
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
	require.Equal(t, approval.StatusMalformed, h.response(k).Status)
	require.Contains(t, *h.response(k).Error, "a mac that is not the gate's")
	require.Contains(t, h.refusals(personal), "a mac that is not the gate's")
	require.Contains(t, h.logs.String(), "a mac that is not the gate's")
	require.Equal(t, []event.Kind{event.Requested, event.Forged, event.Malformed}, h.history(k), "an alert")
	_, err = h.decider().Decide(context.Background(), decision(k, approval.Approved))
	require.ErrorIs(t, err, decide.ErrDecided)
}
