package ipc

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

// TestSparesAreUsedAfterTwoCheckpoints removes a document, and asks which file the next one
// gets.
func TestSparesAreUsedAfterTwoCheckpoints(t *testing.T) {
	ctx := context.Background()
	layout := Layout{Home: t.TempDir()}
	require.NoError(t, layout.PrepareHome(OS()))
	require.NoError(t, layout.Prepare(OS(), "w"))
	s := &Store{FS: OS(), Layout: layout}
	release, err := s.Lease(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, release()) })
	put := func(id string, b []byte) os.FileInfo {
		k := approval.Key{Workspace: "w", ID: id}
		require.NoError(t, s.Commit(ctx, store.Put(approval.DocPending, k, b)))
		read, err := s.Read(ctx, approval.DocPending, k)
		require.NoError(t, err)
		require.Equal(t, b, read)
		info, err := s.Stat(approval.DocPending, k)
		require.NoError(t, err)
		return info
	}
	remove := func(id string) {
		require.NoError(t, s.Remove(ctx, approval.DocPending, approval.Key{Workspace: "w", ID: id}))
	}
	spares := func() []string {
		names, err := filepath.Glob(filepath.Join(layout.Spares(), "*"))
		require.NoError(t, err)
		return names
	}

	first := put("aaaaaaaa00000001", []byte(`{"long": "document"}`))
	remove("aaaaaaaa00000001")
	require.Len(t, spares(), 1)
	require.False(t, os.SameFile(first, put("aaaaaaaa00000002", []byte("{}"))))
	require.NoError(t, s.Checkpoint(ctx))
	require.False(t, os.SameFile(first, put("aaaaaaaa00000003", []byte("{}"))))
	require.NoError(t, s.Checkpoint(ctx))
	b, err := os.ReadFile(spares()[0])
	require.NoError(t, err)
	require.Zero(t, b[0], "the old document is still valid")
	require.NoError(t, s.Commit(ctx, store.Show(approval.Key{Workspace: "w", ID: "aaaaaaaa00000001"}, []byte("{}"))))
	require.Len(t, spares(), 1, "a response was written into a file with private bytes")
	require.True(t, os.SameFile(first, put("aaaaaaaa00000004", []byte(`{"a":1}`))))
	require.Empty(t, spares())

	put("aaaaaaaa00000005", append([]byte(`{"a":"`), append(bytes.Repeat([]byte("x"), maxSpareSize), `"}`...)...))
	remove("aaaaaaaa00000005")
	require.Empty(t, spares(), "a large file was kept")
	foreign := filepath.Join(layout.Pendings("w"), "aaaaaaaa00000006.json")
	require.NoError(t, os.WriteFile(foreign, []byte("{}"), 0o600))
	remove("aaaaaaaa00000006")
	require.Empty(t, spares(), "a file of another process was kept")
	remove("aaaaaaaa00000004")
	require.Len(t, spares(), 1)
	s.SyncEach = true
	remove("aaaaaaaa00000003")
	require.Len(t, spares(), 1)
	s.SyncEach = false
}

// TestAStartRemovesSpares: after a power cut a spare may have two names.
func TestAStartRemovesSpares(t *testing.T) {
	layout := Layout{Home: t.TempDir()}
	require.NoError(t, layout.PrepareHome(OS()))
	spare := filepath.Join(layout.Spares(), "0123")
	require.NoError(t, os.WriteFile(spare, []byte("{}"), 0o600))
	s := &Store{FS: OS(), Layout: layout}
	release, err := s.Lease(context.Background())
	require.NoError(t, err)
	require.NoFileExists(t, spare)
	require.NoError(t, release())
}
