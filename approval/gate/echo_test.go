package gate_test

import (
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
	for why, ask := range map[string]func(h *house){
		"through a door": func(h *house) {
			_, err := h.submit(key(1), request(key(1), "run", ""), phone)
			require.NoError(t, err)
		},
		"through the folder": func(h *house) {
			h.drop(key(1), request(key(1), "run", ""))
			h.step(key(1))
		},
	} {
		t.Run(why, func(t *testing.T) {
			seen := &glances{}
			h := newHouse(t, plan{memory: true, frozen: true, inline: true, store: func(s gate.Store) gate.Store {
				seen.Store = s
				return seen
			}})
			ask(h)
			require.True(t, h.has(approval.DocPending, key(1)))
			require.EqualValues(t, 1, seen.n.Load())
			h.gate.Hint(key(1), approval.DocPending)
			require.True(t, h.gate.Idle(), "that was the event of our own file")
			h.gate.Hint(key(1), approval.DocPending)
			require.False(t, h.gate.Idle(), "a second one is somebody else's")
		})
	}
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
