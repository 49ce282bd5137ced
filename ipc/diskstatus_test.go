package ipc

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/journal"
)

func TestDisk(t *testing.T) {
	ctx := context.Background()
	s, fsys, k := failingStore(t)
	_, err := s.Disk()
	require.ErrorIs(t, err, store.ErrLocked)
	release := leased(t, s)
	disk := func() *DiskStatus {
		d, err := s.Disk()
		require.NoError(t, err)
		return d
	}
	d := disk()
	require.Equal(t, []int{4, 3}, []int{d.Segments, d.Free})
	require.EqualValues(t, 1<<20, d.SegmentBytes)
	require.Zero(t, d.Oldest)
	require.Zero(t, d.Total)
	started := d.LastCheckpoint

	free, err := s.Reserve(ctx, 1000)
	require.NoError(t, err)
	require.Positive(t, disk().ReservedBytes)
	free()
	require.Zero(t, disk().ReservedBytes)

	fsys.renameErr = syscall.ENOSPC
	require.NoError(t, s.Commit(ctx, store.Put(approval.DocRecord, k, []byte("{}"))))
	d = disk()
	require.Equal(t, 1, d.LateFiles)
	require.EqualValues(t, 1, d.Total.Commits)
	require.Equal(t, d.Total.Commits, d.LastMinute.Commits)
	require.Positive(t, d.LastMinute.BytesPerSecond)
	require.False(t, d.Oldest.IsZero())
	require.Error(t, s.Checkpoint(ctx))
	require.Equal(t, d.Oldest, disk().Oldest, "its file is missing still")

	fsys.renameErr = nil
	require.NoError(t, s.Checkpoint(ctx))
	d = disk()
	require.Zero(t, d.LateFiles)
	require.Zero(t, d.Oldest)
	require.True(t, d.LastCheckpoint.After(started))
	require.Empty(t, d.Failed)

	fsys.fsErr = syscall.EIO
	require.Error(t, s.Checkpoint(ctx))
	require.Contains(t, disk().Failed, syscall.EIO.Error())
	require.Error(t, release())
}

func TestRateOf(t *testing.T) {
	c := journal.Counts{Commits: 30, Groups: 20, Bytes: 1000}
	require.Equal(t, DiskRate{30, 20, 1000, 3, 2, 100}, rateOf(c, 10*time.Second))
	require.Equal(t, DiskRate{30, 20, 1000, 30, 20, 1000}, rateOf(c, time.Millisecond), "not more than there were")
}
