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
}

// pidOffset is the offset of the pid in a siginfo of SIGCHLD: after three ints,
// aligned to a pointer.
const pidOffset = (3*4 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)

// nextDead waits for a dead child and returns its pid without reaping it. The error
// is ECHILD if there are no children.
func nextDead() (int, error) {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
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
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // state, ppid, pgrp, session
	if len(fields) < 4 {
		return proc{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	session, err2 := strconv.Atoi(string(fields[3]))
	return proc{pid, parent, session, fields[0][0] == 'Z'}, err1 == nil && err2 == nil
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

// markOf is the mark in a process's environment at its last exec, or "". During an
// exec the environment is briefly empty, so an empty one is read again.
func markOf(p proc) string {
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

// killMarked kills every process with one of the marks, and returns when they are
// dead. They are not the daemon's children, so each is addressed by a pidfd: its
// number may be reused.
func killMarked[V any](marks map[string]V) {
	for range 10 { // new processes are found in the next round
		found := false
		for _, p := range processes() {
			if _, ok := marks[markOf(p)]; ok {
				found = killByPidfd(p, marks) || found
			}
		}
		if !found {
			return
		}
	}
}

func killByPidfd[V any](p proc, marks map[string]V) bool {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if _, ok := marks[markOf(p)]; !ok || unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) != nil {
		return false
	}
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Second/time.Millisecond))
	return true
}
