package gate_test

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/ipc"
)

// pausable is a house whose gate has the brake that serve gives it.
func pausable(t *testing.T, p plan) *house {
	h := newHouse(t, p)
	h.gate.Pauses = &ipc.PauseGuard{Store: h.store}
	return h
}

// pause does what permesso pause does: from its return on nothing is begun.
func (h *house) pause(name string) {
	s := &ipc.Store{FS: ipc.OS(), Layout: h.layout} // another process's
	require.NoError(h.t, s.Pause(ipc.Pause{Workspace: name, By: "ann", At: h.clock.now()}))
	require.NoError(h.t, s.AwaitClaims(name, func() error {
		time.Sleep(100 * time.Microsecond)
		return nil
	}))
}

func (h *house) resume(name string) {
	_, err := (&ipc.Store{FS: ipc.OS(), Layout: h.layout}).Resume(name, "ann", h.clock.now())
	require.NoError(h.t, err)
	h.gate.Resumed()
}

// What a pause holds and what it lets pass.
func TestPauseHoldsWhatWouldRun(t *testing.T) {
	for _, name := range []string{home, ipc.Everything} {
		t.Run(name, func(t *testing.T) {
			h := pausable(t, plan{memory: true, frozen: true, inline: true})
			approved, denied, allowed, cancelled := key(1), key(2), key(3), key(4)
			h.ask(approved, request(approved, "run", ""))
			h.pause(name)
			h.ask(denied, request(denied, "run", "")) // people are still asked
			h.decide(answer(approved, approval.Approved))
			h.decide(answer(denied, approval.Denied))
			h.drop(allowed, request(allowed, "auto", ""))
			h.drop(cancelled, request(cancelled, "auto", ""))
			h.step(approved, denied, allowed, cancelled)
			h.cancel(cancelled)
			h.step(cancelled)
			require.Zero(t, h.hands.count(), "nothing runs")
			require.Equal(t, "none", h.outcome(approved))
			require.Equal(t, "none", h.outcome(allowed))
			require.Contains(t, h.outcome(denied), "denied")
			require.Contains(t, h.outcome(cancelled), "cancelled")

			h.reopen() // a pause survives a restart
			h.gate.Pauses = &ipc.PauseGuard{Store: h.store}
			h.step(approved, allowed)
			require.Zero(t, h.hands.count(), "nothing runs after a restart")

			h.resume(name)
			h.step(approved, allowed)
			require.Equal(t, 2, h.hands.count())
			require.Equal(t, "approved", h.outcome(approved))
			require.Equal(t, "auto_approved", h.outcome(allowed))
		})
	}
}

func TestPauseOfAnotherWorkspace(t *testing.T) {
	h := pausable(t, plan{memory: true, frozen: true, inline: true})
	h.pause(other)
	k := key(1)
	h.drop(k, request(k, "auto", ""))
	h.step(k)
	require.Equal(t, "auto_approved", h.outcome(k))
}

// An approval whose time passes during the pause ends as expired, by itself.
func TestPauseOutlastsAnApproval(t *testing.T) {
	h := pausable(t, plan{memory: true, frozen: true, inline: true})
	k := key(1)
	h.ask(k, request(k, "run", ""))
	h.pause(home)
	h.decide(answer(k, approval.Approved))
	again, err := h.gate.Step(k)
	require.NoError(t, err)
	require.WithinDuration(t, h.clock.now().Add(10*time.Minute), again, time.Second, "it looks again when it is too late, not before")
	h.clock.move(11 * time.Minute)
	h.step(k)
	require.Contains(t, h.outcome(k), "expired")
	require.Zero(t, h.hands.count())
}

// The order is the file's presence: whatever is in it.
func TestPauseWithoutContent(t *testing.T) {
	for _, content := range []string{"", "{", `{"id":"../../etc"}`, `[]`} {
		h := pausable(t, plan{memory: true, frozen: true, inline: true})
		h.write(h.layout.Pauses()+"/"+home+".json", content)
		k := key(1)
		h.drop(k, request(k, "auto", ""))
		h.step(k)
		require.Equal(t, "none", h.outcome(k), content)
		h.resume(home)
		h.step(k)
		require.Equal(t, "auto_approved", h.outcome(k), content)
	}
}

// Everything waits while what it needs to know cannot be read.
func TestPauseFailsClosed(t *testing.T) {
	h := pausable(t, plan{memory: true, frozen: true, inline: true})
	h.write(h.layout.Pauses()+"/broken", "")
	h.gate.Pauses = &ipc.PauseGuard{Store: &ipc.Store{FS: ipc.OS(), Layout: ipc.Layout{Home: h.layout.Pauses() + "/broken"}}}
	k := key(1)
	h.drop(k, request(k, "auto", ""))
	h.step(k)
	require.Equal(t, "none", h.outcome(k))
}

func (h *house) write(path, content string) {
	require.NoError(h.t, os.WriteFile(path, []byte(content), 0o600))
}

// looks counts what the gate reads.
type looks struct {
	gate.Store
	n *atomic.Int64
}

func (l looks) Read(d approval.Doc, k approval.Key) ([]byte, error) {
	l.n.Add(1)
	return l.Store.Read(d, k)
}

// A crowd of approved requests, and a pause in the middle: what is claimed was
// claimed before pause returned, and the rest runs after resume.
func TestPauseInTheMiddle(t *testing.T) {
	const n = 120
	h := pausable(t, plan{limits: approval.Limits{Pending: n, AskPerMinute: 100_000, PerMinute: 100_000, Running: n}})
	h.run(0)
	for i := range n {
		h.drop(key(i), request(key(i), "run", ""))
		h.gate.Wake(key(i))
	}
	for i := range n {
		h.await(time.Minute, "pending", func() bool { return h.has(approval.DocPending, key(i)) })
		h.decide(answer(key(i), approval.Approved))
	}
	began := make(chan struct{})
	go func() {
		for i := range n {
			h.gate.Wake(key(i))
			if i == n/8 {
				close(began)
			}
		}
	}()
	<-began
	h.await(time.Minute, "the first run", func() bool { return h.hands.count() > 0 })
	h.pause(home)
	returned := time.Now()
	claimed := h.claimed(n)
	h.await(time.Minute, "rest", h.gate.Idle)
	require.Equal(t, claimed, h.claimed(n), "a claim began after pause had returned")
	held := n - len(claimed)
	t.Logf("%d claimed before the pause, %d held", len(claimed), held)
	h.await(time.Minute, "runs", func() bool { return h.hands.count() == len(claimed) })

	h.resume(home)
	for i := range n {
		r := h.answered(key(i), time.Minute)
		require.Equal(t, approval.StatusApproved, r.Status)
		if !claimed[i] {
			require.True(t, h.record(key(i)).StartedAt.After(returned))
		}
	}
	require.Equal(t, n, h.hands.count(), "each once")
}

// claimed says which requests have a claim, or had one.
func (h *house) claimed(n int) map[int]bool {
	m := map[int]bool{}
	for i := range n {
		if h.has(approval.DocClaim, key(i)) || h.has(approval.DocRecord, key(i)) {
			m[i] = true
		}
	}
	return m
}

// What is held does not turn in circles: it is looked at when something
// happens.
func TestPauseIsQuiet(t *testing.T) {
	var reads atomic.Int64
	h := newHouse(t, plan{store: func(s gate.Store) gate.Store { return looks{s, &reads} }})
	h.gate.Pauses = &ipc.PauseGuard{Store: h.store}
	h.pause(home)
	h.run(0)
	for i := range 10 {
		h.drop(key(i), request(key(i), "auto", ""))
		h.gate.Wake(key(i))
	}
	h.await(time.Minute, "looks", func() bool { return reads.Load() > 0 && h.gate.Idle() })
	before := reads.Load()
	time.Sleep(300 * time.Millisecond) // the absence of something has no event
	require.LessOrEqual(t, reads.Load()-before, int64(10*8), "looked again and again")
	h.resume(home)
	for i := range 10 {
		require.Equal(t, approval.StatusAutoApproved, h.answered(key(i), time.Minute).Status)
	}
}
