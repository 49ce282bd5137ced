package ipc

import (
	"bytes"
	"context"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/journal"
)

// failingFS is the real file system, with syncs and removals that fail as configured.
type failingFS struct {
	FS
	dirErr, fsErr, removeErr, renameErr error
	syncs                               int
	lost                                int // writes to the disk that failed in the background
	bytes, inodes                       uint64
}

func (s *failingFS) SyncDir(name string) error {
	s.syncs++
	if s.dirErr != nil {
		return s.dirErr
	}
	return s.FS.SyncDir(name)
}

func (s *failingFS) OpenFS(name string) (OpenedFS, error) {
	disk, err := s.FS.OpenFS(name)
	return failingDisk{disk, s, s.lost}, err
}

// failingDisk is the file system as one descriptor sees it.
type failingDisk struct {
	OpenedFS
	s    *failingFS
	seen int // writes that were lost before it was opened
}

func (d failingDisk) Sync() error {
	d.s.syncs++
	if d.s.fsErr != nil {
		return d.s.fsErr
	}
	if d.s.lost > d.seen {
		return syscall.EIO
	}
	return d.OpenedFS.Sync()
}

func (s *failingFS) Rename(from, to string) error {
	if s.renameErr != nil {
		return s.renameErr
	}
	return s.FS.Rename(from, to)
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
	s := &Store{FS: fsys, Layout: Layout{Home: filepath.Join(t.TempDir(), "home")}, JournalSize: 1 << 20}
	require.NoError(t, s.Layout.PrepareHome(fsys))
	require.NoError(t, s.Layout.Prepare(fsys, "w"))
	return s, fsys, approval.Key{Workspace: "w", ID: "aaaaaaaa00000001"}
}

func leased(t *testing.T, s *Store) (release func() error) {
	release, err := s.Lease(context.Background())
	require.NoError(t, err)
	return release
}

var other = approval.Key{Workspace: "w", ID: "bbbbbbbb00000002"}

func TestFailedCheckpointNeedsARestart(t *testing.T) {
	ctx := context.Background()
	s, fsys, k := failingStore(t)
	release := leased(t, s)
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, k, []byte("{}"))))
	fsys.fsErr = syscall.EIO
	require.ErrorIs(t, s.Checkpoint(ctx), store.ErrRestart)
	fsys.fsErr, fsys.syncs = nil, 0
	require.ErrorIs(t, s.Checkpoint(ctx), store.ErrRestart)
	require.ErrorIs(t, s.Probe(ctx), store.ErrRestart)
	require.Zero(t, fsys.syncs, "a second sync could succeed without writing anything")
	require.ErrorIs(t, s.Commit(ctx, store.Put(approval.DocPending, other, []byte("{}"))), store.ErrRestart)
	require.ErrorIs(t, release(), store.ErrRestart)

	// The files may lack what the kernel dropped. The journal has it.
	require.NoError(t, s.FS.Remove(s.path(approval.DocRecord, k)))
	again := &Store{FS: fsys, Layout: s.Layout}
	release = leased(t, again)
	b, err := again.Read(ctx, approval.DocRecord, k)
	require.NoError(t, err)
	require.Equal(t, "{}", string(b))
	require.NoError(t, release())
}

// The kernel tells of a write that failed in the background only those who had the file
// system open before.
func TestCheckpointHearsOfEarlierFailures(t *testing.T) {
	ctx := context.Background()
	s, fsys, k := failingStore(t)
	release := leased(t, s)
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, k, []byte("{}"))))
	require.NoError(t, s.Checkpoint(ctx))
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, other, []byte("{}"))))
	fsys.lost++
	require.ErrorIs(t, s.Checkpoint(ctx), store.ErrRestart)
	require.ErrorIs(t, release(), store.ErrRestart)
}

// The same for what fails between replay and the sync after it.
func TestReplayHearsOfItsFailures(t *testing.T) {
	s, fsys, k := failingStore(t)
	release := leased(t, s)
	require.NoError(t, s.Commit(context.Background(), store.Put(approval.DocRecord, k, []byte("{}"))))
	fsys.fsErr = syscall.EIO
	require.Error(t, release())
	fsys.fsErr = nil

	again := &Store{FS: fsys, Layout: s.Layout, Verify: func(approval.Doc, approval.Key, []byte) error {
		fsys.lost = 1 // replay has begun to write
		return nil
	}}
	_, err := again.Lease(context.Background())
	require.ErrorIs(t, err, syscall.EIO)
	release = leased(t, &Store{FS: fsys, Layout: s.Layout})
	require.NoError(t, release())
}

// A sync that could not begin has lost nothing.
func TestCheckpointThatCouldNotOpenIsRetried(t *testing.T) {
	ctx := context.Background()
	s, fsys, k := failingStore(t)
	release := leased(t, s)
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, k, []byte("{}"))))
	fsys.fsErr = &fs.PathError{Op: "open", Path: "home", Err: syscall.EMFILE}
	err := s.Checkpoint(ctx)
	require.ErrorIs(t, err, syscall.EMFILE)
	require.NotErrorIs(t, err, store.ErrRestart)
	fsys.fsErr = nil
	require.NoError(t, s.Checkpoint(ctx))
	require.NoError(t, release())
}

// An outcome needs no room for its files: they follow.
func TestLateFiles(t *testing.T) {
	ctx := context.Background()
	s, fsys, k := failingStore(t)
	release := leased(t, s)
	fsys.renameErr = syscall.ENOSPC
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, k, []byte(`{"a":1}`)), store.Show(k, []byte("{}"))))
	for _, d := range []approval.Doc{approval.DocRecord, approval.DocResponse} {
		_, err := s.Read(ctx, d, k)
		require.NoError(t, err, "kept in memory")
		_, err = s.Stat(d, k)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	require.ErrorIs(t, s.Commit(ctx, store.Put(approval.DocRecord, k, []byte("{}"))), store.ErrExists)
	err := s.Checkpoint(ctx)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NotErrorIs(t, err, store.ErrRestart)

	fsys.renameErr = nil
	require.NoError(t, s.Probe(ctx))
	for _, d := range []approval.Doc{approval.DocRecord, approval.DocResponse} {
		_, err = s.Stat(d, k)
		require.NoError(t, err)
	}
	require.NoError(t, s.Checkpoint(ctx))
	require.NoError(t, release())
}

func TestReplayKeepsWhatIsValid(t *testing.T) {
	ctx := context.Background()
	s, fsys, k := failingStore(t)
	release := leased(t, s)
	grant := approval.Key{Workspace: "grants", ID: k.ID}
	large := append(append([]byte(`{"a":"`), bytes.Repeat([]byte("x"), maxInJournal)...), `"}`...)
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocGrant, grant, []byte(`{"given":1}`))))
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocPending, other, []byte(`{"p":1}`))))
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocPending, k, []byte(`{"p":2}`))))
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, k, large)))
	fsys.fsErr = syscall.EIO
	require.ErrorIs(t, release(), store.ErrRestart)
	fsys.fsErr = nil

	revoker := &Store{FS: fsys, Layout: s.Layout}
	require.NoError(t, revoker.Commit(ctx, store.Op{Doc: approval.DocGrant, Key: grant, Bytes: []byte(`{"revoked":1}`), Mode: store.Replace}))
	require.NoError(t, afero.WriteFile(fsys, s.path(approval.DocPending, other), []byte(`{"p`), 0o600), "torn")
	require.NoError(t, fsys.Remove(s.path(approval.DocPending, k)))
	require.NoError(t, fsys.Rename(s.path(approval.DocRecord, k), s.Layout.Records("w")+"/"+largeName(large)))
	again := &Store{FS: fsys, Layout: s.Layout}
	release = leased(t, again)
	for _, tt := range []struct {
		d    approval.Doc
		k    approval.Key
		want string
	}{
		{approval.DocGrant, grant, `{"revoked":1}`},
		{approval.DocPending, other, `{"p":1}`},
		{approval.DocRecord, k, string(large)},
	} {
		b, err := again.Read(ctx, tt.d, tt.k)
		require.NoError(t, err)
		require.Equal(t, tt.want, string(b))
	}
	_, err := again.Read(ctx, approval.DocPending, k)
	require.ErrorIs(t, err, store.ErrMissing, "of a request with a record only the record counts")
	require.NoError(t, release())
}

// Folders that were removed after a kill come back with what was committed. A document whose
// only bytes were there does not, and the start fails.
func TestReplayIntoRemovedFolders(t *testing.T) {
	ctx := context.Background()
	s, fsys, k := failingStore(t)
	release := leased(t, s)
	grant := approval.Key{Workspace: "grants", ID: k.ID}
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocGrant, grant, []byte(`{"g":1}`))))
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, k, []byte(`{"r":1}`))))
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocPending, other, []byte(`{"p":1}`))))
	fsys.fsErr = syscall.EIO
	require.Error(t, release())
	fsys.fsErr = nil
	for _, dir := range []string{s.Layout.Workspace("w"), s.Layout.Records("w"), s.Layout.Receipts("w"), s.Layout.Grants()} {
		require.NoError(t, os.RemoveAll(dir))
	}
	again := &Store{FS: fsys, Layout: s.Layout}
	release = leased(t, again)
	for _, tt := range []struct {
		d    approval.Doc
		k    approval.Key
		want string
	}{{approval.DocRecord, k, `{"r":1}`}, {approval.DocPending, other, `{"p":1}`}, {approval.DocGrant, grant, `{"g":1}`}} {
		b, err := again.Read(ctx, tt.d, tt.k)
		require.NoError(t, err)
		require.Equal(t, tt.want, string(b))
	}
	require.NoError(t, s.Layout.CheckPrivate(fsys, "w"))
	require.NoDirExists(t, s.Layout.Workspace("grants"), "a grant has no workspace")

	large := append(append([]byte(`{"a":"`), bytes.Repeat([]byte("x"), maxInJournal)...), `"}`...)
	require.NoError(t, again.Commit(ctx, store.Put(approval.DocRecord, approval.Key{Workspace: "w", ID: "cccccccc00000003"}, large)))
	fsys.fsErr = syscall.EIO
	require.Error(t, release())
	fsys.fsErr = nil
	require.NoError(t, os.RemoveAll(s.Layout.Records("w")))
	_, err := (&Store{FS: fsys, Layout: s.Layout}).Lease(ctx)
	require.ErrorIs(t, err, journal.ErrDamaged)
	require.Contains(t, hints.Of(err), "put its folder back")
}

func TestLeftoverTempFilesAreRemovedLater(t *testing.T) {
	ctx := context.Background()
	s, fsys, k := failingStore(t)
	release := leased(t, s)
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocDecision, k, []byte("{}"))))
	fsys.removeErr = syscall.EROFS
	require.ErrorIs(t, s.Commit(ctx, store.Put(approval.DocDecision, k, []byte("{}"))), fs.ErrExist)
	names, err := s.names(s.Layout.Decisions("w"))
	require.NoError(t, err)
	require.Len(t, names, 2)
	fsys.removeErr = nil
	require.NoError(t, s.Probe(ctx))
	names, err = s.names(s.Layout.Decisions("w"))
	require.NoError(t, err)
	require.Equal(t, []string{k.ID + ".json"}, names)
	names, err = s.names(s.Layout.Run())
	require.NoError(t, err)
	require.Empty(t, names, "a probe leaves no file")
	require.NoError(t, release())
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
	_, err = s.Reserve(context.Background(), 3<<20)
	require.ErrorContains(t, err, "0 KiB free, 3072 KiB needed")
}
