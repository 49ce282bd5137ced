package exec

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// proc is an entry of the process table.
type proc struct {
	pid, parent, session int
	zombie               bool
	threads              int
	started              string // after the boot, in ticks
	memory               int64  // bytes in RAM, shared ones included
}

// pidOffset is the offset of the pid in a siginfo of SIGCHLD: after three ints,
// aligned to a pointer.
const pidOffset = (3*4 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)

// nextDead waits for a dead child and returns its pid without reaping it. The error
// is ECHILD if there are no children. With WNOHANG it does not wait: 0 means none.
func nextDead(options int) (int, error) {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|options, nil)
	//nolint:gosec // the library names this field on no platform; the offset lies within info
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), pidOffset))), err
}

// hasOrphans says whether the calling thread has children. On a supervisor's main
// thread these are the abandoned processes, because another thread starts the
// commands.
func hasOrphans() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WNOTHREAD, nil)
	return err != unix.ECHILD
}

// processes reads the process table.
func processes() []proc {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	list := make([]proc, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProc(pid); ok {
				list = append(list, p)
			}
		}
	}
	return list
}

// readProc parses /proc/PID/stat. The process name may contain anything, so fields
// are counted from its closing parenthesis.
func readProc(pid int) (proc, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // state, ppid, pgrp, session: see proc(5)
	if len(fields) < 22 {
		return proc{}, false
	}
	var n [22]int
	for _, i := range []int{1, 3, 17, 21} {
		if n[i], err = strconv.Atoi(fields[i]); err != nil {
			return proc{}, false
		}
	}
	return proc{
		pid: pid, parent: n[1], session: n[3], zombie: fields[0] == "Z",
		threads: n[17], started: fields[19], memory: int64(n[21]) * int64(os.Getpagesize()),
	}, true
}

// readMemory is the memory of a process in bytes, and the part of it that is shared memory;
// pages that several processes share are divided among them. It is slower than proc.memory,
// which it returns if the process belongs to another user.
func (p proc) readMemory() (all, shmem int64) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/smaps_rollup")
	if err != nil {
		return p.memory, 0
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line) // Pss:  1234 kB
		if len(fields) != 3 {
			continue
		}
		kb, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "Pss:", "SwapPss:":
			all += kb << 10
		case "Pss_Shmem:":
			shmem += kb << 10
		}
	}
	return all, shmem
}

// heldMemory is what files without a name take in memory that the processes hold open, in
// bytes: those of memfd_create, and removed ones of a tmpfs.
func heldMemory(list []proc) (sum int64) {
	seen := map[[2]uint64]bool{}
	for _, p := range list {
		dir := "/proc/" + strconv.Itoa(p.pid) + "/fd/"
		names, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, name := range names {
			var file unix.Stat_t
			var system unix.Statfs_t
			link, err := os.Readlink(dir + name.Name())
			if err != nil || !strings.HasSuffix(link, " (deleted)") {
				continue
			}
			if unix.Stat(dir+name.Name(), &file) != nil || file.Mode&unix.S_IFMT != unix.S_IFREG || file.Nlink > 0 ||
				unix.Statfs(dir+name.Name(), &system) != nil || system.Type != unix.TMPFS_MAGIC || seen[[2]uint64{file.Dev, file.Ino}] {
				continue
			}
			seen[[2]uint64{file.Dev, file.Ino}] = true
			sum += file.Blocks * 512
		}
	}
	return sum
}

// childrenOf lists the children of a process. It may miss one if another ends at the same
// time.
func childrenOf(pid int) []int {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil
	}
	var list []int
	for _, thread := range threads {
		b, err := os.ReadFile(tasks + "/" + thread.Name() + "/children")
		if err != nil {
			continue
		}
		list = append(list, numbers(b)...)
	}
	return list
}

// children lists the children of the calling process.
func children() []proc {
	var list []proc
	for _, p := range processes() {
		if p.parent == os.Getpid() {
			list = append(list, p)
		}
	}
	return list
}

// killTree kills all descendants of root that it may, and counts them.
func killTree(root int) int {
	below := map[int][]int{}
	for _, p := range processes() {
		below[p.parent] = append(below[p.parent], p.pid)
	}
	killed := 0
	for next := below[root]; len(next) > 0; next = next[1:] {
		if unix.Kill(next[0], unix.SIGKILL) == nil {
			killed++
		}
		next = append(next, below[next[0]]...)
	}
	return killed
}

// processID identifies a process: numbers are reused.
type processID struct {
	pid     int
	started string
}

func (p proc) id() processID { return processID{p.pid, p.started} }

var marks background[processID, string]

// markOf is the mark of a process's run, or "": the name of its cgroup, or the mark in its
// environment at its last exec. If it waited, the mark is not known yet.
func markOf(p proc) (mark string, waited time.Duration) {
	return marks.get(p.id(), func() string { return readMark(p) })
}

// readMark reads again what is empty: during an exec the environment is, briefly.
func readMark(p proc) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/cgroup")
	if _, below, ok := strings.Cut(cgroupIn(string(b)), "/"+runsPrefix); ok {
		if parts := strings.Split(below, "/"); len(parts) > 1 {
			return parts[1]
		}
	}
	for try := 0; try < 5 && !p.zombie; try++ {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
		if err != nil {
			return ""
		}
		for v := range strings.SplitSeq(string(b), "\x00") {
			if mark, ok := strings.CutPrefix(v, envMark+"="); ok {
				return mark
			}
		}
		if len(b) > 0 {
			return ""
		}
		time.Sleep(200 * time.Microsecond)
	}
	return ""
}

// killAll kills the processes that list returns, and those that they start meanwhile: a
// stopped process starts no other.
func killAll(list func() []int) {
	stopped := map[int]bool{}
	for range 100 { // the caller repeats it until none is left
		before := len(stopped)
		for _, pid := range list() {
			if !stopped[pid] {
				stopped[pid] = true
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
		if len(stopped) == before {
			break
		}
	}
	for pid := range stopped {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// killMarked kills every process with one of the marks, and returns when they are
// dead. They are not the daemon's children, so each is addressed by a pidfd: its
// number may be reused. They are stopped first, because a stopped one starts no other.
func killMarked[V any](marked map[string]V) {
	for range 10 { // more than it can stop at once are left for the next round
		stopped, unknown := stopMarked(marked)
		for _, fd := range stopped {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		for _, fd := range stopped {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Second/time.Millisecond))
			_ = unix.Close(fd)
		}
		if len(stopped) == 0 && !unknown {
			return
		}
	}
}

// stopMarked stops every process with one of the marks, and those that they start
// meanwhile. It returns pidfds, and whether there is a process whose mark is not known.
func stopMarked[V any](marked map[string]V) (fds []int, unknown bool) {
	stopped := map[processID]bool{}
	for range 100 {
		before := len(fds)
		unknown = false
		for _, p := range processes() {
			if stopped[p.id()] {
				continue
			}
			mark, waited := markOf(p)
			unknown = unknown || waited > 0
			if _, ok := marked[mark]; !ok {
				continue
			}
			fd, err := unix.PidfdOpen(p.pid, 0)
			if err != nil {
				continue
			}
			// Still this process, not another one with its number.
			if now, ok := readProc(p.pid); !ok || now.id() != p.id() || unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0) != nil {
				_ = unix.Close(fd)
				continue
			}
			stopped[p.id()] = true
			fds = append(fds, fd)
		}
		if len(fds) == before && !unknown {
			break
		}
		if len(fds) == before {
			time.Sleep(patience)
		}
	}
	return fds, unknown
}
