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
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// If a checkpoint's sync fails, it is unknown which files are durable: nothing is done any
// more. A restart repairs the files and goes on, and nothing runs twice.
func TestFailedCheckpointStopsTheGate(t *testing.T) {
	const many = 40
	disk := newFaultyDisk()
	h := newRig(t, options{fs: disk, limits: approval.Limits{PerMinute: 10_000, Running: many}})
	reported := make(chan gate.Degradation, 10)
	h.gate.Health = func(p gate.Degradation, _ bool) { reported <- p }
	h.ask(key(50), request(key(50), "run", ""))
	for n := range many {
		h.writeRequest(key(n), request(key(n), "auto", ""))
		h.keys = append(h.keys, key(n))
	}
	disk.set(func() { disk.failSyncFS = func() error { return syscall.EIO } })
	h.run(0)
	require.Error(t, h.gate.Store.Checkpoint(context.Background()))
	k := key(99)
	h.writeRequest(k, request(k, "auto", ""))
	h.gate.Wake(k)
	require.True(t, (<-reported).Restart)
	h.waitFor(waitLimit, "idle", h.gate.Idle)
	_, err := h.submit(key(98), request(key(98), "auto", ""), apiClient)
	require.ErrorIs(t, err, submit.ErrDegraded)
	require.ErrorContains(t, err, "must not be retried")
	_, err = h.gate.Step(context.Background(), k)
	require.NoError(t, err)
	require.Empty(t, h.executor.argsOf(k), "nothing new starts")
	disk.set(func() { disk.failSyncFS = nil })
	h.gate.Examine(context.Background())
	p, _ := h.gate.Degraded()
	require.True(t, p.Restart, "only a restart ends it")
	require.Empty(t, reported, "reported once")

	h.Crash()
	h.open()
	h.keys = append(h.keys, k)
	h.run(0)
	for n := range many {
		require.Contains(t, []approval.Status{approval.StatusAutoApproved, approval.StatusInterrupted}, h.waitResponse(key(n), waitLimit).Status)
		require.LessOrEqual(t, len(h.executor.argsOf(key(n))), 1)
	}
	require.Equal(t, approval.StatusAutoApproved, h.waitResponse(k, waitLimit).Status)
	require.True(t, h.has(approval.DocPending, key(50)), "still asked")
}

// A request that is being taken in when the gate stops waits for the next start, as one that comes later does.
func TestRequestInAStoppingGateWaits(t *testing.T) {
	disk := newFaultyDisk()
	h := newRig(t, options{fs: disk})
	h.ask(key(1), request(key(1), "run", ""))
	h.writeRequest(key(2), request(key(2), "auto", ""))
	disk.set(func() { disk.failSyncFS = func() error { return syscall.EIO } })
	config, stopped := h.gate.Config, false
	h.gate.Config = func() (gate.Settings, gate.Policy) {
		if !stopped {
			stopped = true
			require.Error(t, h.gate.Store.Checkpoint(t.Context()))
			h.gate.Examine(t.Context())
		}
		return config()
	}
	_, err := h.gate.Step(t.Context(), key(2))
	require.NoError(t, err)
	p, _ := h.gate.Degraded()
	require.True(t, stopped && p.Restart)
	require.False(t, h.has(approval.DocResponse, key(2)))

	disk.set(func() { disk.failSyncFS = nil })
	h.Crash()
	h.open()
	h.keys = append(h.keys, key(2))
	h.run(0)
	require.Equal(t, approval.StatusAutoApproved, h.waitResponse(key(2), waitLimit).Status)
}

// A stopped gate tries nothing again, and does not wait for outcomes that it cannot write.
func TestStoppedGateEndsAtOnce(t *testing.T) {
	var tries atomic.Int32
	h := newRig(t, options{store: func(s store.Store) store.Store {
		s = failing(s, "Commit", approval.DocRecord, store.ErrRestart)
		return before(s, "Commit", approval.DocRecord, func(approval.Key) { tries.Add(1) })
	}})
	h.run(0)
	h.writeRequest(key(1), request(key(1), "auto", ""))
	h.gate.Wake(key(1))
	h.waitFor(waitLimit, "stopped", func() bool { p, _ := h.gate.Degraded(); return p.Restart })
	h.waitFor(waitLimit, "idle", h.gate.Idle)
	h.step(key(1))
	began := time.Now()
	h.Stop()
	require.EqualValues(t, 1, tries.Load())
	require.Less(t, time.Since(began), 5*time.Second)
	require.Equal(t, 1, h.executor.count())
	require.Equal(t, "none", h.outcome(key(1)))
	h.options.store = nil
	h.reopen()
	h.step(key(1))
	require.Equal(t, approval.StatusInterrupted, h.response(key(1)).Status)
}

// probedStore counts examinations.
type probedStore struct {
	store.Store
	probes atomic.Int32
}

func (s *probedStore) Probe(ctx context.Context) error {
	s.probes.Add(1)
	return s.Store.Probe(ctx)
}

// No other error, and no examination, ends a stop.
func TestStopIsFinal(t *testing.T) {
	var h *rig
	p := &probedStore{}
	h = newRig(t, options{inline: true, store: func(s store.Store) store.Store {
		p.Store = hookedStore{Store: s, method: "Commit", doc: approval.DocRecord, before: func(k approval.Key) error {
			if k == key(2) {
				return store.ErrRestart
			}
			_, err := h.gate.Step(context.Background(), key(2))
			require.ErrorIs(t, err, store.ErrRestart)
			return store.ErrNoSpace
		}}
		return p
	}})
	for n := 1; n <= 2; n++ {
		h.writeRequest(key(n), request(key(n), "never", ""))
	}
	_, err := h.gate.Step(context.Background(), key(1))
	require.ErrorIs(t, err, store.ErrNoSpace)
	h.gate.Examine(context.Background())
	d, _ := h.gate.Degraded()
	require.True(t, d.Restart)
	require.Zero(t, p.probes.Load(), "nothing is done any more")
}
