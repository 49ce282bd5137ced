package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
)

// newTestFeed is a feed of a log of its own, with n entries in it from before.
func newTestFeed(t *testing.T, n int) (*feed, *audit.Log) {
	t.Helper()
	h := &instance{layout: ipc.Layout{Home: t.TempDir()}, fs: ipc.OS()}
	require.NoError(t, h.layout.PrepareHome(h.fs))
	log, err := audit.Open(h.fs, h.layout.Audit(), nil)
	require.NoError(t, err)
	for i := range n {
		log.Note(approval.Entry{Event: approval.EventRequested, RequestID: fmt.Sprintf("%016x", i), Workspace: "w"})
	}
	require.NoError(t, log.Close())
	log, err = audit.Open(h.fs, h.layout.Audit(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	f := newFeed(h, log)
	log.Heard = f.add
	return f, log
}

func (f *feed) since(t *testing.T, seq int64) (list []int64) {
	t.Helper()
	require.NoError(t, f.Since(seq, func(e approval.Entry) error {
		list = append(list, e.Seq)
		return nil
	}))
	return list
}

// TestFeed follows a log from before its start, and tells only what is durable.
func TestFeed(t *testing.T) {
	f, log := newTestFeed(t, 5)
	newest, _ := f.Moved()
	require.EqualValues(t, 5, newest)
	require.Equal(t, []int64{3, 4, 5}, f.since(t, 2), "from the disk")
	log.Note(approval.Entry{Event: approval.EventExecuted})
	newest, moved := f.Moved()
	require.EqualValues(t, 5, newest, "nobody follows, so nobody needs it to be durable")
	require.Empty(t, f.since(t, 5), "what may still be lost is not told")

	stop := f.Follow()
	newest, _ = f.Moved()
	require.EqualValues(t, 6, newest, "whoever begins to follow begins at the end")
	<-moved
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.run(ctx)
	}()
	_, moved = f.Moved()
	log.Note(approval.Entry{Event: approval.EventExecuted})
	select {
	case <-moved:
	case <-time.After(testTimeout):
		require.Fail(t, "nobody was told")
	}
	require.Equal(t, []int64{6, 7}, f.since(t, 5), "from memory")
	require.Equal(t, []int64{4, 5, 6, 7}, f.since(t, 3), "and from the disk again")
	stop()
	cancel()
	<-done
}

// TestFeedMemoryIsBounded holds the memory that a busy log may take.
func TestFeedMemoryIsBounded(t *testing.T) {
	f, log := newTestFeed(t, 0)
	for range 3 * maxBuffered {
		log.Note(approval.Entry{Event: approval.EventExecuted})
	}
	require.Less(t, len(f.last), 2*maxBuffered)
	defer f.Follow()()
	require.Len(t, f.since(t, 0), 3*maxBuffered, "what is not remembered is read")
	require.Len(t, f.since(t, 2*maxBuffered), maxBuffered)
}

func TestRequestMetrics(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := newRequestMetrics([]approval.Waiting{{Pending: &approval.Pending{SourceGroup: "w", RequestID: "old", Timestamp: began}}})
	c.now = func() time.Time { return began.Add(time.Minute) }
	tell := func(event approval.Event, id, by, via string, after time.Duration) {
		c.observe(approval.Entry{Event: event, Workspace: "w", RequestID: id, By: by, Via: via, Time: began.Add(after)})
	}
	tell(approval.EventRequested, "new", "", "", 30*time.Second)
	require.InDelta(t, 2, c.count("w"), 0)
	require.InDelta(t, 60, c.oldest("w"), 0)
	tell(approval.EventApproved, "old", "ann", "rest", 40*time.Second)
	require.InDelta(t, 1, c.count("w"), 0)
	require.InDelta(t, 30, c.oldest("w"), 0)
	tell(approval.EventExecuted, "old", "ann", "rest", 41*time.Second)
	tell(approval.EventExpired, "new", "deadline", "gate", 50*time.Second)
	tell(approval.EventAutoApproved, "auto", "", "", 51*time.Second)
	tell(approval.EventExecuted, "auto", "", "", 51*time.Second)
	tell(approval.EventRefusedDecider, "new", "", "", 51*time.Second)
	c.observe(approval.Entry{Event: approval.EventPaused, Workspace: "w"})
	require.Zero(t, c.count("w"))
	require.Zero(t, c.oldest("w"))
	var b strings.Builder
	c.metrics.Write(&b)
	for _, line := range []string{
		`permesso_requests_total{workspace="w",status="approved"} 1`, `permesso_requests_total{workspace="w",status="auto_approved"} 1`,
		`permesso_requests_total{workspace="w",status="expired"} 1`, `permesso_decision_seconds_count{workspace="w"} 1`,
		`permesso_events_total{workspace="w",event="refused_decider"} 1`, `permesso_waiting{workspace="w"} 0`,
	} {
		require.Contains(t, b.String(), line+"\n")
	}
	require.NotContains(t, b.String(), "ann")
}
