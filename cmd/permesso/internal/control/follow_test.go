package control

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

// An answer waits for the log to move on, and is complete at once where it has.
func TestFollow(t *testing.T) {
	h, k := newHome(t)
	s := filesService(h, k, nil)
	moved := make(chan struct{})
	var at atomic.Int64
	at.Store(7)
	s.Moved = func() (int64, <-chan struct{}) { return at.Load(), moved }
	operator := &httpapi.Caller{Person: home.Operator(), Operator: true}
	d, err := s.follow(t.Context(), operator, &followQuery{})
	require.NoError(t, err)
	require.Equal(t, int64(7), d.At)
	require.Len(t, d.Waiting, 1)

	answers := make(chan followDoc, 1)
	go func() {
		d, _ := s.follow(t.Context(), operator, &followQuery{After: 7})
		answers <- d
	}()
	select {
	case <-answers:
		require.Fail(t, "it did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	at.Store(8)
	close(moved)
	require.Equal(t, int64(8), (<-answers).At)

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	s.Moved = func() (int64, <-chan struct{}) { return 8, nil }
	_, err = s.follow(gone, operator, &followQuery{After: 8})
	require.ErrorIs(t, err, context.Canceled)

	stranger := &httpapi.Caller{Person: approval.Person{Channel: approval.EntranceSocket, ID: "1003"}}
	d, err = s.follow(t.Context(), stranger, &followQuery{})
	require.NoError(t, err)
	require.Empty(t, d.Waiting)
}

// Entries are those after a position that the caller may see; many come in several answers.
func TestFollowEntries(t *testing.T) {
	h, k := newHome(t)
	s := filesService(h, k, nil)
	log := []event.Entry{
		{Seq: 1, Event: event.Started},
		{Seq: 2, Event: event.Requested, Workspace: "default", RequestID: waiting},
		{Seq: 3, Event: event.Granted, Workspace: "other"},
		{Seq: 4, Event: event.Paused},
		{Seq: 5, Event: event.Denied, Workspace: "default", RequestID: settled},
	}
	for len(log) < maxEntries+10 {
		log = append(log, event.Entry{Seq: int64(len(log) + 1), Event: event.Revoked, Workspace: "default"})
	}
	newest := int64(len(log))
	s.Moved = func() (int64, <-chan struct{}) { return newest, nil }
	s.Since = func(seq int64, each func(event.Entry) error) error {
		for _, e := range log[seq:newest] {
			if err := each(e); err != nil {
				return err
			}
		}
		return nil
	}
	seqs := func(c *httpapi.Caller, in followQuery) (list []int64, at int64) {
		in.Entries = true
		d, err := s.follow(t.Context(), c, &in)
		require.NoError(t, err)
		for _, e := range d.Entries {
			list = append(list, e.Seq)
		}
		return list, d.At
	}
	operator := &httpapi.Caller{Person: home.Operator(), Operator: true}
	list, at := seqs(operator, followQuery{})
	require.Empty(t, list, "it begins at the end")
	require.Equal(t, newest, at)
	list, at = seqs(operator, followQuery{After: 1})
	require.Len(t, list, maxEntries)
	require.Equal(t, int64(maxEntries+1), at)
	list, at = seqs(operator, followQuery{After: at})
	require.Equal(t, int64(maxEntries+2), list[0], "none is left out")
	require.Equal(t, newest, at)
	newest = 5
	list, _ = seqs(operator, followQuery{After: 1, Workspace: "default"})
	require.Equal(t, []int64{2, 4, 5}, list)
	list, at = seqs(operator, followQuery{After: 99})
	require.Empty(t, list, "a position of another log")
	require.Equal(t, int64(5), at)

	approver := &httpapi.Caller{Person: approval.Person{Channel: approval.EntranceSocket, ID: "1003"}, Workspaces: []string{"other"}}
	list, at = seqs(approver, followQuery{After: 1})
	require.Equal(t, []int64{3, 4}, list)
	require.Equal(t, int64(5), at)
	approver.Workspaces = []string{"default"}
	list, _ = seqs(approver, followQuery{After: 1})
	require.Equal(t, []int64{4, 5}, list, "2 is about a pending request that this person may not decide")
}
