package control

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

// While one client has frozen the journal, nothing is committed, and no other may freeze it.
func TestFreeze(t *testing.T) {
	h, k := newHome(t)
	a, _ := newConsole("1")
	release, err := h.Lock(t.Context())
	require.NoError(t, err)
	files, err := filesClient(a, h, k, release)
	require.NoError(t, err)
	serve(t, files.service, httpapi.Caller{Via: "cli", Operator: true}, "1")
	c, err := connect(t.Context(), a, h.Layout.Socket())
	require.NoError(t, err)
	disk, err := c.Disk(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, disk.Segments)

	committed := make(chan error, 1)
	require.NoError(t, c.Freeze(t.Context(), func() error {
		before, err := c.Disk(t.Context())
		require.NoError(t, err)
		go func() {
			committed <- h.Store.Commit(context.Background(), store.Put(approval.DocPending, approval.Key{Workspace: "default", ID: "00000000000000bb"}, []byte("{}")))
		}()
		require.ErrorContains(t, c.Freeze(t.Context(), func() error { return nil }), "another backup is being made")
		prepared := func() bool {
			files, _ := filepath.Glob(filepath.Join(h.Layout.Pendings("default"), ".tmp-*"))
			return len(files) > 0
		}
		require.Eventually(t, prepared, 10*time.Second, time.Millisecond, "only the commit itself is missing")
		for range 50 {
			after, err := c.Disk(t.Context())
			require.NoError(t, err)
			require.Equal(t, before.Total.Commits, after.Total.Commits)
		}
		require.Empty(t, committed)
		return nil
	}))
	require.NoError(t, <-committed)
	require.NoError(t, c.Freeze(t.Context(), func() error { return nil }), "it has ended")
	require.NoError(t, files.Close())
}

// A command that was killed holds up commits for ten seconds.
func TestFreezeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f frozen
		thaw := make(chan struct{})
		f.thaw, f.id = thaw, 1
		f.wait(thaw)
		s := &Service{frozen: frozen{id: 1, thaw: f.thaw}}
		held, err := s.thaw(t.Context(), nil, &struct{ Body Frozen }{Frozen{1}})
		require.NoError(t, err)
		require.False(t, held, "the client learns that it took too long")
	})
}

func TestFreezeIsForTheOperator(t *testing.T) {
	h, k := newHome(t)
	a, _ := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	serve(t, files.service, httpapi.Caller{Via: "socket", Workspaces: []string{"default"}}, "1")
	c, err := connect(t.Context(), a, h.Layout.Socket())
	require.NoError(t, err)
	require.ErrorIs(t, c.Freeze(t.Context(), func() error { return nil }), decide.ErrNotAuthorized)
	_, err = c.Disk(t.Context())
	require.ErrorIs(t, err, decide.ErrNotAuthorized)
}
