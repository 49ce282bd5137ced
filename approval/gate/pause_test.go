package gate_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc"
)

// newPausableRig is a rig whose gate has the daemon's pause guard.
func newPausableRig(t *testing.T, p options) *rig {
	h := newRig(t, p)
	h.gate.Pauses = &ipc.PauseGuard{Store: h.store}
	return h
}

// pause does what permesso pause does: after it returns, no claim begins.
func (h *rig) pause(name string) {
	s := &ipc.Store{FS: ipc.OS(), Layout: h.layout} // of another process
	require.NoError(h.t, s.Pause(ipc.Pause{Workspace: name, By: "ann", At: h.clock.now()}))
	require.NoError(h.t, h.store.AwaitClaims(name, func() error {
		time.Sleep(100 * time.Microsecond)
		return nil
	}))
}

func (h *rig) resume(name string) {
	_, err := (&ipc.Store{FS: ipc.OS(), Layout: h.layout}).Resume(name, "ann", "", h.clock.now())
	require.NoError(h.t, err)
	h.gate.Resumed()
}

func TestPauseStopsNewRuns(t *testing.T) {
	for _, name := range []string{personal, ipc.AllWorkspaces} {
		t.Run(name, func(t *testing.T) {
			h := newPausableRig(t, options{frozenClock: true, inline: true})
			approved, denied, allowed, cancelled := key(1), key(2), key(3), key(4)
			h.ask(approved, request(approved, "run", ""))
			h.pause(name)
			h.ask(denied, request(denied, "run", "")) // people are still asked
			h.decide(decision(approved, approval.Approved))
			h.decide(decision(denied, approval.Denied))
			h.writeRequest(allowed, request(allowed, "auto", ""))
			h.writeRequest(cancelled, request(cancelled, "auto", ""))
			h.step(approved, denied, allowed, cancelled)
			h.cancel(cancelled)
			h.step(cancelled)
			require.Zero(t, h.executor.count(), "nothing runs")
			require.Equal(t, "none", h.outcome(approved))
			require.Equal(t, "none", h.outcome(allowed))
			require.Contains(t, h.outcome(denied), "denied")
			require.Contains(t, h.outcome(cancelled), "cancelled")

			h.reopen() // a pause survives a restart
			h.gate.Pauses = &ipc.PauseGuard{Store: h.store}
			h.step(approved, allowed)
			require.Zero(t, h.executor.count(), "nothing runs after a restart")

			h.resume(name)
			h.step(approved, allowed)
			require.Equal(t, 2, h.executor.count())
			require.Equal(t, "approved", h.outcome(approved))
			require.Equal(t, "auto_approved", h.outcome(allowed))
		})
	}
}

func TestPauseOfAnotherWorkspace(t *testing.T) {
	h := newPausableRig(t, options{frozenClock: true, inline: true})
	h.pause(other)
	k := key(1)
	h.writeRequest(k, request(k, "auto", ""))
	h.step(k)
	require.Equal(t, "auto_approved", h.outcome(k))
}

// An approval whose RunBefore passes during a pause expires by itself.
func TestApprovalExpiresDuringPause(t *testing.T) {
	h := newPausableRig(t, options{frozenClock: true, inline: true})
	k := key(1)
	h.ask(k, request(k, "run", ""))
	h.pause(personal)
	h.decide(decision(k, approval.Approved))
	retryAt, err := h.gate.Step(context.Background(), k)
	require.NoError(t, err)
	require.WithinDuration(t, h.clock.now().Add(10*time.Minute), retryAt, time.Second, "retried after RunBefore")
	h.clock.move(11 * time.Minute)
	h.step(k)
	require.Contains(t, h.outcome(k), "expired")
	require.Zero(t, h.executor.count())
}

// The file's existence is the pause, whatever its content.
func TestPauseWithoutContent(t *testing.T) {
	for _, content := range []string{"", "{", `{"id":"../../etc"}`, `[]`} {
		h := newPausableRig(t, options{frozenClock: true, inline: true})
		h.write(h.layout.Pauses()+"/"+personal+".json", content)
		k := key(1)
		h.writeRequest(k, request(k, "auto", ""))
		h.step(k)
		require.Equal(t, "none", h.outcome(k), content)
		h.resume(personal)
		h.step(k)
		require.Equal(t, "auto_approved", h.outcome(k), content)
	}
}

// If the pause state cannot be read, nothing runs.
func TestPauseFailsClosed(t *testing.T) {
	h := newPausableRig(t, options{frozenClock: true, inline: true})
	h.write(h.layout.Pauses()+"/broken", "")
	h.gate.Pauses = &ipc.PauseGuard{Store: &ipc.Store{FS: ipc.OS(), Layout: ipc.Layout{Home: h.layout.Pauses() + "/broken"}}}
	k := key(1)
	h.writeRequest(k, request(k, "auto", ""))
	h.step(k)
	require.Equal(t, "none", h.outcome(k))
}

func (h *rig) write(path, content string) {
	require.NoError(h.t, os.WriteFile(path, []byte(content), 0o600))
}

// A pause while many approved requests start: no claim begins after pause returned,
// and the rest runs after resume.
func TestPauseDuringApprovals(t *testing.T) {
	const n = 120
	h := newPausableRig(t, options{limits: approval.Limits{Pending: n, AskPerMinute: 100_000, PerMinute: 100_000, Running: n}})
	h.run(0)
	for i := range n {
		h.writeRequest(key(i), request(key(i), "run", ""))
		h.gate.Wake(key(i))
	}
	for i := range n {
		h.waitFor(time.Minute, "pending", func() bool { return h.has(approval.DocPending, key(i)) })
		h.decide(decision(key(i), approval.Approved))
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
	h.waitFor(time.Minute, "the first run", func() bool { return h.executor.count() > 0 })
	h.pause(personal)
	returned := time.Now()
	claimed := h.claimed(n)
	h.waitFor(time.Minute, "rest", h.gate.Idle)
	require.Equal(t, claimed, h.claimed(n), "a claim began after pause returned")
	waiting := n - len(claimed)
	t.Logf("%d claimed before the pause, %d paused", len(claimed), waiting)
	h.waitFor(time.Minute, "runs", func() bool { return h.executor.count() == len(claimed) })

	h.resume(personal)
	for i := range n {
		r := h.waitResponse(key(i), time.Minute)
		require.Equal(t, approval.StatusApproved, r.Status)
		if !claimed[i] {
			require.True(t, h.record(key(i)).StartedAt.After(returned))
		}
	}
	require.Equal(t, n, h.executor.count(), "each runs once")
}

// claimed returns which requests have, or had, a claim.
func (h *rig) claimed(n int) map[int]bool {
	m := map[int]bool{}
	for i := range n {
		if h.has(approval.DocClaim, key(i)) || h.has(approval.DocRecord, key(i)) {
			m[i] = true
		}
	}
	return m
}

// A paused key is not stepped until an event.
func TestPausedKeysAreNotPolled(t *testing.T) {
	var reads atomic.Int64
	h := newRig(t, options{store: func(s store.Store) store.Store { return before(s, "Read", "", func(approval.Key) { reads.Add(1) }) }})
	h.gate.Pauses = &ipc.PauseGuard{Store: h.store}
	h.pause(personal)
	h.run(0)
	for i := range 10 {
		h.writeRequest(key(i), request(key(i), "auto", ""))
		h.gate.Wake(key(i))
	}
	h.waitFor(time.Minute, "loads", func() bool { return reads.Load() > 0 && h.gate.Idle() })
	before := reads.Load()
	time.Sleep(300 * time.Millisecond) // no event can signal that nothing happens
	require.LessOrEqual(t, reads.Load()-before, int64(10*8), "paused keys are polled")
	h.resume(personal)
	for i := range 10 {
		require.Equal(t, approval.StatusAutoApproved, h.waitResponse(key(i), time.Minute).Status)
	}
}
