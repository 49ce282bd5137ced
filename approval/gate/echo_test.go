package gate_test

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
)

// glances counts how often a key is looked at: each look reads for a record.
type glances struct {
	gate.Store
	n atomic.Int32
}

func (l *glances) Read(d approval.Doc, k approval.Key) ([]byte, error) {
	if d == approval.DocRecord {
		l.n.Add(1)
	}
	return l.Store.Read(d, k)
}

// TestAskingIsOneLook: what the gate has just written it need not read again,
// neither at once nor when the folder says that something has come.
func TestAskingIsOneLook(t *testing.T) {
	for why, tt := range map[string]struct {
		looks int
		ask   func(h *house)
	}{
		"through a door": {1, func(h *house) {
			_, err := h.submit(key(1), request(key(1), "run", ""), phone)
			require.NoError(t, err)
		}},
		"with an id that was just drawn": {0, func(h *house) {
			_, err := h.submit(key(1), request(key(1), "run", ""), drawn)
			require.NoError(t, err)
		}},
		"through the folder": {1, func(h *house) {
			h.drop(key(1), request(key(1), "run", ""))
			h.step(key(1))
		}},
	} {
		t.Run(why, func(t *testing.T) {
			seen := &glances{}
			h := newHouse(t, plan{memory: true, frozen: true, inline: true, store: func(s gate.Store) gate.Store {
				seen.Store = s
				return seen
			}})
			tt.ask(h)
			require.True(t, h.has(approval.DocPending, key(1)))
			require.EqualValues(t, tt.looks, seen.n.Load())
			h.gate.Hint(key(1), approval.DocPending)
			require.True(t, h.gate.Idle(), "that was the event of our own file")
			h.gate.Hint(key(1), approval.DocPending)
			require.False(t, h.gate.Idle(), "a second one is somebody else's")
		})
	}
}

// drawn is phone, with an id that its door has just drawn.
var drawn = approval.Origin{ClientID: phone.ClientID, Fresh: true}

// TestDrawnTwice: a door that calls an id new which is not overwrites nothing and
// runs nothing, whatever lies there; and it is believed once.
func TestDrawnTwice(t *testing.T) {
	for _, tool := range []string{"run", "auto", "never"} {
		for _, other := range []string{"run", "auto", "never"} {
			h := newHouse(t, plan{memory: true, frozen: true, inline: true})
			_, err := h.submit(key(1), request(key(1), tool, ""), drawn)
			require.NoError(t, err)
			before, ran := h.outcome(key(1)), len(h.hands.of(key(1)))
			_, err = h.submit(key(1), request(key(1), other, `{"n":2}`), drawn)
			require.Error(t, err, "%s, then %s", tool, other)
			h.step(key(1))
			require.Equal(t, before, h.outcome(key(1)), "%s, then %s", tool, other)
			require.Len(t, h.hands.of(key(1)), ran, "%s, then %s", tool, other)
			require.True(t, h.has(approval.DocPending, key(1)) || h.has(approval.DocRecord, key(1)))
		}
	}
}

// TestDrawnAndHeld: what could not be taken in at the first look is looked at as a
// whole from then on.
func TestDrawnAndHeld(t *testing.T) {
	seen := &glances{}
	h := newHouse(t, plan{memory: true, frozen: true, store: func(s gate.Store) gate.Store {
		seen.Store = s
		return seen
	}})
	h.gate.Pauses = stuck{}
	h.run(0)
	ctx, cancel := context.WithCancel(context.Background())
	waits, left := make(chan struct{}, 2), make(chan error, 1)
	go func() {
		_, err := h.gate.Submit(watched{ctx, func() { waits <- struct{}{} }}, key(1), []byte(request(key(1), "auto", "")), drawn)
		left <- err
	}()
	<-waits
	h.await(5*time.Second, "rest", h.gate.Idle)
	require.Zero(t, seen.n.Load())
	h.gate.Wake(key(1))
	h.await(5*time.Second, "rest", h.gate.Idle)
	require.NotZero(t, seen.n.Load())
	cancel()
	require.ErrorIs(t, <-left, approval.ErrPaused)
}

// TestEventsOfOthers: an event that is not that of our own writing wakes its key.
func TestEventsOfOthers(t *testing.T) {
	for why, tt := range map[string]struct {
		plan plan
		do   func(h *house)
		doc  approval.Doc
	}{
		"a decision":        {doc: approval.DocDecision},
		"a response":        {doc: approval.DocResponse},
		"one too late":      {doc: approval.DocPending, do: func(h *house) { h.clock.move(4 * time.Second) }},
		"of a failed write": {doc: approval.DocPending, plan: plan{store: func(s gate.Store) gate.Store { return failing{Store: s, doc: approval.DocPending, err: syscall.EIO} }}},
	} {
		t.Run(why, func(t *testing.T) {
			tt.plan.memory, tt.plan.frozen, tt.plan.inline = true, true, true
			h := newHouse(t, tt.plan)
			_, err := h.submit(key(1), request(key(1), "run", ""), phone)
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

// TestAskedWithCompany: whatever else lay there when somebody was asked is still
// looked at.
func TestAskedWithCompany(t *testing.T) {
	h := newHouse(t, plan{memory: true, frozen: true, inline: true})
	h.drop(key(1), request(key(1), "run", ""))
	h.cancel(key(1))
	h.step(key(1))
	require.Equal(t, approval.StatusCancelled, h.response(key(1)).Status)

	sync, err := h.store.Publish(key(2), []byte(`{"status":"approved"}`))
	require.NoError(t, err)
	require.NoError(t, sync())
	h.ask(key(2), request(key(2), "run", ""))
	require.False(t, h.has(approval.DocResponse, key(2)), "nobody has approved that")

	require.NoError(t, h.store.Create(approval.DocDecision, key(3), []byte(`{"approved":true}`), approval.Volatile))
	h.ask(key(3), request(key(3), "run", ""))
	require.False(t, h.has(approval.DocDecision, key(3)), "it was there before the question")
	require.Contains(t, h.refusals(home), "a decision that is not valid")
}
