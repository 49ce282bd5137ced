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

// confirmReporter reports that a decider waits for a durable pending.
type confirmReporter struct {
	*ipc.Store
	asked chan struct{}
}

// Confirm implements store.Store.
func (a confirmReporter) Confirm(ctx context.Context, d approval.Doc, k approval.Key) error {
	a.asked <- struct{}{}
	return a.Store.Confirm(ctx, d, k)
}

// TestDecideWaitsForDurablePending: a pending is visible before it is durable. A
// decision in the daemon waits for the sync: otherwise a power cut could remove the
// pending of an acknowledged decision.
func TestDecideWaitsForDurablePending(t *testing.T) {
	disk := &slowSyncFS{FS: ipc.OS(), begun: make(chan struct{}, 10), end: make(chan struct{})}
	h := newRig(t, options{fs: disk})
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
	store := confirmReporter{h.store, make(chan struct{}, 10)}
	d := h.decider()
	d.Store, d.Decided = store, h.gate.Wake
	decided := make(chan error, 1)
	go func() {
		_, err := d.Decide(context.Background(), decision(key(1), approval.Denied))
		decided <- err
	}()
	select {
	case <-store.asked:
	case err := <-decided:
		require.Fail(t, "decided before the pending was durable", "%v", err)
	}
	require.False(t, h.has(approval.DocDecision, key(1)))
	goOn()
	require.NoError(t, <-asked)
	require.NoError(t, <-decided)

	_, err := h.submit(key(2), request(key(2), "run", ""), apiClient)
	require.NoError(t, err)
	for len(disk.begun) > 0 {
		<-disk.begun
	}
	_, err = d.Decide(context.Background(), decision(key(2), approval.Denied))
	require.NoError(t, err)
	require.Empty(t, disk.begun, "a durable pending is not synced again")
}
