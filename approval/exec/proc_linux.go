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

// proc is a line of the process table.
type proc struct {
	pid, parent, session int
	zombie               bool
}

// pidOffset is where a siginfo of SIGCHLD holds the pid: behind three ints,
// aligned to a pointer.
const pidOffset = (3*4 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)

// nextDead waits for a dead child and names it, but leaves it unreaped. The
// error is ECHILD when there are no children at all.
func nextDead() (int, error) {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
	//nolint:gosec // the library names this field on no platform; the offset lies within info
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), pidOffset))), err
}

// hasOrphans says whether the calling thread has children of any kind. On the
// main thread of a supervisor these are the abandoned processes, because
// commands are made by another thread.
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

// readProc parses /proc/PID/stat. The name in it may hold anything, so we
// count from its closing parenthesis.
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

// children lists the calling process's own.
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

// markOf is the mark in a process's environment as it was at its last exec,
// or "". In the middle of an exec there is no environment for a moment, so an
// empty one is looked at again.
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

// killMarked kills every process that carries one of the marks, and returns
// when they are dead. They are not our children, so each is held by a pidfd:
// the number may be another's by the time we use it.
func killMarked[V any](marks map[string]V) {
	for range 10 { // what is born meanwhile is found in the next round
		found := false
		for _, p := range processes() {
			if _, ok := marks[markOf(p)]; ok {
				found = killHeld(p, marks) || found
			}
		}
		if !found {
			return
		}
	}
}

func killHeld[V any](p proc, marks map[string]V) bool {
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
