package doctor

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func changedAt(info fs.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return info.ModTime()
}

// unsynchronized reports whether the kernel's clock is not synchronized.
func unsynchronized() bool {
	var t unix.Timex // zero modes: read only
	_, err := unix.Adjtimex(&t)
	return err == nil && t.Status&unix.STA_UNSYNC != 0
}

// process is a running daemon.
type process struct {
	pid          int
	started      time.Time
	replaced     bool // its program is no longer the one on disk
	ignoresFsync bool // libeatmydata
}

// findDaemon finds the process that holds a lock. From inside a container it
// may be invisible.
func findDaemon(lock string) (process, bool) {
	pid := lockHolder("/proc/locks", lock)
	if pid <= 0 {
		return process{}, false
	}
	p := process{pid: pid, started: startedAt(pid)}
	if exe, err := os.Readlink(procFile(pid, "exe")); err == nil {
		p.replaced = strings.HasSuffix(exe, " (deleted)")
	}
	for _, file := range []string{"environ", "maps"} {
		b, err := os.ReadFile(procFile(pid, file))
		p.ignoresFsync = p.ignoresFsync || err == nil && bytes.Contains(b, []byte("libeatmydata"))
	}
	return p, true
}

// startedAt is exact to about a second. A tick is 10 ms on every system that
// Go runs on.
func startedAt(pid int) time.Time {
	ticks, err := strconv.ParseInt(startOf(pid), 10, 64)
	var up unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(ticks)*10*time.Millisecond - time.Duration(up.Nano()))
}

func procFile(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}

// lockHolder reads proc_locks(5):
//
//	1: FLOCK  ADVISORY  WRITE 708 fd:01:1179650 0 EOF
//
// It compares inodes only: the device numbers differ on some file systems.
func lockHolder(locks, name string) int {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	b, err := os.ReadFile(locks)
	if err != nil || !ok {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		w := strings.Fields(line)
		if len(w) < 6 || w[1] != "FLOCK" || !strings.HasSuffix(w[5], fmt.Sprintf(":%d", st.Ino)) {
			continue
		}
		if pid, err := strconv.Atoi(w[4]); err == nil && openedBy(pid, info) {
			return pid
		}
	}
	return 0
}

// openedBy reports whether a process has that file open. Inode numbers are
// unique only within one file system.
func openedBy(pid int, file fs.FileInfo) bool {
	fds, err := filepath.Glob(procFile(pid, "fd/*"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(fds, func(fd string) bool {
		info, err := os.Stat(fd)
		return err == nil && os.SameFile(info, file)
	})
}

// agentNames are the programs of known AI agents. Their arguments are not read.
var agentNames = []string{
	"aider", "amp", "auggie", "claude", "cline", "codex", "copilot", "crush", "cursor-agent", "droid", "gemini", "goose", "kiro-cli",
	"opencode", "openhands", "plandex", "qwen", "swe-agent",
}

// interpreters run the program in their first argument.
var interpreters = []string{"node", "bun", "deno", "python", "python3", "uv"}

// agent is a process with the name of a known agent.
type agent struct {
	name string
	pid  int
	as   string
}

// findAgents lists agents of the user uid or root in our namespaces.
func findAgents(uid int) ([]agent, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var list []agent
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			continue // the process has ended
		}
		owner := ownerOf(info)
		pid, _ := strconv.Atoi(filepath.Base(dir)) // digits
		if pid == os.Getpid() || owner != uid && owner != 0 || sandboxed(dir) {
			continue
		}
		if name := agentName(dir); name != "" {
			as := "the daemon's user"
			if owner == 0 {
				as = "root"
			}
			list = append(list, agent{name, pid, as})
		}
	}
	slices.SortFunc(list, func(a, b agent) int { return a.pid - b.pid })
	return list, nil
}

// sandboxed reports whether a process has another mount or user namespace than
// we. Then its mounts decide what it can reach.
func sandboxed(dir string) bool {
	for _, ns := range []string{"ns/user", "ns/mnt"} {
		ours, err := os.Readlink(filepath.Join("/proc/self", ns))
		theirs, err2 := os.Readlink(filepath.Join(dir, ns))
		if err == nil && err2 == nil && ours != theirs {
			return true
		}
	}
	return false
}

func agentName(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil || len(b) == 0 {
		return ""
	}
	argv := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	names := []string{programName(argv[0])}
	if slices.Contains(interpreters, strings.TrimRight(names[0], "0123456789.")) {
		for _, arg := range argv[1:] {
			if !strings.HasPrefix(arg, "-") {
				names = append(names, programName(arg))
				break
			}
		}
	}
	if exe, err := os.Readlink(filepath.Join(dir, "exe")); err == nil {
		names = append(names, programName(exe))
	}
	for _, name := range names {
		if slices.Contains(agentNames, name) {
			return name
		}
	}
	return ""
}

func programName(path string) string {
	name := filepath.Base(path)
	for _, suffix := range []string{".js", ".mjs", ".cjs", ".py"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}
