package evaluate

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Binary is this binary, even if an upgrade has replaced its file.
func Binary() (string, error) { return "/proc/self/exe", nil }

// limit takes from this process what computing does not need. The runtime collects garbage before it comes near
// to the limit, and one thread computes, so that the time is that of the program.
func limit() error {
	runtime.GOMAXPROCS(1)
	debug.SetMemoryLimit(Memory / 2)
	closeInherited()
	space, err := addressSpace()
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, lowPriority); err != nil {
		return os.NewSyscallError("setpriority", err)
	}
	if err := endAtSIGXCPU(); err != nil {
		return err
	}
	seconds := uint64(Time.Seconds())
	for _, l := range []struct {
		resource  int
		most, end uint64
	}{
		{unix.RLIMIT_AS, space + more, space + more},
		{unix.RLIMIT_CPU, seconds, seconds + 1}, // with both the same, the kernel sends a SIGKILL, which can have other reasons
		{unix.RLIMIT_NOFILE, 16, 16},            // the runtime has some of its own
		{unix.RLIMIT_FSIZE, 0, 0},
		{unix.RLIMIT_CORE, 0, 0},
	} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.most, Max: l.end}); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	return nil
}

// endAtSIGXCPU lets the signal of RLIMIT_CPU end this process: the runtime ignores it. All of struct sigaction is 0, which
// is SIG_DFL.
func endAtSIGXCPU() error {
	var action [8]uint64
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGXCPU), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0) //nolint:gosec // the kernel reads it
	if errno != 0 {
		return os.NewSyscallError("rt_sigaction", errno)
	}
	return nil
}

// lowPriority lets the daemon and what it runs go first.
const lowPriority = 10

// addressSpace is how much this process has. The runtime reserves far more than it uses, but reserves what it uses later:
// 64 MiB at a time, or as much as one value needs. A limit of writable memory would not hold that back, as the kernel does
// not count what replaces a reservation.
func addressSpace() (uint64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	pages, _, _ := strings.Cut(string(b), " ")
	n, err := strconv.ParseUint(pages, 10, 64)
	return n * uint64(os.Getpagesize()), err
}

// closeInherited closes what the daemon inherited from its own parent. The anonymous ones are the runtime's.
func closeInherited() {
	open, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range open {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name()))
		fd, _ := strconv.Atoi(entry.Name())
		if err == nil && fd > 2 && !strings.HasPrefix(to, "anon_inode:") {
			_ = unix.Close(fd)
		}
	}
}
