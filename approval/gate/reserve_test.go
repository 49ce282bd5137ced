package gate_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
)

// lastWord is policy that has changed its mind by the time of the claim.
type lastWord struct {
	gate.Policy
	now approval.Ruling
}

func (p *lastWord) Reserve(approval.Facts, approval.Ruling, bool) (undo func(), refused *approval.Ruling) {
	return nil, &p.now
}

// books counts what a gate takes before a claim and gives back.
type books struct{ inside, rooms atomic.Int64 }

func (b *books) Enter(string) bool { b.inside.Add(1); return true }
func (b *books) Leave(string)      { b.inside.Add(-1) }

// roomy counts the room that is set aside.
type roomy struct {
	gate.Store
	gate.HealthStore
	books *books
}

func (r *roomy) Reserve(bytes int64) (release func(), err error) {
	back, err := r.HealthStore.Reserve(bytes)
	if err != nil {
		return nil, err
	}
	r.books.rooms.Add(1)
	return func() { r.books.rooms.Add(-1); back() }, nil
}

// What policy refuses right before the claim does not run, and holds neither
// the brake, which a pause would wait for, nor room, nor a place.
func TestPolicyHasTheLastWord(t *testing.T) {
	for _, c := range []struct {
		why, tool string
		now       approval.Outcome
		approved  bool
		want      string
	}{
		{"an allowed request is asked about after all", "auto", approval.Ask, false, "none"},
		{"an allowed request is denied", "auto", approval.Deny, false, "auto_rejected"},
		{"an approved request is over a hard limit", "run", approval.Deny, true, "failed"},
	} {
		t.Run(c.why, func(t *testing.T) {
			b := &books{}
			h := newHouse(t, plan{memory: true, frozen: true, inline: true, store: func(s gate.Store) gate.Store {
				return &roomy{s, s.(gate.HealthStore), b}
			}})
			h.gate.Pauses = b
			h.gate.Policy = &lastWord{h.gate.Policy, approval.Ruling{Outcome: c.now, Rule: "limits", Reasons: []string{c.now.String() + ": no more today"}}}
			for n := range 20 { // more than there are places
				k := key(n)
				if c.approved {
					h.ask(k, request(k, c.tool, ""))
					h.decide(answer(k, approval.Approved))
				} else {
					h.drop(k, request(k, c.tool, ""))
				}
				h.step(k)
				require.Contains(t, h.outcome(k), c.want)
				require.Equal(t, c.now == approval.Ask, h.has(approval.DocPending, k))
			}
			require.Zero(t, h.hands.count(), "nothing ran")
			require.Zero(t, b.inside.Load(), "a pause would wait for ever")
			require.Zero(t, b.rooms.Load(), "room is lost")
		})
	}
}
