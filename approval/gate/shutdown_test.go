package gate_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/security/policy"
)

// beginStop stops a running gate, and returns when the gate starts nothing new. wait
// returns when Run has returned.
func (h *rig) beginStop() (wait func()) {
	ended := make(chan struct{})
	halt := h.Stop
	go func() {
		defer close(ended)
		halt()
	}()
	for n := 1000; ; n++ {
		probe := keyIn(other, n)
		h.writeRequest(probe, request(probe, "receipt_now", ""))
		h.step(probe)
		if !h.has(approval.DocClaim, probe) && !h.has(approval.DocRecord, probe) {
			require.NoError(h.t, h.store.Remove(context.Background(), approval.DocRequest, probe))
			return func() { <-ended }
		}
	}
}

// withProbeTool adds a tool that needs no slot and no approval.
func withProbeTool(p options) options {
	p.tools = map[string]approval.Tool{"receipt_now": {Name: "receipt_now", Handler: approval.Handler{Kind: approval.HandlerNone}}}
	p.rules = []policy.Rule{{Name: "probe", Tool: policy.Names{"receipt_now"}, Outcome: approval.Allow}}
	return p
}

// A stopping gate waits for running handlers and starts nothing new. The rest stays
// in its files for the next start.
func TestShutdown(t *testing.T) {
	h := newRig(t, withProbeTool(options{limits: approval.Limits{Running: 1}}))
	open, inside := make(chan struct{}), make(chan struct{}, 10)
	h.executor.do = func(job approval.Job) approval.Effect {
		if job.RequestID == key(1).ID {
			inside <- struct{}{}
			<-open
		}
		return approval.Effect{Result: approval.Raw(`{}`)}
	}
	h.run(0)
	runs, queued, approved, denied := key(1), key(2), key(3), key(4)
	h.writeRequest(runs, request(runs, "auto", ""))
	h.gate.Wake(runs)
	<-inside
	h.writeRequest(queued, request(queued, "auto", ""))
	h.gate.Wake(queued)
	for _, k := range []approval.Key{approved, denied} {
		h.writeRequest(k, request(k, "run", ""))
		h.gate.Wake(k)
		h.waitFor(5*time.Second, "pending", func() bool { return h.has(approval.DocPending, k) })
	}
	wait := h.beginStop()
	h.decide(decision(approved, approval.Approved))
	h.decide(decision(denied, approval.Denied))
	h.gate.Wake(approved)
	h.gate.Wake(denied)
	h.waitFor(5*time.Second, "idle", h.gate.Idle)
	require.False(t, h.has(approval.DocClaim, approved))
	require.Equal(t, "none", h.outcome(runs), "Run waits for the handler")
	close(open)
	wait()
	require.Equal(t, "auto_approved", h.outcome(runs))
	require.Equal(t, []string{"{}"}, h.executor.argsOf(runs))
	for _, k := range []approval.Key{queued, approved} {
		require.Equal(t, "none", h.outcome(k))
		require.Empty(t, h.executor.argsOf(k))
		require.False(t, h.has(approval.DocClaim, k))
	}

	h.reopen()
	h.run(0)
	for k, want := range map[approval.Key]string{runs: "auto_approved", queued: "auto_approved", approved: "approved", denied: "denied: Denied by user"} {
		h.waitResponse(k, 5*time.Second)
		require.Equal(t, want, h.outcome(k))
	}
	for _, k := range []approval.Key{runs, queued, approved} {
		require.Len(t, h.executor.argsOf(k), 1)
	}
	require.Empty(t, h.executor.argsOf(denied))
}

// The gate stops while a claim is being written. Run then waits for the handler and
// its outcome.
func TestShutdownDuringClaim(t *testing.T) {
	claiming, claim, inside, open := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	h := newRig(t, withProbeTool(options{store: func(s store.Store) store.Store {
		return before(s, "Commit", approval.DocClaim, func(k approval.Key) {
			if k == key(1) {
				close(claiming)
				<-claim
			}
		})
	}}))
	h.executor.do = func(job approval.Job) approval.Effect {
		if job.RequestID == key(1).ID {
			close(inside)
			<-open
		}
		return approval.Effect{Result: approval.Raw(`{}`)}
	}
	h.run(0)
	h.writeRequest(key(1), request(key(1), "auto", ""))
	h.gate.Wake(key(1))
	<-claiming
	wait := h.beginStop()
	close(claim)
	<-inside
	require.Equal(t, "none", h.outcome(key(1)))
	close(open)
	wait()
	require.Equal(t, "auto_approved", h.outcome(key(1)))
	require.Len(t, h.executor.argsOf(key(1)), 1)
}
