package gate_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

// cancellingStore ends a context when one kind of document is committed: right before, or
// while that is under way.
type cancellingStore struct {
	store.Store
	doc    approval.Doc
	before bool
	cancel func()
}

func (c cancellingStore) Commit(ctx context.Context, ops ...store.Op) error {
	i := slices.IndexFunc(ops, func(op store.Op) bool { return op.Doc == c.doc })
	switch check := (store.Op{}).Check; {
	case i < 0:
	case c.before || ops[i].Check == nil:
		c.cancel()
	default:
		check = ops[i].Check
		ops[i].Check = func() error { c.cancel(); return check() }
	}
	return c.Store.Commit(ctx, ops...)
}

// TestCancelledStep: a move that has begun is finished, and no other begins.
func TestCancelledStep(t *testing.T) {
	for _, doc := range []approval.Doc{approval.DocClaim, approval.DocRecord} {
		for _, before := range []bool{true, false} {
			ctx, cancel := context.WithCancel(context.Background())
			h := newRig(t, options{inline: true, store: func(s store.Store) store.Store {
				return cancellingStore{s, doc, before, cancel}
			}})
			h.writeRequest(key(1), request(key(1), "auto", ""))
			_, err := h.gate.Step(ctx, key(1))
			if err != nil { // ended after the record
				require.ErrorIs(t, err, context.Canceled)
			}
			require.Equal(t, "auto_approved", h.outcome(key(1)), "%s, before: %v", doc, before)
			require.Equal(t, 1, h.executor.count())

			h.writeRequest(key(2), request(key(2), "auto", ""))
			_, err = h.gate.Step(ctx, key(2))
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, "none", h.outcome(key(2)))
			require.True(t, h.has(approval.DocRequest, key(2)))
			h.step(key(2))
			require.Equal(t, "auto_approved", h.outcome(key(2)))
			cancel()
		}
	}
}

// TestCancelledDecide: an ended context writes no decision. A decision that is being
// written is finished and acknowledged.
func TestCancelledDecide(t *testing.T) {
	for _, before := range []bool{true, false} {
		h := newRig(t, options{inline: true})
		h.ask(key(1), request(key(1), "run", ""))
		ctx, cancel := context.WithCancel(context.Background())
		d := h.decider()
		d.Store = cancellingStore{d.Store.(store.Store), approval.DocDecision, before, cancel}
		_, err := d.Decide(ctx, decision(key(1), approval.Approved))
		if before {
			require.ErrorIs(t, err, context.Canceled)
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, !before, h.has(approval.DocDecision, key(1)))
		cancel()
	}
}
