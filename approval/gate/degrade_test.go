package gate_test

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc"
)

// faultyDisk is the real file system with faults.
type faultyDisk struct {
	ipc.FS
	mu         sync.Mutex
	failCreate func(name string) error // before a file is created
	failSyncFS func() error            // before the file system is synced
	freeBytes  uint64                  // 0: no limit
	created    atomic.Int32            // number of created files
}

func newFaultyDisk() *faultyDisk { return &faultyDisk{FS: ipc.OS()} }

func (d *faultyDisk) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *faultyDisk) OpenFile(name string, flag int, perm os.FileMode) (afero.File, error) {
	d.mu.Lock()
	fail := d.failCreate
	d.mu.Unlock()
	if flag&os.O_CREATE != 0 {
		d.created.Add(1)
		if fail != nil {
			if err := fail(name); err != nil {
				return nil, &fs.PathError{Op: "open", Path: name, Err: err}
			}
		}
	}
	return d.FS.OpenFile(name, flag, perm)
}

func (d *faultyDisk) OpenFS(name string) (ipc.OpenedFS, error) {
	disk, err := d.FS.OpenFS(name)
	return faultySyncs{disk, d}, err
}

type faultySyncs struct {
	ipc.OpenedFS
	d *faultyDisk
}

func (s faultySyncs) Sync() error {
	s.d.mu.Lock()
	fail := s.d.failSyncFS
	s.d.mu.Unlock()
	if fail != nil {
		if err := fail(); err != nil {
			return err
		}
	}
	return s.OpenedFS.Sync()
}

func (d *faultyDisk) Free(string) (bytes, inodes uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.freeBytes == 0 {
		return math.MaxUint64, math.MaxUint64, nil
	}
	return d.freeBytes, math.MaxUint64, nil
}

// isPrivate reports whether a file is neither a request nor in the log.
func isPrivate(name string) bool {
	return !strings.Contains(name, "/requests/") && !strings.Contains(name, "/audit/")
}

const degradedOutcome = `auto_rejected: degraded problem="the disk is almost full"`

func TestDegradationIsLoggedOncePerChange(t *testing.T) {
	disk := newFaultyDisk()
	h := newRig(t, options{frozenClock: true, inline: true, fs: disk})
	var reported []bool
	h.gate.Health = func(p gate.Degradation, present bool) {
		reported = append(reported, present)
		if present {
			require.Equal(t, "the disk is almost full", p.Reason)
			require.NotEmpty(t, p.Hint)
			require.False(t, p.Restart)
		}
	}
	disk.set(func() { disk.freeBytes = 400 << 10 })
	for n := range 20 {
		h.writeRequest(key(n), request(key(n), []string{"auto", "run"}[n%2], ""))
		h.step(key(n))
		require.Equal(t, degradedOutcome, h.outcome(key(n)))
	}
	_, degraded := h.gate.Degraded()
	require.True(t, degraded)
	disk.set(func() { disk.freeBytes = 0 })
	h.clock.move(6 * time.Second)
	h.gate.Examine(context.Background())
	_, degraded = h.gate.Degraded()
	require.False(t, degraded)
	require.Equal(t, []bool{true, false}, reported)
	require.Zero(t, h.executor.count())
	require.Equal(t, 1, strings.Count(h.logs.String(), "gate degraded"))
	require.Equal(t, 1, strings.Count(h.logs.String(), "gate recovered"))
	require.Equal(t, []event.Kind{event.Degraded, event.Recovered}, h.history(approval.Key{}))

	h.writeRequest(key(30), request(key(30), "auto", ""))
	h.step(key(30))
	require.Equal(t, "auto_approved", h.outcome(key(30)))
}

// If no refusal can be written, a request stays in its folder until its timeout.
func TestRequestWaitsUntilDiskWorksOrItExpires(t *testing.T) {
	disk := newFaultyDisk()
	h := newRig(t, options{frozenClock: true, inline: true, fs: disk})
	disk.set(func() { disk.failCreate = func(string) error { return syscall.ENOSPC } })
	h.writeRequest(key(1), request(key(1), "auto", ""))
	_, err := h.gate.Step(context.Background(), key(1))
	require.ErrorIs(t, err, syscall.ENOSPC, "the first write finds the fault")
	for _, k := range []approval.Key{key(1), key(2), key(3)} {
		if k != key(1) {
			h.writeRequest(k, request(k, "auto", "", `"expires_in_sec":60`))
		}
		made := disk.created.Load()
		h.step(k)
		require.Equal(t, made, disk.created.Load(), "no write per request")
		require.Equal(t, "none", h.outcome(k))
		require.True(t, h.has(approval.DocRequest, k))
	}
	h.clock.move(2 * time.Minute)
	disk.set(func() { disk.failCreate = nil })
	h.gate.Examine(context.Background())
	h.step(key(1), key(2), key(3))
	require.Equal(t, "auto_approved", h.outcome(key(1)))
	require.Equal(t, "expired: Approval expired (no response within timeout)", h.outcome(key(2)))
	require.Equal(t, "expired: Approval expired (no response within timeout)", h.outcome(key(3)))
	require.Equal(t, 1, h.executor.count())
}

// An approved request waits for the disk until RunBefore. A late one stays expired,
// even if the clock is set back before that is written.
func TestApprovedWaitsForDiskAndLateStaysExpired(t *testing.T) {
	disk := newFaultyDisk()
	h := newRig(t, options{frozenClock: true, inline: true, fs: disk})
	for _, k := range []approval.Key{key(1), key(2)} {
		h.ask(k, request(k, "run", ""))
	}
	h.decide(decision(key(1), approval.Approved))
	breakDisk := func() {
		disk.set(func() {
			disk.failCreate = func(name string) error {
				if isPrivate(name) {
					return syscall.EIO
				}
				return nil
			}
		})
	}
	repairDisk := func() { disk.set(func() { disk.failCreate = nil }); h.gate.Examine(context.Background()) }
	breakDisk()
	_, err := h.gate.Step(context.Background(), key(1))
	require.ErrorIs(t, err, syscall.EIO)
	h.step(key(1))
	require.Zero(t, h.executor.count())
	repairDisk()
	h.step(key(1))
	require.Equal(t, "approved", h.outcome(key(1)))

	h.decide(decision(key(2), approval.Approved))
	healthy := h.gate.Store
	h.gate.Store = failing(healthy, "Commit", approval.DocRecord, syscall.EIO)
	h.clock.move(time.Hour)
	_, err = h.gate.Step(context.Background(), key(2))
	require.ErrorIs(t, err, syscall.EIO, "the expiry cannot be written")
	h.clock.move(-time.Hour)
	h.gate.Store = healthy
	h.step(key(2))
	require.Equal(t, "expired: approved in time, not run: the gate was down", h.outcome(key(2)))
	require.Empty(t, h.executor.argsOf(key(2)))
}

// The outcome of a finished run needs no room for its files: they follow when there is. Nothing
// new starts meanwhile.
func TestOutcomesAreWrittenWhileDiskIsFull(t *testing.T) {
	disk := newFaultyDisk()
	h := newRig(t, options{frozenClock: true, inline: true, fs: disk})
	h.executor.do = func(approval.Job) approval.Effect {
		disk.set(func() { disk.failCreate = func(string) error { return syscall.ENOSPC } })
		return approval.Effect{Result: approval.Raw(`{"n":1}`)}
	}
	h.writeRequest(key(1), request(key(1), "auto", ""))
	h.step(key(1))
	require.Equal(t, "auto_approved", h.outcome(key(1)))
	file := filepath.Join(h.layout.Responses(personal), key(1).ID+".json")
	require.NoFileExists(t, file)
	h.writeRequest(key(2), request(key(2), "auto", ""))
	_, err := h.gate.Step(context.Background(), key(2))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 1, h.executor.count())
	disk.set(func() { disk.failCreate = nil })
	h.executor.do = nil
	h.gate.Examine(context.Background())
	require.FileExists(t, file)
	h.step(key(1), key(2))
	require.Equal(t, "auto_approved", h.outcome(key(1)))
	require.JSONEq(t, `{"n":1}`, string(h.response(key(1)).Result))
	require.Len(t, h.executor.argsOf(key(1)), 1)
	require.Len(t, h.executor.argsOf(key(2)), 1)
}

// Running requests have reserved their space, so the next request finds none.
func TestSpaceIsReservedForRuns(t *testing.T) {
	disk := newFaultyDisk()
	disk.freeBytes = 3 << 20
	h := newRig(t, options{fs: disk})
	go1 := make(chan struct{})
	h.executor.do = func(approval.Job) approval.Effect {
		<-go1
		return approval.Effect{Result: approval.Raw(`{}`)}
	}
	h.run(0)
	for n := range 3 { // a run reserves 832 KiB
		h.writeRequest(key(n), request(key(n), "auto", ""))
		h.gate.Wake(key(n))
		h.waitFor(10*time.Second, "started", func() bool { return h.executor.count() == n+1 })
	}
	h.writeRequest(key(9), request(key(9), "auto", ""))
	h.gate.Wake(key(9))
	require.Equal(t, approval.StatusAutoRejected, h.waitResponse(key(9), 10*time.Second).Status)
	close(go1)
	for n := range 3 {
		require.Equal(t, approval.StatusAutoApproved, h.waitResponse(key(n), 10*time.Second).Status)
	}
}

func TestToolWithLargeOutputIsRefusedAlone(t *testing.T) {
	disk := newFaultyDisk()
	disk.freeBytes = 4 << 20
	big := approval.Tool{Name: "auto", Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/auto"}, MaxOutput: 1 << 30}}
	h := newRig(t, options{inline: true, fs: disk, tools: map[string]approval.Tool{"auto": big}})
	h.writeRequest(key(1), request(key(1), "auto", ""))
	h.step(key(1))
	require.Contains(t, h.outcome(key(1)), "the free disk space is too small for this tool's max_output")
	h.ask(key(2), request(key(2), "run", ""))
	_, degraded := h.gate.Degraded()
	require.False(t, degraded)
}

// I9: a failure in one workspace's folder does not degrade the gate.
func TestFailureInOneWorkspaceStaysThere(t *testing.T) {
	disk := newFaultyDisk()
	h := newRig(t, options{frozenClock: true, inline: true, fs: disk})
	require.NoError(t, os.Remove(h.layout.Requests(other)))
	for range 5 {
		_, err := h.gate.Step(context.Background(), keyIn(other, 1))
		_ = err // any result
	}
	disk.set(func() {
		disk.failCreate = func(name string) error {
			if strings.Contains(name, filepath.Join("receipts", other)) {
				return syscall.EIO
			}
			return nil
		}
	})
	require.NoError(t, h.layout.Prepare(ipc.OS(), other))
	h.reopen()
	h.writeRequest(keyIn(other, 2), request(keyIn(other, 2), "auto", ""))
	_, err := h.gate.Step(context.Background(), keyIn(other, 2))
	require.ErrorIs(t, err, syscall.EIO)
	_, degraded := h.gate.Degraded()
	require.False(t, degraded)
	h.writeRequest(key(1), request(key(1), "auto", ""))
	h.step(key(1))
	require.Equal(t, "auto_approved", h.outcome(key(1)))
}

// pendingRemover removes the pending while a decision is committed.
type pendingRemover struct{ *ipc.Store }

func (s pendingRemover) Commit(ctx context.Context, ops ...store.Op) error {
	check := ops[0].Check
	ops[0].Check = func() error {
		return errors.Join(s.Remove(ctx, approval.DocPending, ops[0].Key), check())
	}
	return s.Store.Commit(ctx, ops...)
}

func TestDecisionOnRemovedPendingIsWithdrawn(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true})
	h.ask(key(1), request(key(1), "run", ""))
	d := h.decider()
	d.Store = pendingRemover{&ipc.Store{FS: ipc.OS(), Layout: h.layout}}
	_, err := d.Decide(context.Background(), decision(key(1), approval.Approved))
	require.ErrorIs(t, err, decide.ErrUnknown)
	require.ErrorContains(t, err, "removed or replaced")
	require.False(t, h.has(approval.DocDecision, key(1)))
	h.step(key(1))
	require.Zero(t, h.executor.count())
}

// slowStore delays the write of a decision.
type slowStore struct {
	*ipc.Store
	delay func()
}

func (s slowStore) Commit(ctx context.Context, ops ...store.Op) error {
	s.delay()
	return s.Store.Commit(ctx, ops...)
}

func TestLateWrittenApprovalIsNotAcknowledged(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true})
	h.ask(key(1), request(key(1), "run", ""))
	d := h.decider()
	d.Store = slowStore{&ipc.Store{FS: ipc.OS(), Layout: h.layout}, func() { h.clock.move(gate.DefaultRunBefore + time.Minute) }}
	_, err := d.Decide(context.Background(), decision(key(1), approval.Approved))
	require.ErrorIs(t, err, decide.ErrTooLate)
	require.False(t, h.has(approval.DocDecision, key(1)))
	h.step(key(1))
	require.Zero(t, h.executor.count())
	require.Equal(t, "none", h.outcome(key(1)), "still pending")
}
