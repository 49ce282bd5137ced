package exec

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// superviseArg, as the only argument, makes the binary a supervisor.
const superviseArg = "__permesso-supervise"

// socketFD is where a supervisor finds the socket to its daemon.
const socketFD = 3

func asked() bool { return len(os.Args) == 2 && os.Args[1] == superviseArg }

// Abandoned processes become children of a process's main thread, and only the
// main thread can ask cheaply whether it has any. The main goroutine is sure to
// be on that thread only while packages are initialised; in any other process
// than a supervisor this does nothing.
func init() {
	if asked() {
		runtime.LockOSThread()
	}
}

// SuperviseIfAsked turns this process into a supervisor when that is what it
// was started for, and then never returns. Programs that use a Supervisor call
// it first thing in main, and in TestMain.
func SuperviseIfAsked() {
	if !asked() {
		return
	}
	if err := supervise(); err != nil {
		fmt.Fprintln(os.Stderr, "permesso: supervise:", err)
		os.Exit(2)
	}
	os.Exit(0)
}

func supervise() error {
	kind, err := unix.GetsockoptInt(socketFD, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_SEQPACKET {
		return errors.New("this is for the daemon's own use")
	}
	if err := keepDescriptors(); err != nil {
		return err
	}
	// Caught, not ignored: what is ignored stays ignored in the commands. It
	// is the end of the socket that ends us, after the commands.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	syscall.Umask(0o077)
	w := &warden{jobs: map[int]*job{}, strays: map[int]suspects{}, spawned: make(chan struct{}, 1)}
	go w.serve()
	w.reap()
	return nil
}

// keepDescriptors makes sure that commands get none of what we have open: the
// socket, and whatever the daemon itself has inherited from a careless parent.
func keepDescriptors() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd >= socketFD {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// warden is the supervisor's state. Its lock is held while a child is made, so
// that no child can be reaped before it is known.
type warden struct {
	mu      sync.Mutex
	jobs    map[int]*job     // by the command's pid, which is its group and session too
	strays  map[int]suspects // abandoned processes without a mark
	spawned chan struct{}    // there are children again
}

// job is one run. It stays among the jobs until nothing of it is left.
type job struct {
	mark  string
	pid   int
	dir   string // to be removed if the daemon is gone, or ""
	ended bool   // the command itself has ended and is reaped
	empty bool   // its group is empty, and the number may belong to others
	left  int    // members we may not kill
	state unix.WaitStatus
}

// suspects are the runs that may have left a stray: those under way when it
// was first seen.
type suspects map[*job]bool

// serve does what the daemon says. Commands die with the thread that made
// them, so this goroutine keeps its thread for good.
func (w *warden) serve() {
	runtime.LockOSThread()
	buf := make([]byte, maxMessage+1)
	oob := make([]byte, unix.CmsgSpace(8*4))
	for {
		n, oobn, _, _, err := unix.Recvmsg(socketFD, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			w.end()
		}
		w.obey(unpack(buf[:n]), received(oob[:oobn]))
	}
}

func received(oob []byte) []int {
	var fds []int
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

func (w *warden) obey(fields []string, fds []int) {
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	switch {
	case fields[0] == msgRun && len(fds) == 3:
		w.run(fields, fds)
	case fields[0] == msgRun && len(fields) > 1:
		say(msgFailed, fields[1], "the supervisor is out of file descriptors")
	case fields[0] == msgKill && len(fields) == 2:
		w.kill(fields[1])
	}
}

func (w *warden) run(fields []string, fds []int) {
	s, err := unpackSpec(fields)
	if err != nil {
		if len(fields) > 1 {
			say(msgFailed, fields[1], err.Error())
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	pid, err := spawn(s, fds)
	if err != nil {
		say(msgFailed, s.mark, fmt.Sprintf("start %s: %v", s.path, err))
		return
	}
	j := &job{mark: s.mark, pid: pid}
	if s.temp {
		j.dir = s.dir
	}
	w.jobs[pid] = j
	select {
	case w.spawned <- struct{}{}:
	default:
	}
}

// spawn starts a command. A session of its own, and not only a group, keeps it
// from moving into another run's group, where our kill would miss it.
func spawn(s spec, fds []int) (int, error) {
	files := []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])}
	return syscall.ForkExec(s.path, s.argv, &syscall.ProcAttr{
		Dir: s.dir, Env: s.env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
}

// kill begins a run's end; reap completes it.
func (w *warden) kill(mark string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		if j.mark == mark && !j.ended {
			_ = unix.Kill(-j.pid, unix.SIGKILL)
		}
	}
}

// reap waits for children, ours and abandoned ones, for ever.
func (w *warden) reap() {
	for {
		pid, err := nextDead()
		if errors.Is(err, unix.ECHILD) {
			<-w.spawned
		} else if err == nil {
			w.bury(pid)
		}
	}
}

// bury takes one dead child from the process table. A command's group is
// killed first: while its leader is not reaped, the number is surely its own.
func (w *warden) bury(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[pid]
	if j != nil && !j.ended {
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
	var state unix.WaitStatus
	if _, err := unix.Wait4(pid, &state, unix.WNOHANG, nil); err != nil {
		return
	}
	delete(w.strays, pid)
	if j != nil && !j.ended {
		j.ended, j.state = true, state
	}
	for _, j := range w.jobs {
		if j.ended {
			w.settle(j)
		}
	}
}

// settle reports a run whose command has ended, once nothing of it is left.
// Until then every further death brings us here again.
func (w *warden) settle(j *job) {
	if !j.empty {
		err := unix.Kill(-j.pid, unix.SIGKILL)
		j.empty = err != nil
		if err == unix.EPERM {
			j.left++
		}
	}
	waiting, left := w.killStrays(j)
	if waiting > 0 || !j.empty {
		return
	}
	delete(w.jobs, j.pid)
	say(msgExit, j.mark, statusText(j.state), strconv.Itoa(j.left+left))
}

// killStrays kills what j has left outside its group; it counts what is dying
// and what we may not kill. It dies in generations: each death hands us the
// next.
func (w *warden) killStrays(j *job) (waiting, left int) {
	if !hasOrphans() {
		return 0, 0
	}
	for _, p := range children() {
		if w.jobs[p.pid] != nil && !w.jobs[p.pid].ended || !w.belongs(p, j) {
			continue
		}
		switch err := unix.Kill(p.pid, unix.SIGKILL); err {
		case nil:
			waiting++
		case unix.EPERM:
			left++
		}
	}
	return waiting, left
}

// belongs says whether an abandoned process is to die with j. Its session or
// its mark tell whose it is; without either it dies with the last of the runs
// that could have left it.
func (w *warden) belongs(p proc, j *job) bool {
	if owner := w.jobs[p.session]; owner != nil {
		return owner == j
	}
	if mark := markOf(p); mark != "" {
		for _, other := range w.jobs {
			if other != j && other.mark == mark {
				return false
			}
		}
		return true // j's, or a late one of a run that is over
	}
	s := w.strays[p.pid]
	if s == nil {
		s = suspects{}
		for _, other := range w.jobs {
			s[other] = true
		}
		w.strays[p.pid] = s
	}
	delete(s, j)
	return len(s) == 0
}

// end is what happens when the daemon is gone: everything dies, and so do we.
func (w *warden) end() {
	w.mu.Lock() // for good: nothing is to be started or reported any more
	for killTree(os.Getpid()) > 0 {
		if _, err := unix.Wait4(-1, nil, 0, nil); err == unix.ECHILD {
			break
		}
		for reapedOne() {
		}
	}
	for _, j := range w.jobs {
		if j.dir != "" {
			_ = os.RemoveAll(j.dir)
		}
	}
	unix.Exit(0) // at once: there is nothing to flush, and Close is waiting
}

func reapedOne() bool {
	pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
	return err == nil && pid > 0
}

// say reports to the daemon. If it is gone, serve learns so by itself.
func say(fields ...string) {
	_ = unix.Sendmsg(socketFD, pack(fields...), nil, nil, unix.MSG_NOSIGNAL)
}

func statusText(s unix.WaitStatus) string {
	switch {
	case s.Exited() && s.ExitStatus() == 0:
		return ""
	case s.Signaled():
		return "signal: " + s.Signal().String()
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}
