package gate_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/store"
)

// refusingPolicy refuses in Reserve.
type refusingPolicy struct {
	gate.Policy
	ruling approval.Ruling
}

func (p *refusingPolicy) Reserve(approval.Facts, approval.Ruling, bool) (undo func(), refused *approval.Ruling) {
	return nil, &p.ruling
}

// counters count what the gate takes before a claim and has not released.
type counters struct{ claims, reservations atomic.Int64 }

func (b *counters) Enter(string) bool { b.claims.Add(1); return true }
func (b *counters) Leave(string)      { b.claims.Add(-1) }

// countingHealthStore counts the space reservations.
type countingHealthStore struct {
	store.Store
	counters *counters
}

func (r *countingHealthStore) Reserve(ctx context.Context, bytes int64) (release func(), err error) {
	back, err := r.Store.Reserve(ctx, bytes)
	if err != nil {
		return nil, err
	}
	r.counters.reservations.Add(1)
	return func() { r.counters.reservations.Add(-1); back() }, nil
}

// A run that Reserve refuses does not start, and releases the pause guard, the space
// and the slot.
func TestReserveCanRefuse(t *testing.T) {
	for _, c := range []struct {
		why, tool string
		now       approval.Outcome
		approved  bool
		want      string
	}{
		{"an allowed request becomes an ask", "auto", approval.Ask, false, "none"},
		{"an allowed request is denied", "auto", approval.Deny, false, "auto_rejected"},
		{"an approved request is over a hard limit", "run", approval.Deny, true, "failed"},
	} {
		t.Run(c.why, func(t *testing.T) {
			b := &counters{}
			h := newRig(t, options{frozenClock: true, inline: true, store: func(s store.Store) store.Store {
				return &countingHealthStore{s, b}
			}})
			h.gate.Pauses = b
			limited := 0
			h.gate.Limited = func(string) { limited++ }
			refusing := &refusingPolicy{h.Policy, approval.Ruling{Outcome: c.now, Rule: "limits", Reasons: []approval.Reason{approval.Because("cost_day_deny", "n", "5", "max", "4")}}}
			h.gate.Config = func() (gate.Settings, gate.Policy) { return h, refusing }
			for n := range 20 { // more than there are slots
				k := key(n)
				if c.approved {
					h.ask(k, request(k, c.tool, ""))
					h.decide(decision(k, approval.Approved))
				} else {
					h.writeRequest(k, request(k, c.tool, ""))
				}
				h.step(k)
				require.Contains(t, h.outcome(k), c.want)
				require.Equal(t, c.now == approval.Ask, h.has(approval.DocPending, k))
			}
			require.Zero(t, h.executor.count(), "nothing ran")
			require.Equal(t, c.want == "auto_rejected", limited == 20, "a limit refused them, unseen: %d", limited)
			require.Zero(t, b.claims.Load(), "the pause guard is released")
			require.Zero(t, b.reservations.Load(), "the space is released")
		})
	}
}
