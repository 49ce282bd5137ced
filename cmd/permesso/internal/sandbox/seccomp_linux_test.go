//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/ipc"
)

// judge runs the filter on a call. The virtual machine loads big-endian words.
func judge(t *testing.T, arch, call uint32, args ...uint64) unix.Errno {
	t.Helper()
	vm, err := bpf.NewVM(program())
	require.NoError(t, err)
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[callNumber:], call)
	binary.BigEndian.PutUint32(data[callArch:], arch)
	for i, arg := range args {
		at := data[firstArg+argSize*i:]
		binary.BigEndian.PutUint32(at, uint32(arg))
		binary.BigEndian.PutUint32(at[4:], uint32(arg>>32))
	}
	n, err := vm.Run(data)
	require.NoError(t, err)
	if n == unix.SECCOMP_RET_ALLOW {
		return 0
	}
	require.Equal(t, unix.SECCOMP_RET_ERRNO, n&^0xffff)
	return unix.Errno(n & 0xffff)
}

func TestFilter(t *testing.T) {
	const high = 1 << 40 // the kernel does not read it
	type row struct {
		what string
		call uint32
		args []uint64
		want unix.Errno
	}
	rows := []row{
		{"read", unix.SYS_READ, nil, 0},
		{"execve", unix.SYS_EXECVE, nil, 0},
		{"ptrace", unix.SYS_PTRACE, nil, 0},
		{"mkdir", unix.SYS_MKDIRAT, []uint64{0, 0, 0o6777}, 0}, // the kernel ignores these bits
		{"a thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD}, 0},
		{"a process", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, 0},
		{"open a terminal", unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, 0},
		{"type into a terminal", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, unix.EPERM},
		{"type into a terminal, with high bits", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI | high}, unix.EPERM},
		{"paste into a terminal", unix.SYS_IOCTL, []uint64{0, unix.TIOCLINUX}, unix.EPERM},
		{"a Unix socket", unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, 0},
		{"a socket to the hypervisor", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK}, unix.EPERM},
		{"openat for reading, with rubbish as mode", unix.SYS_OPENAT, []uint64{0, 0, unix.O_RDONLY | unix.O_DIRECTORY, 0o6777}, 0},
		{"openat that creates", unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT, 0o1777}, 0},
		{"openat that creates, setuid", unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT | high, 0o4755 | high}, unix.EPERM},
		{"openat without a name, setgid", unix.SYS_OPENAT, []uint64{0, 0, unix.O_TMPFILE, 0o2755}, unix.EPERM},
		{"fchmod", unix.SYS_FCHMOD, []uint64{0, 0o1777}, 0},
		{"fchmod, setuid", unix.SYS_FCHMOD, []uint64{0, 0o4000}, unix.EPERM},
		{"fchmodat", unix.SYS_FCHMODAT, []uint64{0, 0o6000, 0o755}, 0},
		{"fchmodat, setgid", unix.SYS_FCHMODAT, []uint64{0, 0, 0o2755}, unix.EPERM},
		{"fchmodat2, setuid", unix.SYS_FCHMODAT2, []uint64{0, 0, 0o4755}, unix.EPERM},
		{"mknodat", unix.SYS_MKNODAT, []uint64{0, 0, unix.S_IFIFO | 0o644}, 0},
		{"mknodat, setuid", unix.SYS_MKNODAT, []uint64{0, 0, unix.S_IFREG | 0o4755}, unix.EPERM},
		{"clone3", unix.SYS_CLONE3, nil, unix.ENOSYS},
		{"openat2", unix.SYS_OPENAT2, nil, unix.ENOSYS},
		{"io_uring", unix.SYS_IO_URING_SETUP, nil, unix.ENOSYS},
		{"a call of x32, or none", 0x40000000 | unix.SYS_READ, nil, map[bool]unix.Errno{true: unix.ENOSYS}[firstForeign == 0x40000000]},
		{"no call", 1<<32 - 1, nil, unix.ENOSYS},
	}
	for _, flag := range []uint64{unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWPID, unix.CLONE_NEWNET, unix.CLONE_NEWIPC, unix.CLONE_NEWUTS, unix.CLONE_NEWCGROUP} {
		rows = append(rows, row{"a namespace", unix.SYS_CLONE, []uint64{flag | uint64(unix.SIGCHLD)}, unix.EPERM})
	}
	for _, call := range append(refused, oldRefused...) {
		rows = append(rows, row{"a refused call", call, nil, unix.EPERM})
	}
	for _, m := range oldModes {
		rows = append(rows, row{"an old call, setuid", m.call, []uint64{0, 0o4755}, unix.EPERM})
	}
	for _, m := range oldOpens {
		rows = append(rows, row{"open for reading", m.call, []uint64{0, 0, 0o4755}, 0}, row{"open, setuid", m.call, []uint64{0, unix.O_CREAT, 0o4755}, unix.EPERM})
	}
	for _, r := range rows {
		require.Equal(t, r.want, judge(t, auditArch, r.call, r.args...), "%s: %d", r.what, r.call)
		require.Equal(t, unix.ENOSYS, judge(t, unix.AUDIT_ARCH_I386, r.call, r.args...), r.what)
	}
	require.Zero(t, len(Filter())%8)
}

// The file is written once, and again if it has changed.
func TestWriteFilter(t *testing.T) {
	l := ipc.Layout{Home: t.TempDir()}
	require.ErrorIs(t, CheckFilter(l), os.ErrNotExist)
	for _, change := range []func() error{
		func() error { return nil },
		func() error { return os.WriteFile(l.Seccomp(), []byte("old"), 0o644) },
		func() error { return os.Chmod(l.Seccomp(), 0o600) },
		func() error { return os.Remove(l.Seccomp()) },
	} {
		require.NoError(t, change())
		require.NoError(t, WriteFilter(l))
		require.NoError(t, CheckFilter(l))
	}
	// A daemon that starts meanwhile removes the temporary file.
	for swept := make(chan struct{}); ; {
		require.NoError(t, os.Remove(l.Seccomp()))
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				names, err := filepath.Glob(filepath.Join(l.Home, ".tmp-*"))
				if err == nil && len(names) == 1 && os.Remove(names[0]) == nil {
					close(swept)
					return
				}
			}
		})
		err := WriteFilter(l)
		close(stop)
		wg.Wait()
		require.NoError(t, err)
		select {
		case <-swept:
		default:
			continue
		}
		break
	}
	before, err := os.Stat(l.Seccomp())
	require.NoError(t, err)
	require.NoError(t, WriteFilter(l))
	after, err := os.Stat(l.Seccomp())
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "written again")
	names, err := os.ReadDir(l.Home)
	require.NoError(t, err)
	require.Len(t, names, 1)
	require.NoError(t, WriteFilter(ipc.Layout{Home: l.Home + "/none"}))
	require.Error(t, WriteFilter(ipc.Layout{Home: l.Seccomp() + "/none"}))
}
