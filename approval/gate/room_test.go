package gate_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// fullStore has no room in its journal until free is set.
type fullStore struct {
	store.Store
	mu          sync.Mutex
	free        bool
	freeAfter   bool // a checkpoint frees room
	checkpoints int
	due         bool
	err         error // of a checkpoint
	reserved    []int64
}

func (f *fullStore) Reserve(ctx context.Context, bytes int64) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reserved = append(f.reserved, bytes)
	if !f.free {
		return nil, store.ErrNoRoom
	}
	return f.Store.Reserve(ctx, bytes)
}

func (f *fullStore) Checkpoint(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checkpoints++
	f.free = f.free || f.freeAfter
	return f.err
}

func (f *fullStore) NeedsCheckpoint() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.due
}

func (f *fullStore) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func newFullRig(t *testing.T, o options) (*rig, *fullStore) {
	f := &fullStore{}
	o.store = func(s store.Store) store.Store { f.Store = s; return f }
	return newRig(t, o), f
}

// A full journal is no fault: requests wait, and a checkpoint is asked for. Callers get a
// clear answer after two seconds, and the gate is degraded after five.
func TestFullJournal(t *testing.T) {
	h, f := newFullRig(t, options{frozenClock: true, inline: true})
	f.free = true
	h.ask(key(3), request(key(3), "run", ""))
	h.decide(decision(key(3), approval.Approved))
	f.free = false
	h.writeRequest(key(1), request(key(1), "auto", ""))
	h.writeRequest(key(2), request(key(2), "run", ""))
	waits := func() {
		for _, k := range []approval.Key{key(1), key(2), key(3)} {
			before := f.checkpoints
			retryAt, err := h.gate.Step(context.Background(), k)
			require.NoError(t, err)
			require.Equal(t, 50*time.Millisecond, retryAt.Sub(h.clock.now()))
			require.Equal(t, before+1, f.checkpoints)
			require.Equal(t, "none", h.outcome(k))
		}
	}
	waits()
	_, degraded := h.gate.Degraded()
	require.False(t, degraded)

	submitted := func() error {
		_, err := h.submit(key(4), request(key(4), "auto", ""), apiClient)
		return err
	}
	require.ErrorIs(t, submitted(), submit.ErrPaused, "not yet")
	h.clock.move(2 * time.Second)
	err := submitted()
	require.ErrorIs(t, err, submit.ErrDegraded)
	require.ErrorContains(t, err, "the journal is full")
	require.ErrorIs(t, submitted(), submit.ErrPaused, "a new one waits again")

	waits()
	h.clock.move(3*time.Second + time.Millisecond)
	_, err = h.gate.Step(context.Background(), key(3))
	require.NoError(t, err)
	p, degraded := h.gate.Degraded()
	require.True(t, degraded)
	require.Equal(t, "the journal is full", p.Reason)
	h.gate.Examine(context.Background())
	_, degraded = h.gate.Degraded()
	require.True(t, degraded)

	f.free = true
	h.gate.Examine(context.Background())
	_, degraded = h.gate.Degraded()
	require.False(t, degraded)
	h.step(key(1), key(2), key(3))
	require.Equal(t, "auto_approved", h.outcome(key(1)))
	require.True(t, h.has(approval.DocPending, key(2)))
	require.Equal(t, "approved", h.outcome(key(3)))
}

// A journal that was full for a moment, long ago, was not full all the time.
func TestJournalWasFull(t *testing.T) {
	h, f := newFullRig(t, options{frozenClock: true, inline: true})
	for n := range 4 {
		f.free = false
		h.writeRequest(key(n), request(key(n), "auto", ""))
		h.step(key(n))
		if n%2 == 0 { // else its request was withdrawn
			f.free = true
			h.step(key(n))
			require.Equal(t, "auto_approved", h.outcome(key(n)))
		}
		h.clock.move(time.Duration(n+1) * 6 * time.Second)
		_, degraded := h.gate.Degraded()
		require.False(t, degraded)
	}
}

// A request that waits for room goes on soon after a checkpoint.
func TestCheckpointMakesRoom(t *testing.T) {
	h, f := newFullRig(t, options{})
	f.freeAfter = true
	h.run(0)
	_, err := h.submit(key(1), request(key(1), "auto", ""), apiClient)
	require.NoError(t, err)
	h.waitResponse(key(1), waitLimit)
	require.Equal(t, approval.StatusAutoApproved, h.response(key(1)).Status)
}

// The gate looks every second whether a checkpoint is due, and repeats one that failed. After
// one that must not be repeated it stops.
func TestCheckpointsWhenDue(t *testing.T) {
	h, f := newFullRig(t, options{})
	f.free = true
	h.run(0)
	made := func() (n int) { f.set(func() { n = f.checkpoints }); return n }
	f.set(func() { f.due, f.err = true, errors.New("files wait for space") })
	h.waitFor(waitLimit, "a checkpoint", func() bool { return made() == 1 })
	f.set(func() { f.due = false })
	h.waitFor(waitLimit, "its repetition", func() bool { return made() == 2 })
	require.Contains(t, h.logs.String(), "files wait for space")
	_, degraded := h.gate.Degraded()
	require.False(t, degraded)
	f.set(func() { f.err = store.ErrRestart })
	h.waitFor(waitLimit, "the stop", func() bool { p, _ := h.gate.Degraded(); return p.Restart })
	stopped := made()
	_, err := h.submit(key(1), request(key(1), "auto", ""), apiClient)
	require.ErrorIs(t, err, submit.ErrDegraded)
	require.Equal(t, stopped, made())
}

// A tool that runs nothing has no output, and reserves no space for it.
func TestReleaseReservesNoOutput(t *testing.T) {
	for tool, want := range map[string]int64{"receipt": 64 << 10, "run": 64<<10 + 3*256<<10} {
		h, f := newFullRig(t, options{frozenClock: true, inline: true})
		f.free = true
		body := request(key(1), tool, "")
		h.ask(key(1), body)
		require.Equal(t, []int64{want + 4*int64(len(body))}, f.reserved, tool)
	}
}
