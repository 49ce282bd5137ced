package ipc

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestWarning(t *testing.T) {
	g := newFixture(t)
	require.Empty(t, g.Warning())
	g.warn("openat2 is not available, using openat", unix.ENOSYS)
	require.Equal(t, "not safe for untrusted folders: openat2 is not available, using openat (function not implemented)", g.Warning())
}

// A real seccomp filter forbids openat2, as containers' profiles do.
func TestWithoutOpenat2(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
		g := newFixture(t)
		write(t, g.path("x.json"), "{}")
		done := make(chan error)
		go func() { done <- withoutOpenat2(g, errno) }()
		require.NoError(t, <-done)
	}
}

func withoutOpenat2(g fixture, errno unix.Errno) error {
	runtime.LockOSThread() // no unlock: the filter ends with the thread
	if err := forbid(unix.SYS_OPENAT2, errno); err != nil {
		return fmt.Errorf("install filter: %w", err)
	}
	h, err := openHostile(g.dir)
	if err != nil {
		return err
	}
	defer h.Close()
	if !h.noOpenat2 || !strings.HasPrefix(h.Warning(), "not safe for untrusted folders: openat2") {
		return fmt.Errorf("note: %q", h.Warning())
	}
	data, err := h.Read("x.json", limit)
	if err == nil && string(data) != "{}" {
		err = fmt.Errorf("read %q", data)
	}
	return err
}

// forbid makes a system call of this thread fail.
func forbid(call uint32, errno unix.Errno) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the system call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

// With a lease, an open may wait 45 seconds for the lease holder.
func TestReadDoesNotWaitForALease(t *testing.T) {
	forEachMethod(t, func(t *testing.T, g fixture) {
		write(t, g.path("x.json"), "{}")
		f, err := os.OpenFile(g.path("x.json"), os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
		require.NoError(t, err)
		_, err = g.read(t, "x.json")
		require.ErrorIs(t, err, errBusy)

		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		require.NoError(t, err)
		data, err := g.read(t, "x.json")
		require.NoError(t, err)
		require.Equal(t, "{}", string(data))
	})
}

func TestCheckSameFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	write(t, name, "a")
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	fd := int(f.Fd())
	before, err := fstat(fd)
	require.NoError(t, err)
	require.NoError(t, checkSameFile(fd, &before, limit))

	other := before
	other.Ino++
	require.ErrorIs(t, checkSameFile(fd, &other, limit), errBusy, "the name is another file's")
	other = before
	other.Ctim.Nsec++
	require.ErrorIs(t, checkSameFile(fd, &other, limit), errBusy, "links were added or removed")
	require.ErrorIs(t, checkSameFile(fd, &before, 0), errTooLarge, "the same file has grown")
}

// requests/ may be a file system of its own. A mount inside it is refused.
func TestMounts(t *testing.T) {
	g := newFixture(t)
	if err := unix.Mount("tmpfs", g.dir, "tmpfs", 0, "size=1m"); err != nil {
		require.NotZero(t, os.Geteuid(), "mount as root: %v", err)
		require.ErrorIs(t, err, unix.EPERM, "only root can mount")
		return
	}
	defer func() { require.NoError(t, unix.Unmount(g.dir, unix.MNT_DETACH)) }()
	require.True(t, g.Stale(), "a mount hides the open folder")

	h, err := openHostile(g.dir)
	require.NoError(t, err)
	defer h.Close()
	g.hostile = h
	require.False(t, h.Stale())
	write(t, g.path("x.json"), "{}")
	data, err := g.read(t, "x.json")
	require.NoError(t, err)
	require.Equal(t, "{}", string(data))
	names, _, err := h.Names(10)
	require.NoError(t, err)
	require.Equal(t, []string{"x.json"}, names)

	require.NoError(t, unix.Mount(g.secret, g.path("x.json"), "", unix.MS_BIND, ""))
	defer func() { require.NoError(t, unix.Unmount(g.path("x.json"), unix.MNT_DETACH)) }()
	_, err = g.read(t, "x.json")
	require.ErrorIs(t, err, errNotRegular, "a bind mount of a host file has one link and is no symbolic link")
	require.Error(t, h.Remove("x.json"))
}

const readVariable = "IPC_TEST_READ"

// TestUnprivilegedReader is the other process of the test below.
func TestUnprivilegedReader(t *testing.T) {
	dir := os.Getenv(readVariable)
	if dir == "" {
		return
	}
	h, err := openHostile(dir)
	require.NoError(t, err)
	_, err = h.Read("closed.json", limit)
	require.ErrorIs(t, err, fs.ErrPermission, "the agent must be told that its umask makes the file unreadable")
	data, err := h.Read("open.json", limit)
	require.NoError(t, err)
	require.Equal(t, "{}", string(data))
}

// A daemon without privileges reads the files of an agent with another UID.
func TestReadWithoutPermission(t *testing.T) {
	g := newFixture(t)
	write(t, g.path("open.json"), "{}")
	write(t, g.path("closed.json"), "{}")
	require.NoError(t, os.Chmod(g.path("closed.json"), 0))

	child := exec.Command(testBinary(t), "-test.run=^TestUnprivilegedReader$")
	child.Env = append(os.Environ(), readVariable+"="+g.dir)
	if os.Geteuid() == 0 {
		for dir := filepath.Dir(g.dir); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
			require.NoError(t, os.Chmod(dir, 0o755))
		}
		child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		child.Dir = "/"
	}
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// testBinary is a copy of this program that another user may run.
func testBinary(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "ipc-test-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	name := filepath.Join(dir, "ipc.test")
	require.NoError(t, os.WriteFile(name, program, 0o755))
	return name
}
