package gate_test

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// TestAskReadsDocumentsOnce: the gate does not read again what it has just written,
// neither at once nor at the event of its own write.
func TestAskReadsDocumentsOnce(t *testing.T) {
	for why, tt := range map[string]struct {
		reads int
		ask   func(h *rig)
	}{
		"by Submit": {1, func(h *rig) {
			_, err := h.submit(key(1), request(key(1), "run", ""), apiClient)
			require.NoError(t, err)
		}},
		"by Submit with a fresh id": {0, func(h *rig) {
			_, err := h.submit(key(1), request(key(1), "run", ""), freshOrigin)
			require.NoError(t, err)
		}},
		"by a request file": {1, func(h *rig) {
			h.writeRequest(key(1), request(key(1), "run", ""))
			h.step(key(1))
		}},
	} {
		t.Run(why, func(t *testing.T) {
			var loads atomic.Int32
			h := newRig(t, options{frozenClock: true, inline: true, store: func(s store.Store) store.Store {
				return before(s, "Read", approval.DocRecord, func(approval.Key) { loads.Add(1) })
			}})
			tt.ask(h)
			require.True(t, h.has(approval.DocPending, key(1)))
			require.EqualValues(t, tt.reads, loads.Load())
			h.gate.Hint(key(1), approval.DocPending)
			require.True(t, h.gate.Idle(), "the event of our own write")
		})
	}
}

// freshOrigin is apiClient with an id that was just generated.
var freshOrigin = submit.Origin{ClientID: apiClient.ClientID, Fresh: true}

// TestFreshIDUsedTwice: if an id is wrongly marked as fresh, nothing is overwritten
// and nothing runs twice.
func TestFreshIDUsedTwice(t *testing.T) {
	for _, tool := range []string{"run", "auto", "never"} {
		for _, other := range []string{"run", "auto", "never"} {
			h := newRig(t, options{frozenClock: true, inline: true})
			_, err := h.submit(key(1), request(key(1), tool, ""), freshOrigin)
			require.NoError(t, err)
			before, ran := h.outcome(key(1)), len(h.executor.argsOf(key(1)))
			_, err = h.submit(key(1), request(key(1), other, `{"n":2}`), freshOrigin)
			require.Error(t, err, "%s, then %s", tool, other)
			h.step(key(1))
			require.Equal(t, before, h.outcome(key(1)), "%s, then %s", tool, other)
			require.Len(t, h.executor.argsOf(key(1)), ran, "%s, then %s", tool, other)
			require.True(t, h.has(approval.DocPending, key(1)) || h.has(approval.DocRecord, key(1)))
		}
	}
}

// TestFreshSubmissionWhilePaused: only the first load skips reading the documents.
func TestFreshSubmissionWhilePaused(t *testing.T) {
	var loads atomic.Int32
	h := newRig(t, options{frozenClock: true, store: func(s store.Store) store.Store {
		return before(s, "Read", approval.DocRecord, func(approval.Key) { loads.Add(1) })
	}})
	h.gate.Pauses = alwaysPaused{}
	h.run(0)
	ctx, cancel := context.WithCancel(context.Background())
	waits, remaining := make(chan struct{}, 2), make(chan error, 1)
	go func() {
		_, err := h.gate.Submit(watchedContext{ctx, func() { waits <- struct{}{} }}, key(1), []byte(request(key(1), "auto", "")), freshOrigin)
		remaining <- err
	}()
	<-waits
	h.waitFor(5*time.Second, "rest", h.gate.Idle)
	require.Zero(t, loads.Load())
	h.gate.Wake(key(1))
	h.waitFor(5*time.Second, "rest", h.gate.Idle)
	require.NotZero(t, loads.Load())
	cancel()
	require.ErrorIs(t, <-remaining, submit.ErrPaused)
}

// TestSettledKeyIsNotReadAgain: the events of our own writes cost no load, neither at once
// nor later. A second change of the response is another program's.
func TestSettledKeyIsNotReadAgain(t *testing.T) {
	var loads atomic.Int32
	h, k := newRig(t, options{frozenClock: true, store: func(s store.Store) store.Store {
		return before(s, "Read", approval.DocRecord, func(approval.Key) { loads.Add(1) })
	}}), key(1)
	alive := func() int32 {
		require.NoError(t, h.gate.Alive(t.Context()))
		h.waitFor(waitLimit, "idle", h.gate.Idle)
		return loads.Load()
	}
	h.run(0)
	_, err := h.submit(k, request(k, "auto", ""), freshOrigin)
	require.NoError(t, err)
	h.waitResponse(k, waitLimit)
	require.Zero(t, alive())
	for _, d := range []approval.Doc{approval.DocDecision, approval.DocPending, approval.DocDecision, approval.DocResponse} {
		h.gate.Hint(k, d)
	}
	require.Zero(t, alive(), "our own writes")
	h.gate.Hint(k, approval.DocResponse)
	require.EqualValues(t, 1, alive(), "another program changed it")

	k = key(2)
	_, err = h.submit(k, request(k, "auto", ""), freshOrigin)
	require.NoError(t, err)
	h.waitResponse(k, waitLimit)
	require.EqualValues(t, 1, alive())
	h.clock.move(time.Minute)
	require.EqualValues(t, 1, alive())
	require.EqualValues(t, 1, alive(), "no check later") // the ticker has passed once
	h.gate.Hint(k, approval.DocDecision)
	require.EqualValues(t, 2, alive(), "too late for our own writes")
}

// TestForeignEventsWakeTheKey: an event that our own write did not cause wakes its
// key.
func TestForeignEventsWakeTheKey(t *testing.T) {
	for why, tt := range map[string]struct {
		plan options
		do   func(h *rig)
		doc  approval.Doc
	}{
		"a decision": {doc: approval.DocDecision},
		"a response": {doc: approval.DocResponse},
		"a pending that the gate does not know": {doc: approval.DocPending, do: func(h *rig) {
			require.NoError(h.t, h.store.Remove(context.Background(), approval.DocPending, key(1)))
			h.step(key(1))
		}},
		"after a failed write": {doc: approval.DocPending, plan: options{store: func(s store.Store) store.Store {
			return failing(s, "Commit", approval.DocPending, syscall.EIO)
		}}},
	} {
		t.Run(why, func(t *testing.T) {
			tt.plan.frozenClock, tt.plan.inline = true, true
			h := newRig(t, tt.plan)
			_, err := h.submit(key(1), request(key(1), "run", ""), apiClient)
			require.Equal(t, tt.plan.store != nil, err != nil)
			require.True(t, h.gate.Idle())
			if tt.do != nil {
				tt.do(h)
			}
			h.gate.Hint(key(1), tt.doc)
			require.False(t, h.gate.Idle())
		})
	}
}

// TestAskWithOtherDocumentsPresent: other documents that exist at intake are still
// handled.
func TestAskWithOtherDocumentsPresent(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true})
	h.writeRequest(key(1), request(key(1), "run", ""))
	h.cancel(key(1))
	h.step(key(1))
	require.Equal(t, approval.StatusCancelled, h.response(key(1)).Status)

	require.NoError(t, h.store.Commit(context.Background(), store.Show(key(2), []byte(`{"status":"approved"}`))))
	h.ask(key(2), request(key(2), "run", ""))
	require.False(t, h.has(approval.DocResponse, key(2)), "it was not approved")

	require.NoError(t, h.store.Commit(context.Background(), volatile(approval.DocDecision, key(3), []byte(`{"approved":true}`))))
	h.ask(key(3), request(key(3), "run", ""))
	require.False(t, h.has(approval.DocDecision, key(3)), "it existed before the ask")
	require.Contains(t, h.refusals(personal), "decision is not valid")
}

// TestDecidedIsNotReadAgain: a decision whose file the gate has seen is settled when the one
// who made it says so.
func TestDecidedIsNotReadAgain(t *testing.T) {
	for settled, why := range map[bool]string{false: "a decision was missed", true: "a settled key is read again"} {
		h := newRig(t, options{frozenClock: true, inline: true})
		h.ask(key(1), request(key(1), "run", ""))
		h.decide(decision(key(1), approval.Approved))
		if settled {
			h.step(key(1))
			require.Equal(t, approval.StatusApproved, h.response(key(1)).Status)
		}
		h.gate.Decided(key(1))
		require.Equal(t, settled, h.gate.Idle(), why)
	}
}
