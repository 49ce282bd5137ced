package read_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/read"
)

var began = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// longLog has n requests, each of which ended just before the next was asked. newest gets
// the number of entries that were read.
func longLog(n int, entries *int) read.Log {
	return func(_ func([]byte) bool, each func(event.Entry) error) error {
		for i := n; i > 0; i-- {
			e := event.Entry{Workspace: "w", RequestID: fmt.Sprintf("%016x", i), Tool: fmt.Sprint("tool", i%3), Reason: strings.Repeat("because ", 20)}
			e.Time, e.Event, e.By, e.Via = began.Add(time.Duration(3*i+1)*time.Second), event.DeniedByUser, "ann", "cli"
			if *entries++; each(e) != nil {
				return errGone
			}
			e.Time, e.Event, e.By, e.Via = began.Add(time.Duration(3*i)*time.Second), event.Requested, "", ""
			if *entries++; each(e) != nil {
				return errGone
			}
		}
		return nil
	}
}

var errGone = errors.New("the reader has gone")

func liveBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

const many = 100_000

// A request is passed on as soon as its first entry is read, and is not kept.
func TestEachKeepsNoRequest(t *testing.T) {
	entries, n, before, most := 0, 0, liveBytes(), int64(0)
	err := read.Each(longLog(many, &entries), read.Query{}, func(r *read.Request) error {
		n++
		require.Equal(t, fmt.Sprintf("%016x", many+1-n), r.Key.ID, "newest first")
		require.Equal(t, 2*n, entries, "no entry was read that it does not need")
		if n%20_000 == 0 {
			most = max(most, liveBytes()-before)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, many, n)
	require.Less(t, most, int64(1<<20))

	entries = 0
	require.ErrorIs(t, read.Each(longLog(many, &entries), read.Query{}, func(*read.Request) error { return errGone }), errGone)
	require.Equal(t, 2, entries)
}

// Of each decision, statistics keep the time it took.
func TestStatsKeepNoRequest(t *testing.T) {
	entries, before, most := 0, liveBytes(), int64(0)
	st := read.NewStats(func(count func(*read.Request) bool) {
		require.NoError(t, read.Each(longLog(many, &entries), read.Query{}, func(r *read.Request) error {
			count(r)
			if entries%50_000 == 0 {
				most = max(most, liveBytes()-before)
			}
			return nil
		}))
	})
	require.Equal(t, many, st.Requests)
	require.InDelta(t, 1, *st.Median, 0.001)
	require.Less(t, most, int64(8<<20))
}

// TestStepsAreNoRequests: a step of a program is a part of its request.
func TestStepsAreNoRequests(t *testing.T) {
	k := approval.Key{Workspace: "w", ID: fmt.Sprintf("%016x", 1)}
	log := func(_ func([]byte) bool, each func(event.Entry) error) error {
		for _, e := range []event.Entry{
			{Event: event.Executed, RequestID: k.ID},
			{Event: event.Executed, RequestID: k.StepKey(1).ID},
			{Event: event.Approved, RequestID: k.StepKey(1).ID},
			{Event: event.Approved, RequestID: k.ID},
			{Event: event.Requested, RequestID: k.ID},
		} {
			e.Workspace, e.Time = "w", began
			if err := each(e); err != nil {
				return err
			}
		}
		return nil
	}
	found, _, err := read.Requests(log, read.Query{})
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, k, found[0].Key)
}
