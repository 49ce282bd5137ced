package service_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/ipc/service"
)

// oneRequest is a viewer of one request of client "a".
type oneRequest struct {
	k     approval.Key
	ended atomic.Bool
}

func (o *oneRequest) Waiting(context.Context, []string) ([]approval.StoredPending, error) {
	return []approval.StoredPending{{Pending: &approval.Pending{ClientID: "a"}}}, nil
}

func (o *oneRequest) Find(context.Context, []string, string) ([]approval.Key, error) {
	return []approval.Key{o.k}, nil
}

func (o *oneRequest) Story(_ context.Context, k approval.Key) (read.Story, error) {
	switch {
	case k != o.k:
		return read.Story{}, nil
	case o.ended.Load():
		return read.Story{Record: &approval.Record{ClientID: "a"}}, nil
	}
	return read.Story{Pending: &approval.Pending{ClientID: "a"}}, nil
}

// A waiting client is woken by a change, by the end of its time and at shutdown, and
// loses its request with its credentials. It never sees another client's request.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := approval.Key{Workspace: "w", ID: "a7f3b2c1d4e5f6a7"}
		view := &oneRequest{k: k}
		s := &service.Service{Viewer: view}
		var revoked atomic.Bool
		a := &service.Client{Workspace: "w", ID: "a", StillValid: func() bool { return !revoked.Load() }}
		ctx, began := t.Context(), time.Now()

		valid := func() bool { return true }
		for _, c := range []*service.Client{
			{Workspace: "w", ID: "b", StillValid: valid}, {Workspace: "other", ID: "a", All: true, StillValid: valid},
		} {
			_, err := s.Wait(ctx, c, k.ID, time.Minute, nil)
			require.ErrorIs(t, err, decide.ErrUnknown)
			_, err = s.Cancel(ctx, c, k.ID, "")
			require.ErrorIs(t, err, decide.ErrUnknown)
			found, err := s.Named(ctx, c, "a7f3")
			require.NoError(t, err)
			require.Empty(t, found)
		}
		found, err := s.Named(ctx, a, "a7f3")
		require.NoError(t, err)
		require.Len(t, found, 1)
		all, err := s.Waiting(ctx, &service.Client{Workspace: "w", ID: "b"})
		require.NoError(t, err)
		require.Empty(t, all)

		st, err := s.Wait(ctx, a, k.ID, time.Minute, nil)
		require.NoError(t, err)
		require.Nil(t, st.Record)
		require.Equal(t, time.Minute, time.Since(began), "the end of its time")

		quit := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(quit) })
		_, err = s.Wait(ctx, a, k.ID, time.Minute, quit)
		require.NoError(t, err)
		require.Equal(t, time.Minute+time.Second, time.Since(began), "shutdown")

		time.AfterFunc(time.Second, func() { s.Changed(k) })                       // nothing has changed yet
		time.AfterFunc(2*time.Second, func() { s.Changed(approval.Key{}) })        // nor for any request
		time.AfterFunc(3*time.Second, func() { s.Changed(approval.Key{ID: "b"}) }) // another request
		time.AfterFunc(4*time.Second, func() {
			view.ended.Store(true)
			s.Changed(k)
		})
		st, err = s.Wait(ctx, a, k.ID, time.Minute, nil)
		require.NoError(t, err)
		require.NotNil(t, st.Record)
		require.Equal(t, time.Minute+5*time.Second, time.Since(began), "the change")

		view.ended.Store(false)
		time.AfterFunc(time.Second, func() { revoked.Store(true); s.Changed(k) })
		_, err = s.Wait(ctx, a, k.ID, time.Minute, nil)
		require.ErrorIs(t, err, service.ErrRevoked)

		view.ended.Store(true)
		_, err = s.Wait(ctx, a, k.ID, time.Minute, nil)
		require.ErrorIs(t, err, service.ErrRevoked, "revoked between the check of the key and the first look")
	})
}
