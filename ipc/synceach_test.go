package ipc

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/crashfs"
)

// deaf is a disk whose syncfs does nothing and reports nothing.
func deaf(t *testing.T) (*crashfs.Disk, *Store) {
	d := crashfs.New()
	d.Ignore = func(op crashfs.Op) bool { return op.Kind == crashfs.OpSyncFS }
	p := d.Process("daemon")
	s := &Store{FS: p, Layout: Layout{Home: "/home"}, JournalSize: 64 << 10, SyncEach: true}
	require.NoError(t, p.MkdirAll("/home", 0o700))
	require.NoError(t, p.SyncDir("/"))
	require.NoError(t, s.Layout.PrepareHome(p))
	require.NoError(t, s.Layout.Prepare(p, "w"))
	return d, s
}

// survives reports whether a file is there, and not empty, after a power cut.
func survives(t *testing.T, d *crashfs.Disk, name string) bool {
	info, err := d.Cut(crashfs.OnlySynced).Process("after").Stat(name)
	if err != nil {
		require.ErrorIs(t, err, fs.ErrNotExist)
		return false
	}
	return info.Size() > 0
}

func TestCheckpointSyncsEach(t *testing.T) {
	ctx := context.Background()
	d, s := deaf(t)
	release := leased(t, s)
	kept, gone := testKey(1), testKey(2)
	for _, k := range []approval.Key{kept, gone} {
		require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, k, []byte("{}")), store.Show(k, []byte("{}"))))
	}
	line := filepath.Join(s.Layout.Audit(), "log.jsonl")
	f, err := s.FS.Create(line)
	require.NoError(t, err)
	_, err = f.Write([]byte("{}\n"))
	require.NoError(t, errors.Join(err, f.Close()))
	require.False(t, survives(t, d, s.path(approval.DocRecord, kept)))

	d.Fail = func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSyncDir {
			return syscall.EMFILE
		}
		return nil
	}
	require.ErrorIs(t, s.Checkpoint(ctx), syscall.EMFILE)
	d.Fail = nil
	require.NoError(t, s.Checkpoint(ctx))
	for _, name := range []string{line, s.path(approval.DocRecord, kept), s.path(approval.DocResponse, kept), s.path(approval.DocRecord, gone)} {
		require.True(t, survives(t, d, name), name)
	}
	require.NoError(t, s.Remove(ctx, approval.DocRecord, gone))
	require.True(t, survives(t, d, s.path(approval.DocRecord, gone)))
	require.NoError(t, s.Checkpoint(ctx))
	require.False(t, survives(t, d, s.path(approval.DocRecord, gone)), "its id is free")
	require.NoError(t, release())
}

func TestReplaySyncsEach(t *testing.T) {
	ctx := context.Background()
	d, s := deaf(t)
	leased(t, s)
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, testKey(1), []byte("{}"))))
	d = d.Cut(crashfs.OnlySynced)
	again := &Store{FS: d.Process("again"), Layout: s.Layout, SyncEach: true}
	require.False(t, survives(t, d, s.path(approval.DocRecord, testKey(1))))
	leased(t, again)
	require.True(t, survives(t, d, s.path(approval.DocRecord, testKey(1))))
}
