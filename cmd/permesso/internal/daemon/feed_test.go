package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/audit/audittest"
)

// newTestFeed is a feed of a new log that already has n entries.
func newTestFeed(t *testing.T, n int) (*feed, *audit.Log) {
	t.Helper()
	h := &home.Home{Layout: ipc.Layout{Home: t.TempDir()}, FS: ipc.OS()}
	require.NoError(t, h.Layout.PrepareHome(h.FS))
	log, err := audit.OpenSigned(h.FS, h.Layout.Audit(), nil, audit.Keys{})
	require.NoError(t, err)
	audittest.Attach(log)
	for i := range n {
		log.Note(event.Entry{Event: event.Requested, RequestID: fmt.Sprintf("%016x", i), Workspace: "w"})
	}
	require.NoError(t, log.Close())
	log, err = audit.OpenSigned(h.FS, h.Layout.Audit(), nil, audit.Keys{})
	require.NoError(t, err)
	audittest.Attach(log)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	f := newFeed(h, log)
	log.OnEntry, log.OnWritten = f.add, f.written
	return f, log
}

func (f *feed) since(t *testing.T, seq int64) (list []int64) {
	t.Helper()
	require.NoError(t, f.Since(seq, func(e event.Entry) error {
		list = append(list, e.Seq)
		return nil
	}))
	return list
}

// TestFeed follows a log with old entries. The feed returns only durable entries.
func TestFeed(t *testing.T) {
	f, log := newTestFeed(t, 5)
	newest, _ := f.Moved()
	require.EqualValues(t, 5, newest)
	require.Equal(t, []int64{3, 4, 5}, f.since(t, 2), "from the disk")
	log.Note(event.Entry{Event: event.Executed})
	newest, _ = f.Moved()
	require.EqualValues(t, 5, newest, "the feed does not sync")
	require.Empty(t, f.since(t, 5), "an entry that is not durable is not returned")

	for n := range int64(2) {
		_, moved := f.Moved()
		log.Note(event.Entry{Event: event.Executed})
		require.NoError(t, log.Sync())
		select {
		case <-moved:
		default:
			require.Fail(t, "no follower was notified")
		}
		newest, _ = f.Moved()
		require.Equal(t, 7+n, newest)
	}
	require.Equal(t, []int64{6, 7, 8}, f.since(t, 5), "from memory")
	require.Equal(t, []int64{4, 5, 6, 7, 8}, f.since(t, 3), "again from the disk")
}

// TestFeedMemoryIsBounded bounds the buffer for a busy log.
func TestFeedMemoryIsBounded(t *testing.T) {
	f, log := newTestFeed(t, 0)
	for range 3 * maxBuffered {
		log.Note(event.Entry{Event: event.Executed})
	}
	require.Less(t, len(f.last), 2*maxBuffered)
	require.NoError(t, log.Sync())
	require.Len(t, f.since(t, 0), 3*maxBuffered, "older entries are read from the disk")
	require.Len(t, f.since(t, 2*maxBuffered), maxBuffered)
}

func TestRequestMetrics(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := newRequestMetrics([]approval.StoredPending{{Pending: &approval.Pending{SourceGroup: "w", RequestID: "old", Timestamp: began}}})
	c.now = func() time.Time { return began.Add(time.Minute) }
	observe := func(kind event.Kind, id, by, via string, after time.Duration) {
		c.observe(event.Entry{Event: kind, Workspace: "w", RequestID: id, By: by, Via: via, Time: began.Add(after)})
	}
	observe(event.Requested, "new", "", "", 30*time.Second)
	require.InDelta(t, 2, c.count("w"), 0)
	require.InDelta(t, 60, c.oldest("w"), 0)
	observe(event.Approved, "old", "ann", "rest", 40*time.Second)
	require.InDelta(t, 1, c.count("w"), 0)
	require.InDelta(t, 30, c.oldest("w"), 0)
	observe(event.Executed, "old", "ann", "rest", 41*time.Second)
	observe(event.Expired, "new", "deadline", "gate", 50*time.Second)
	observe(event.AutoApproved, "auto", "", "", 51*time.Second)
	observe(event.Executed, "auto", "", "", 51*time.Second)
	observe(event.RefusedDecider, "new", "", "", 51*time.Second)
	c.observe(event.Entry{Event: event.Paused, Workspace: "w"})
	require.Zero(t, c.count("w"))
	require.Zero(t, c.oldest("w"))
	var b strings.Builder
	c.metrics.WritePrometheus(&b)
	for _, line := range []string{
		`permesso_requests_total{workspace="w",status="approved"} 1`, `permesso_requests_total{workspace="w",status="auto_approved"} 1`,
		`permesso_requests_total{workspace="w",status="expired"} 1`, `permesso_decision_seconds_count{workspace="w"} 1`,
		`permesso_events_total{workspace="w",event="refused_decider"} 1`, `permesso_waiting{workspace="w"} 0`,
	} {
		require.Contains(t, b.String(), line+"\n")
	}
	require.NotContains(t, b.String(), "ann")
}
