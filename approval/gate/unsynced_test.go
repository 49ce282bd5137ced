package gate_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc"
)

// slowSyncFS blocks the sync of one folder.
type slowSyncFS struct {
	ipc.FS
	dir        string
	begun, end chan struct{}
}

// SyncDir implements ipc.FS.
func (s *slowSyncFS) SyncDir(name string) error {
	if name == s.dir {
		s.begun <- struct{}{}
		<-s.end
	}
	return s.FS.SyncDir(name)
}

// syncReporter reports the syncs of a decider.
type syncReporter struct {
	*ipc.Store
	synced chan struct{}
}

// Sync implements gate.Store.
func (a syncReporter) Sync(d approval.Doc, ws string) error {
	a.synced <- struct{}{}
	return a.Store.Sync(d, ws)
}

// TestDecideWaitsForDurablePending: a pending is visible before it is durable. A
// decision in the daemon waits for the sync: otherwise a power cut could remove the
// pending of an acknowledged decision.
func TestDecideWaitsForDurablePending(t *testing.T) {
	disk := &slowSyncFS{FS: ipc.OS(), begun: make(chan struct{}, 10), end: make(chan struct{})}
	h := newRig(t, options{inMemory: true, fs: disk})
	disk.dir = h.layout.Pendings(personal)
	goOn := sync.OnceFunc(func() { close(disk.end) })
	defer goOn()
	h.run(0)
	asked := make(chan error, 1)
	go func() {
		_, err := h.submit(key(1), request(key(1), "run", ""), apiClient)
		asked <- err
	}()
	<-disk.begun
	require.True(t, h.has(approval.DocPending, key(1)))
	store := syncReporter{h.store, make(chan struct{}, 10)}
	d := h.decider()
	d.Store, d.Daemon, d.Decided = store, true, h.gate.Wake
	decided := make(chan error, 1)
	go func() {
		_, err := d.Decide(context.Background(), decision(key(1), approval.Denied))
		decided <- err
	}()
	select {
	case <-store.synced:
	case err := <-decided:
		require.Fail(t, "decided before the pending was durable", "%v", err)
	}
	require.False(t, h.has(approval.DocDecision, key(1)))
	goOn()
	require.NoError(t, <-asked)
	require.NoError(t, <-decided)

	_, err := h.submit(key(2), request(key(2), "run", ""), apiClient)
	require.NoError(t, err)
	_, err = d.Decide(context.Background(), decision(key(2), approval.Denied))
	require.NoError(t, err)
	require.Empty(t, store.synced, "a durable pending is not synced again")
}
