package watcher

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestRemoteType(t *testing.T) {
	for magic, want := range map[uint32]string{
		unix.NFS_SUPER_MAGIC:   "NFS",
		unix.V9FS_MAGIC:        "9p",
		unix.FUSE_SUPER_MAGIC:  "FUSE or virtiofs",
		unix.SMB_SUPER_MAGIC:   "SMB",
		unix.CIFS_SUPER_MAGIC:  "SMB",
		unix.SMB2_SUPER_MAGIC:  "SMB",
		unix.CEPH_SUPER_MAGIC:  "Ceph",
		unix.AFS_SUPER_MAGIC:   "AFS",
		unix.AFS_FS_MAGIC:      "AFS",
		unix.CODA_SUPER_MAGIC:  "Coda",
		unix.OCFS2_SUPER_MAGIC: "OCFS2",

		unix.EXT4_SUPER_MAGIC:      "",
		unix.TMPFS_MAGIC:           "",
		unix.BTRFS_SUPER_MAGIC:     "",
		unix.XFS_SUPER_MAGIC:       "",
		unix.OVERLAYFS_SUPER_MAGIC: "",
	} {
		require.Equal(t, want, remoteTypes[magic], "%#x", magic)
	}
	require.Empty(t, remoteFileSystem("/proc"), "proc supports inotify")
	require.Empty(t, remoteFileSystem("/no/such/path"))
}
