package ipc

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/hints"
)

// Lines as in proc_pid_mountinfo(5).
const mountinfo = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 0:26 / /dev/shm rw,nosuid - tmpfs tmpfs rw
40 22 8:2 / /home rw,noatime shared:2 master:3 - ext4 /dev/sda2 rw,nobarrier
41 40 8:3 / /home/my\040gate rw - xfs /dev/sda3 rw
42 22 0:50 / /over rw - overlay overlay rw,lowerdir=/a,upperdir=/b,workdir=/c,volatile
43 22 0:51 / /layer rw - overlay overlay rw,lowerdir=/a,upperdir=/b,workdir=/c
44 22 8:4 / /back rw - ext4 /dev/sda4 rw,data=writeback
45 22 8:5 / /twice rw - ext4 /dev/sda5 rw
46 45 0:52 / /twice rw - tmpfs tmpfs rw
47 22 8:6 / /f2fs rw - f2fs /dev/sda6 rw,fsync_mode=nobarrier
48 22 0:53 / /net rw - nfs4 server:/x rw,vers=4.2
49 22 0:54 / /win rw - cifs //server/x rw
50 22 0:55 / /host rw - 9p host rw,trans=virtio
51 22 0:56 / /ssh rw - fuse.sshfs host:/ rw
52 22 0:57 / /usb rw - fuseblk /dev/sdb1 rw
53 22 0:58 / /vm rw - virtiofs host rw
54 22 0:59 / /cow rw - btrfs /dev/sdc1 rw
an invalid line
`

func TestFindMount(t *testing.T) {
	for _, row := range []struct{ why, path, point, loses, warns string }{
		{"the root", "/srv/gate", "/", "", ""},
		{"tmpfs", "/dev/shm/gate", "/dev/shm", "a reboot deletes its files", ""},
		{"a common prefix that is not a folder", "/dev/shmem", "/", "", ""},
		{"an option of the file system", "/home/ann", "/home", "mounted with nobarrier", ""},
		{"a space", "/home/my gate/x", "/home/my gate", "", ""},
		{"a volatile overlay", "/over", "/over", "skips every fsync", "is an overlay"},
		{"an overlay", "/layer/x", "/layer", "", "is an overlay"},
		{"data=writeback", "/back", "/back", "", "data=writeback"},
		{"the upper of two mounts", "/twice/x", "/twice", "is a tmpfs", ""},
		{"fsync_mode=nobarrier", "/f2fs", "/f2fs", "fsync_mode=nobarrier", ""},
	} {
		t.Run(row.why, func(t *testing.T) {
			m, err := findMount(strings.NewReader(mountinfo), row.path)
			require.NoError(t, err)
			require.Equal(t, row.point, m.Point)
			requireError(t, row.loses, m.LosesData())
			requireError(t, row.warns, m.Warnings())
		})
	}
	_, err := findMount(strings.NewReader("nothing\n"), "/x")
	require.ErrorContains(t, err, "is on no mount")
	m, err := MountOf("/proc/self")
	require.NoError(t, err)
	require.Equal(t, "proc", m.Type)
}

// requireError requires no error for "", otherwise one with that text and a hint.
func requireError(t *testing.T, want string, err error) {
	t.Helper()
	if want == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, want)
	require.NotEmpty(t, hints.Of(err))
}

func TestNotLocal(t *testing.T) {
	for _, row := range []struct{ path, refused, space string }{
		{"/srv", "", ""},
		{"/home/my gate", "", ""}, // xfs
		{"/cow", "", "is btrfs, which writes to new places"},
		{"/layer", "", "is overlay, which writes to new places"},
		{"/net/gate", "/net is NFS: ", ""},
		{"/win/gate", "/win is SMB: ", ""},
		{"/host/gate", "/host is 9p: ", ""},
		{"/ssh/gate", "/ssh is FUSE (sshfs): ", ""},
		{"/usb/gate", "/usb is FUSE: ", ""},
		{"/vm/gate", "/vm is FUSE (virtiofs): ", ""},
	} {
		t.Run(row.path, func(t *testing.T) {
			m, err := findMount(strings.NewReader(mountinfo), row.path)
			require.NoError(t, err)
			requireError(t, row.refused, m.NotLocal())
			requireError(t, row.space, m.OverwriteNeedsSpace())
		})
	}
}

// Each type in the tables is refused, or warned of.
func TestTypesOfFileSystems(t *testing.T) {
	for _, name := range strings.Fields("9p nfs nfs4 cifs smb3 smbfs ceph afs fuse fuseblk fuse.sshfs virtiofs vboxsf") {
		require.Error(t, Mount{Type: name}.NotLocal(), name)
	}
	for _, name := range strings.Fields("btrfs zfs bcachefs nilfs2 overlay") {
		require.Error(t, Mount{Type: name}.OverwriteNeedsSpace(), name)
	}
	for _, name := range strings.Fields("ext4 xfs") {
		require.NoError(t, Mount{Type: name}.NotLocal(), name)
		require.NoError(t, Mount{Type: name}.OverwriteNeedsSpace(), name)
	}
}

func TestMountOfNew(t *testing.T) {
	dir := t.TempDir()
	want, err := MountOf(dir)
	require.NoError(t, err)
	m, err := MountOfNew(filepath.Join(dir, "not", "yet"))
	require.NoError(t, err)
	require.Equal(t, want, m)
}

func TestOlderThan(t *testing.T) {
	for release, older := range map[string]bool{
		"Linux 5.7.19": true, "Linux 4.19.0-27-amd64": true, "Linux 5.4": true,
		"Linux 5.8.0": false, "Linux 5.15.0-1": false, "Linux 6.1.0": false, "Linux 10.0": false, "": false,
	} {
		require.Equal(t, older, olderThan(release, 5, 8), release)
	}
	require.NoError(t, SyncErrorsLost())
}

func TestFreeSpace(t *testing.T) {
	for _, row := range []struct {
		why          string
		space        FreeSpace
		refuses, low string
	}{
		{"enough", FreeSpace{Bytes: 1 << 40, Files: 1 << 20, Counted: true}, "", ""},
		{"no inode limit", FreeSpace{Bytes: 1 << 40}, "", ""},
		{"low", FreeSpace{Bytes: lowBytes - 1}, "", "255 MiB left"},
		{"critical", FreeSpace{Bytes: minBytes - 1}, "16383 KiB left", "15 MiB left"},
		{"few inodes", FreeSpace{Bytes: 1 << 40, Files: lowFiles - 1, Counted: true}, "", "9999 inodes left"},
		{"very few inodes", FreeSpace{Bytes: 1 << 40, Files: minFiles - 1, Counted: true}, "999 inodes left", "999 inodes left"},
		{"read-only", FreeSpace{Bytes: 1 << 40, Files: 1 << 20, Counted: true, ReadOnly: true}, "read-only", ""},
		{"the zero value", FreeSpace{}, "0 KiB left", "0 MiB left"},
	} {
		t.Run(row.why, func(t *testing.T) {
			requireError(t, row.refuses, row.space.Critical())
			requireError(t, row.low, row.space.Low())
		})
	}
	space, err := FreeSpaceOf(t.TempDir())
	require.NoError(t, err)
	require.NotZero(t, space.Bytes)
	_, err = FreeSpaceOf("/no/such/folder")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestSyncTime(t *testing.T) {
	dir := t.TempDir()
	for _, measure := range []func(string, int) (time.Duration, error){SyncTime, JournalTime} {
		median, err := measure(dir, 5)
		require.NoError(t, err)
		require.Positive(t, median)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = SyncTime(filepath.Join(dir, "none"), 5)
	require.ErrorIs(t, err, fs.ErrNotExist)

	disk, memory := Mount{Type: "ext4"}, Mount{Type: "tmpfs"}
	requireError(t, "faster than any disk", disk.TooFast(2*time.Microsecond))
	requireError(t, "", disk.TooFast(minSyncTime))
	requireError(t, "", memory.TooFast(2*time.Microsecond))
}

func TestCheckPath(t *testing.T) {
	dir, uid := t.TempDir(), os.Getuid()
	deep := filepath.Join(dir, "a", "b", "c")
	require.NoError(t, os.MkdirAll(deep, 0o700))
	require.Empty(t, CheckPath(deep, uid))

	require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0o777))
	require.Len(t, CheckPath(deep, uid), 1)
	requireError(t, "every user may write to "+filepath.Join(dir, "a")+" (mode 0777)", CheckPath(deep, uid)[0])
	require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0o777|fs.ModeSticky))
	require.Empty(t, CheckPath(deep, uid), "as /tmp is")
	require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0o700))

	require.NoError(t, os.Chmod(filepath.Join(dir, "a", "b"), 0o720))
	if wrong := CheckPath(deep, uid); len(wrong) > 0 { // unless the group is the user's own
		requireError(t, "its group may write to", wrong[0])
	} else {
		info, err := os.Stat(filepath.Join(dir, "a", "b"))
		require.NoError(t, err)
		require.True(t, hasPrivateGroup(info))
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "a", "b"), 0o700))

	// The folders above a link's target count as much as those above the link.
	open := filepath.Join(dir, "open")
	require.NoError(t, os.MkdirAll(filepath.Join(open, "x"), 0o700))
	require.NoError(t, os.Chmod(open, 0o777))
	link := filepath.Join(dir, "a", "link")
	require.NoError(t, os.Symlink(filepath.Join(open, "x"), link))
	require.Len(t, CheckPath(link, uid), 1)
	requireError(t, open, CheckPath(link, uid)[0])

	if uid != 0 { // files of root are always trusted
		require.GreaterOrEqual(t, len(CheckPath(deep, uid+1)), 4)
		requireError(t, "may replace its content", CheckPath(deep, uid+1)[0])
	} else {
		require.NoError(t, os.Chown(deep, 65534, 65534))
		require.Len(t, CheckPath(deep, uid), 1)
		requireError(t, "owned by UID 65534", CheckPath(deep, uid)[0])
		require.Empty(t, CheckPath(deep, 65534))
	}
	wrong := CheckPath(filepath.Join(dir, "none"), uid)
	require.Len(t, wrong, 1)
	require.ErrorIs(t, wrong[0], fs.ErrNotExist)
}

func TestCheckSecretAndProgram(t *testing.T) {
	file, uid := filepath.Join(t.TempDir(), "file"), os.Getuid()
	require.ErrorIs(t, CheckSecret(file), fs.ErrNotExist)
	requireError(t, file+" does not exist", CheckProgram(file, uid)[0])
	for _, row := range []struct {
		mode            fs.FileMode
		secret, program string
	}{
		{0o700, "", ""},
		{0o600, "", "is not executable"},
		{0o704, "other users may read", ""},
		{0o755, "other users may read", ""},
		{0o757, "other users may read", "every user may write to"},
	} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.NoError(t, os.Chmod(file, row.mode))
		requireError(t, row.secret, CheckSecret(file))
		var first error
		if wrong := CheckProgram(file, uid); len(wrong) > 0 {
			first = wrong[0]
		}
		requireError(t, row.program, first)
	}
	requireError(t, "is not a program", CheckProgram(filepath.Dir(file), uid)[0])
}

func TestCheckFolders(t *testing.T) {
	l := Layout{Home: filepath.Join(t.TempDir(), "home")}
	seen, wrong := l.CheckFolders(OS(), "work")
	require.Zero(t, seen)
	require.ErrorIs(t, wrong[0], fs.ErrNotExist)

	require.NoError(t, l.PrepareHome(OS()))
	require.NoError(t, l.Prepare(OS(), "work"))
	seen, wrong = l.CheckFolders(OS(), "work")
	require.Equal(t, len(l.homeFolders())+len(l.workspaceFolders("work")), seen)
	require.Empty(t, wrong)

	require.NoError(t, os.Chmod(l.Audit(), 0o722))
	require.NoError(t, os.Chmod(l.Pendings("work"), 0o777))
	require.NoError(t, os.Remove(l.Grants()))
	_, wrong = l.CheckFolders(OS(), "work", "../x")
	require.Len(t, wrong, 4, "all errors, while CheckPrivate stops at the first")
	for i, want := range []string{"../x", "grants", "audit", "pending_approvals"} {
		require.ErrorContains(t, wrong[i], want)
	}
	require.Empty(t, l.CheckOneDisk("work"))
}
