package ipc

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

// fullFS has no space for data, and without inodes none for new files.
type fullFS struct {
	FS
	noInodes, readOnly bool
	after              func() // a file was opened or renamed
}

func (f *fullFS) OpenFile(name string, flag int, perm os.FileMode) (afero.File, error) {
	if f.noInodes && flag&os.O_CREATE != 0 {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	if err == nil && flag&os.O_CREATE != 0 {
		err = os.Chtimes(name, time.Unix(1, 0), time.Unix(1, 0)) // a clock that stands still
	}
	f.after()
	return fullFile{file}, err
}

func (f *fullFS) RenameNoReplace(from, to string) error {
	err := f.FS.RenameNoReplace(from, to)
	f.after()
	return err
}

func (f *fullFS) TryLock(name string) (Lock, error) {
	if f.readOnly {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EROFS}
	}
	return f.FS.TryLock(name)
}

type fullFile struct{ afero.File }

func (fullFile) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A pause needs only a name, because its content is for people.
func TestPauseOnAFullDisk(t *testing.T) {
	s, _, _ := failingStore(t)
	disk := &fullFS{FS: s.FS, after: func() {
		if p, paused := s.Paused("w"); paused {
			require.Equal(t, "ann", p.By, "as soon as it is visible")
		}
	}}
	s.FS = disk
	require.NoError(t, s.Pause(Pause{Workspace: "w", By: "ann"}))
	p, paused := s.Paused("w")
	require.True(t, paused)
	require.Equal(t, "ann", p.By, "the process that paused knows")
	again, paused := (&Store{FS: s.FS, Layout: s.Layout}).Paused("w")
	require.True(t, paused)
	require.Equal(t, []string{p.ID, "unknown"}, []string{again.ID, again.By}, "its next start does not")
	require.Empty(t, content(t, s.Layout.pause("w")))
	require.ErrorIs(t, s.Pause(Pause{Workspace: "w", By: "bob"}), os.ErrExist)
	p, _ = s.Paused("w")
	require.Equal(t, "ann", p.By, "who came too late did not pause")
	_, err := s.Resume("w", "ann", "", p.At)
	require.EqualError(t, err, "nothing was resumed: no space left on the disk of HOME")
	require.ErrorIs(t, err, syscall.ENOSPC)

	disk.noInodes = true
	err = s.Pause(Pause{Workspace: AllWorkspaces})
	require.EqualError(t, err, "nothing was paused: no space left on the disk of HOME")
	_, paused = s.Paused("other")
	require.False(t, paused)
	entries, err := os.ReadDir(s.Layout.Pauses())
	require.NoError(t, err)
	for _, e := range entries {
		require.False(t, strings.HasPrefix(e.Name(), tempPrefix), e.Name())
	}
}

// On a read-only file system the figures come from the files, and a decision says why it is
// impossible.
func TestReadOnlyHome(t *testing.T) {
	s, _, k := failingStore(t)
	release := leased(t, s)
	require.NoError(t, s.Commit(t.Context(), store.Put(approval.DocPending, k, []byte("{}"))))
	want, err := s.Disk()
	require.NoError(t, err)
	require.NoError(t, release())

	again := &Store{FS: &fullFS{FS: s.FS, after: func() {}, readOnly: true}, Layout: s.Layout}
	_, err = again.Lease(t.Context())
	require.ErrorIs(t, err, syscall.EROFS)
	got, err := again.Disk()
	require.NoError(t, err)
	require.Equal(t, []int64{int64(want.Segments), int64(want.Free), want.SegmentBytes}, []int64{int64(got.Segments), int64(got.Free), got.SegmentBytes})
	require.Zero(t, got.LastCheckpoint)
	err = again.Commit(t.Context(), store.Put(approval.DocDecision, k, []byte("{}")))
	require.ErrorIs(t, err, syscall.EROFS)
	require.EqualError(t, err, "nothing was decided: HOME is on a read-only file system")
	require.NoError(t, os.Remove(again.Layout.Journal()+"/segment-2"))
	_, err = again.Disk()
	require.ErrorContains(t, err, "journal: segment-2 is missing")
}
