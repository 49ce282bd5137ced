package gate_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

// recorder keeps what a gate commits and removes, in order: "commit pending approval_requested".
type recorder struct {
	store.Store
	mu  sync.Mutex
	did []string
}

func (r *recorder) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did = append(r.did, what)
}

func (r *recorder) Commit(ctx context.Context, ops ...store.Op) error {
	words := []string{"commit"}
	for _, op := range ops {
		switch word := string(op.Doc); {
		case op.Doc == "":
			words = append(words, string(op.Entry.Event))
		case op.Mode == store.Volatile:
			words = append(words, "("+word+")")
		default:
			words = append(words, word)
		}
	}
	err := r.Store.Commit(ctx, ops...)
	if err == nil {
		r.note(strings.Join(words, " "))
	}
	return err
}

func (r *recorder) Remove(ctx context.Context, d approval.Doc, k approval.Key) error {
	r.note("remove " + string(d))
	return r.Store.Remove(ctx, d, k)
}

func (r *recorder) Checkpoint(ctx context.Context) error {
	r.note("checkpoint")
	return r.Store.Checkpoint(ctx)
}

// take returns what was done since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	did := r.did
	r.did = nil
	return did
}

// TestEachMoveIsOneCommit: what must not be separated by a crash is one commit, and files are
// removed after it.
func TestEachMoveIsOneCommit(t *testing.T) {
	r := &recorder{}
	h := newRig(t, options{frozenClock: true, inline: true, store: func(s store.Store) store.Store { r.Store = s; return r }})
	k, next := key(0), 0
	send := func(tool string) {
		next++
		k = key(next)
		h.writeRequest(k, request(k, tool, ""))
		h.step(k)
	}
	h.gate.Changed = func(approval.Key) { r.note("changed") }
	asked := []string{"commit pending approval_requested", "changed", "remove request"}
	decide := func(v approval.Verdict) {
		require.Equal(t, asked, r.take())
		d := h.decider()
		d.Store, d.Decided = r, func(approval.Key) { r.note("decided") }
		_, err := d.Decide(context.Background(), decision(k, v))
		require.NoError(t, err)
		require.Equal(t, []string{"commit decision", "decided"}, r.take())
		h.step(k)
	}

	send("receipt")
	decide(approval.Approved)
	require.Equal(t, []string{"commit approved record released (response)", "changed", "remove decision", "remove pending"}, r.take())

	send("run")
	decide(approval.Approved)
	require.Equal(t, []string{
		"commit receipt approved",
		"commit record executed (response)", "changed", "remove receipt", "remove decision", "remove pending",
	}, r.take())

	send("run")
	decide(approval.Denied)
	require.Equal(t, []string{"commit record denied_by_user (response)", "changed", "remove decision", "remove pending"}, r.take())

	send("run")
	require.Equal(t, asked, r.take())
	h.clock.move(2 * time.Hour)
	h.step(k)
	require.Equal(t, []string{"commit (decision)", "commit record expired (response)", "changed", "remove decision", "remove pending"}, r.take())

	send("auto")
	require.Equal(t, []string{
		"commit receipt auto_approved", "remove request", "commit record executed (response)", "changed", "remove receipt",
	}, r.take())

	send("never")
	require.Equal(t, []string{"commit record auto_rejected (response)", "changed", "remove request"}, r.take())

	require.NoError(t, r.Store.Remove(context.Background(), approval.DocResponse, k))
	h.step(k)
	require.Equal(t, []string{"commit (response)", "changed"}, r.take())
}

// The order of a prune: nothing that is replayed, or comes back, may belong to an id that is
// used again.
func TestPruneIsInOrder(t *testing.T) {
	r := &recorder{}
	h := newSettledRig(t, options{store: func(s store.Store) store.Store { r.Store = s; return r }}, 20*day)
	r.take()
	h.prune()
	require.Equal(t, []string{"commit pruned", "remove response"}, r.take(), "a response needs no checkpoint")
	h.clock.move(80 * day)
	h.prune()
	require.Equal(t, []string{"commit pruned", "checkpoint", "remove record", "checkpoint", "remove redeemed"}, r.take())
}

// A tool that runs nothing and that policy allows: one commit in all.
func TestReleaseIsOneCommit(t *testing.T) {
	r := &recorder{}
	auto := approval.Tool{Name: "auto", Handler: approval.Handler{Kind: approval.HandlerNone}}
	h := newRig(t, options{inline: true, tools: map[string]approval.Tool{"auto": auto}, store: func(s store.Store) store.Store { r.Store = s; return r }})
	_, err := h.submit(key(1), request(key(1), "auto", ""), apiClient)
	require.NoError(t, err)
	require.Equal(t, []string{"commit auto_approved record released (response)"}, r.take())
	require.Equal(t, "auto_approved", h.outcome(key(1)))
	require.NotNil(t, h.response(key(1)).Receipt)
	require.NotEmpty(t, h.record(key(1)).Receipt)
	h.reopen()
	h.step(h.keys...)
	require.Empty(t, r.take(), "nothing is left to do")
}

// A release that cannot be committed leaves everything as it was, and is tried again.
func TestReleaseIsRetried(t *testing.T) {
	h, b := newRig(t, options{inline: true, frozenClock: true}), &counters{}
	h.gate.Pauses = b
	h.ask(key(1), request(key(1), "receipt", ""))
	h.decide(decision(key(1), approval.Approved))
	healthy, boom := &countingHealthStore{h.gate.Store, b}, errors.New("boom")
	h.gate.Store = failing(healthy, "Commit", approval.DocRecord, boom)
	for range 20 { // more than there are slots
		_, err := h.gate.Step(context.Background(), key(1))
		require.ErrorIs(t, err, boom)
	}
	require.Zero(t, b.claims.Load()+b.reservations.Load())
	require.False(t, h.has(approval.DocClaim, key(1)))
	h.gate.Store = healthy
	h.step(key(1))
	require.Equal(t, "approved", h.outcome(key(1)))
	require.True(t, h.isSettled(key(1)))
	require.Zero(t, b.claims.Load()+b.reservations.Load())
}

// The removals after a record fail: the outcome counts, and the key is retried until the rest
// is removed.
func TestLeftoversAreRemovedLater(t *testing.T) {
	h, k := newRig(t, options{inline: true, frozenClock: true}), key(1)
	h.ask(k, request(k, "run", ""))
	h.decide(decision(k, approval.Denied))
	healthy := h.gate.Store
	h.gate.Store = failing(healthy, "Remove", approval.DocPending, errors.New("boom"))
	_, err := h.gate.Step(context.Background(), k)
	require.ErrorContains(t, err, "boom")
	require.Equal(t, "denied: Denied by user", h.outcome(k))
	require.True(t, h.has(approval.DocPending, k))
	require.Contains(t, h.logs.String(), "boom")
	h.gate.Store = healthy
	h.step(k)
	require.True(t, h.isSettled(k))
}

// A decision is acknowledged when it is durable, not when it is in its slot.
func TestDecisionIsAcknowledgedAfterItsCommit(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	h.ask(k, request(k, "run", ""))
	inSlot, durable := make(chan struct{}), make(chan struct{})
	d := h.decider()
	d.Store = slowCommit{h.store, inSlot, durable}
	d.Decided = func(approval.Key) {
		select {
		case <-durable:
		default:
			t.Error("told before the commit")
		}
	}
	answered := make(chan error, 1)
	go func() {
		_, err := d.Decide(context.Background(), decision(k, approval.Denied))
		answered <- err
	}()
	<-inSlot
	require.True(t, h.has(approval.DocDecision, k))
	_, err := h.decider().Decide(context.Background(), decision(k, approval.Approved))
	require.Error(t, err, "the slot is taken")
	require.Empty(t, answered)
	close(durable)
	require.NoError(t, <-answered)
}

// slowCommit waits between a decision in its slot and its commit.
type slowCommit struct {
	store.Store
	inSlot, durable chan struct{}
}

func (s slowCommit) Commit(ctx context.Context, ops ...store.Op) error {
	check := ops[0].Check
	ops[0].Check = func() error {
		close(s.inSlot)
		<-s.durable
		return check()
	}
	return s.Store.Commit(ctx, ops...)
}

// twiceStore commits every record twice: the second time it exists.
type twiceStore struct{ store.Store }

func (s twiceStore) Commit(ctx context.Context, ops ...store.Op) error {
	err := s.Store.Commit(ctx, ops...)
	if slices.ContainsFunc(ops, func(op store.Op) bool { return op.Doc == approval.DocRecord }) {
		return errors.Join(err, s.Store.Commit(ctx, ops...))
	}
	return err
}

// A record that exists is the outcome. The run that wanted to write another one is over.
func TestRecordExistsAlready(t *testing.T) {
	b := &counters{}
	h := newRig(t, options{inline: true, store: func(s store.Store) store.Store {
		return &countingHealthStore{twiceStore{s}, b}
	}})
	for n, tool := range []string{"auto", "receipt", "run", "never"} {
		k := key(n)
		h.writeRequest(k, request(k, tool, ""))
		h.step(k)
		if h.has(approval.DocPending, k) {
			h.decide(decision(k, approval.Approved))
			h.step(k)
		}
		require.True(t, h.isSettled(k), tool)
		require.Zero(t, b.reservations.Load(), tool)
	}
	require.Equal(t, 3, h.executor.count())
}
