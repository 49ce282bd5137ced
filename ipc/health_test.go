package ipc

import (
	"context"
	"io/fs"
	"math"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

// failingFS is the real file system, with syncs and removals that fail as configured.
type failingFS struct {
	FS
	dirErr, fsErr, removeErr error
	syncs                    int
	bytes, inodes            uint64
}

func (s *failingFS) SyncDir(name string) error {
	s.syncs++
	if s.dirErr != nil {
		return s.dirErr
	}
	return s.FS.SyncDir(name)
}

func (s *failingFS) SyncFS(name string) error {
	s.syncs++
	if s.fsErr != nil {
		return s.fsErr
	}
	return s.FS.SyncFS(name)
}

func (s *failingFS) Remove(name string) error {
	if s.removeErr != nil {
		return s.removeErr
	}
	return s.FS.Remove(name)
}

func (s *failingFS) Free(string) (bytes, inodes uint64, err error) { return s.bytes, s.inodes, nil }

func failingStore(t *testing.T) (*Store, *failingFS, approval.Key) {
	fsys := &failingFS{FS: OS(), bytes: math.MaxUint64, inodes: math.MaxUint64}
	s := &Store{FS: fsys, Layout: Layout{Home: filepath.Join(t.TempDir(), "home")}}
	require.NoError(t, s.Layout.PrepareHome(fsys))
	require.NoError(t, s.Layout.Prepare(fsys, "w"))
	return s, fsys, approval.Key{Workspace: "w", ID: "aaaaaaaa00000001"}
}

func TestFailedFolderSyncIsNotRetried(t *testing.T) {
	s, fsys, k := failingStore(t)
	fsys.dirErr = syscall.EIO
	err := s.Create(context.Background(), approval.DocRecord, k, []byte("{}"), store.Durable)
	require.ErrorIs(t, err, store.ErrUnsynced)
	require.ErrorIs(t, err, store.ErrRestart)
	fsys.dirErr, fsys.syncs = nil, 0
	require.ErrorIs(t, s.Sync(context.Background(), approval.DocRecord, "w"), store.ErrRestart)
	require.ErrorIs(t, s.Sync(context.Background(), approval.DocPending, "w"), store.ErrRestart)
	require.ErrorIs(t, s.Probe(context.Background()), store.ErrRestart)
	require.Zero(t, fsys.syncs)

	other := approval.Key{Workspace: "w", ID: "bbbbbbbb00000002"}
	require.ErrorIs(t, s.Create(context.Background(), approval.DocDecision, other, []byte("{}"), store.Durable), store.ErrRestart)
	_, err = s.Read(context.Background(), approval.DocDecision, other)
	require.ErrorIs(t, err, fs.ErrNotExist, "nothing new begins after a failed sync")
	require.ErrorIs(t, s.Create(context.Background(), approval.DocRecord, other, []byte("{}"), store.Durable), store.ErrUnsynced)
	_, err = s.Read(context.Background(), approval.DocRecord, other)
	require.NoError(t, err, "a record is written for the next start")
}

// A folder that could not be opened was not synced, and nothing was lost: the sync is
// done later, and until then its names are not trusted.
func TestFolderSyncThatCouldNotOpenIsRetried(t *testing.T) {
	s, fsys, k := failingStore(t)
	fsys.dirErr = &fs.PathError{Op: "open", Path: "records", Err: syscall.EMFILE}
	err := s.Create(context.Background(), approval.DocRecord, k, []byte("{}"), store.Durable)
	require.ErrorIs(t, err, store.ErrUnsynced)
	require.NotErrorIs(t, err, store.ErrRestart)
	require.ErrorIs(t, s.Probe(context.Background()), syscall.EMFILE)
	fsys.dirErr, fsys.syncs = nil, 0
	require.NoError(t, s.Probe(context.Background()))
	require.Equal(t, 2, fsys.syncs, "the test file's folder, and the unsynced folder")
	fsys.syncs = 0
	require.NoError(t, s.Probe(context.Background()))
	require.Equal(t, 1, fsys.syncs)
}

func TestUnsyncedPendingIsRemoved(t *testing.T) {
	s, fsys, k := failingStore(t)
	fsys.dirErr, fsys.removeErr = syscall.EIO, syscall.EIO
	require.ErrorIs(t, s.Create(context.Background(), approval.DocPending, k, []byte("{}"), store.Durable), store.ErrUnsynced)
	_, err := s.Read(context.Background(), approval.DocPending, k)
	require.NoError(t, err, "it could not be removed")
	fsys.removeErr = nil
	require.ErrorIs(t, s.Probe(context.Background()), store.ErrRestart)
	_, err = s.Read(context.Background(), approval.DocPending, k)
	require.ErrorIs(t, err, fs.ErrNotExist, "removed by the next Probe")
}

func TestLeftoverTempFilesAreRemovedLater(t *testing.T) {
	s, fsys, k := failingStore(t)
	require.NoError(t, s.Create(context.Background(), approval.DocRecord, k, []byte("{}"), store.Durable))
	fsys.removeErr = syscall.EROFS
	require.ErrorIs(t, s.Create(context.Background(), approval.DocRecord, k, []byte("{}"), store.Durable), fs.ErrExist)
	names, err := s.names(s.Layout.Records("w"))
	require.NoError(t, err)
	require.Len(t, names, 2)
	fsys.removeErr = nil
	require.NoError(t, s.Probe(context.Background()))
	names, err = s.names(s.Layout.Records("w"))
	require.NoError(t, err)
	require.Equal(t, []string{k.ID + ".json"}, names)
	names, err = s.names(s.Layout.Run())
	require.NoError(t, err)
	require.Empty(t, names, "a probe leaves no file")
}

func TestReserve(t *testing.T) {
	s, fsys, _ := failingStore(t)
	fsys.bytes, fsys.inodes = 1000, 2*inodesPerRun
	one, err := s.Reserve(context.Background(), 600)
	require.NoError(t, err)
	_, err = s.Reserve(context.Background(), 401)
	require.ErrorIs(t, err, store.ErrNoSpace)
	two, err := s.Reserve(context.Background(), 400)
	require.NoError(t, err)
	one()
	one() // the second call has no effect
	_, err = s.Reserve(context.Background(), 601)
	require.ErrorIs(t, err, store.ErrNoSpace)
	three, err := s.Reserve(context.Background(), 1)
	require.NoError(t, err)
	_, err = s.Reserve(context.Background(), 1)
	require.ErrorIs(t, err, store.ErrNoSpace, "no inodes")
	two()
	three()
	_, err = s.Reserve(context.Background(), 1000)
	require.NoError(t, err)
	_, err = s.Reserve(context.Background(), math.MaxInt64)
	require.ErrorIs(t, err, store.ErrNoSpace)
}
