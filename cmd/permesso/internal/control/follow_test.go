package control

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
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
