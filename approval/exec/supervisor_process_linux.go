package exec

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// superviseArg as the first argument starts the binary as a supervisor. The others are
// for tests, see cgroupsOf.
const superviseArg = "__permesso-supervise"

// socketFD is a supervisor's descriptor of the socket to its daemon.
const socketFD = 3

func isSupervisorProcess() bool { return len(os.Args) >= 2 && os.Args[1] == superviseArg }

// Abandoned processes become children of the main thread, and only the main thread
// can check cheaply for them. The main goroutine is sure to be on that thread only
// while packages are initialized. A command that joins its cgroup is executed here, too, as
// early as possible. In other processes init does nothing.
func init() {
	joinIfAsked()
	if isSupervisorProcess() {
		runtime.LockOSThread()
	}
}

// SuperviseIfAsked runs the supervisor and does not return if the process was
// started as one. Programs that use a Supervisor call it first in main and in
// TestMain.
func SuperviseIfAsked() {
	if !isSupervisorProcess() {
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
		return errors.New("only the daemon may start this process")
	}
	if err := keepDescriptors(); err != nil {
		return err
	}
	// Caught, not ignored: commands would inherit ignored signals. The supervisor
	// ends with the socket, after the commands.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	syscall.Umask(0o077)
	var first precedence
	first.take()
	groups, err := cgroupsOf(os.Args[2:])
	why := ""
	if err != nil {
		why = err.Error()
	}
	w := &supervisor{
		groups: groups, precedence: first, jobs: map[int]*job{}, strays: map[int]candidates{},
		spawned: make(chan struct{}, 1), started: make(chan struct{}, 1),
	}
	report(msgReady, groups.runs, why)
	go w.serve()
	go w.watch()
	w.reap()
	return nil
}

// Arguments of a supervisor in tests: what the kernel or the host lacks.
const (
	withoutCgroups  = "without-cgroups"
	withoutKillFile = "without-kill-file" // before Linux 5.14
	withoutCloneIn  = "without-clone-in"  // before Linux 5.7, and under RestrictNamespaces=
)

func cgroupsOf(without []string) (*cgroups, error) {
	if slices.Contains(without, withoutKillFile) {
		killFile = "none"
	}
	if slices.Contains(without, withoutCgroups) {
		return &cgroups{}, errors.New("turned off")
	}
	groups, err := newCgroups()
	groups.join = groups.join || slices.Contains(without, withoutCloneIn)
	return groups, err
}

// keepDescriptors prevents commands from inheriting the supervisor's descriptors:
// the socket, and those that the daemon inherited from its parent.
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

// supervisor is the state of the supervisor process.
type supervisor struct {
	groups *cgroups
	// births is held while a child is started, so that no child is reaped before it is known.
	// That takes seconds if the child gets no CPU. mu, the inner lock, is held for moments only.
	births sync.Mutex

	mu     sync.Mutex
	jobs   map[int]*job       // by the command's pid, which is also its group and session
	strays map[int]candidates // abandoned processes without a mark
	brake  brake
	precedence
	spawned chan struct{} // signals the first child
	started chan struct{} // signals a run, and the end of one
}

// job is one run. It stays among the jobs until none of its processes is left.
type job struct {
	mark   string
	pid    int
	dir    string // to be removed if the daemon is gone, or ""
	memory int64  // its limits, 0: none
	tasks  int
	lasts  bool // it is a server
	began  time.Time
	cgroup string                 // its folder, or ""
	said   *os.File               // why a command that joined its cgroup was not started, or nil
	over   atomic.Pointer[string] // the limit that it is over, see limit
	ended  atomic.Bool            // the command itself has ended and is reaped
	empty  bool                   // its group is empty, and the number may be reused
	left   int                    // members that cannot be killed
	state  unix.WaitStatus
}

// candidates are the runs that a stray may belong to: those that were running when
// it was first seen.
type candidates map[*job]bool

// serve handles the daemon's messages. Commands die with the thread that started
// them, so this goroutine never releases its thread.
func (w *supervisor) serve() {
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
		w.handle(unpack(buf[:n]), received(oob[:oobn]))
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

func (w *supervisor) handle(fields []string, fds []int) {
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	switch {
	case fields[0] == msgRun && len(fds) == 3:
		w.run(fields, fds)
	case fields[0] == msgRun && len(fields) > 1:
		report(msgFailed, fields[1], "supervisor is out of file descriptors")
	case fields[0] == msgKill && len(fields) == 2:
		w.kill(fields[1])
	}
}

func (w *supervisor) run(fields []string, fds []int) {
	s, err := unpackSpec(fields)
	if err != nil {
		if len(fields) > 1 {
			report(msgFailed, fields[1], err.Error())
		}
		return
	}
	w.births.Lock()
	defer w.births.Unlock()
	j, err := w.spawn(s, fds)
	if err != nil {
		report(msgFailed, s.mark, fmt.Sprintf("start %s: %v", s.path, err))
		return
	}
	if s.temp {
		j.dir = s.dir
	}
	w.mu.Lock()
	w.jobs[j.pid] = j
	w.mu.Unlock()
	signalTo(w.spawned)
	signalTo(w.started)
}

func signalTo(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// spawn starts a command, in its own cgroup if this host permits it.
func (w *supervisor) spawn(s spec, fds []int) (*job, error) {
	j := &job{mark: s.mark, memory: s.memory, tasks: s.tasks, lasts: s.piped, began: time.Now()}
	var err error
	if w.groups.runs != "" {
		if j.cgroup, err = w.groups.make(s.mark, s); err != nil {
			return nil, err
		}
	}
	if !w.groups.kernel {
		defer w.brake.on(s.tasks)()
	}
	back := w.lend()
	j.pid, j.said, err = startIn(s, fds, j.cgroup, w.groups.join)
	back()
	if err != nil {
		if j.cgroup != "" {
			_ = removeCgroup(j.cgroup)
		}
		return nil, err
	}
	// What the command started before this is not protected less than the daemon: a hint only.
	_ = os.WriteFile("/proc/"+strconv.Itoa(j.pid)+"/oom_score_adj", []byte(handlerOOMScore), 0)
	return j, nil
}

// kill begins a run's end; reap completes it.
func (w *supervisor) kill(mark string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		if j.mark == mark && !j.ended.Load() {
			j.kill()
		}
	}
}

// reap waits for children and abandoned processes, forever.
func (w *supervisor) reap() {
	for {
		pid, err := nextDead(0)
		if errors.Is(err, unix.ECHILD) {
			<-w.spawned
		} else if err == nil {
			w.reapFrom(pid)
		}
	}
}

// batch is how many children are reaped before runs are settled: a run may end with
// thousands of processes, and settling is slower than reaping.
const batch = 500

// reapFrom reaps a dead child, and others that are dead.
func (w *supervisor) reapFrom(pid int) {
	w.births.Lock()
	defer w.births.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for range batch {
		w.reapChild(pid)
		var err error
		if pid, err = nextDead(unix.WNOHANG); err != nil || pid == 0 {
			break
		}
	}
	orphans := sync.OnceValue(func() []proc {
		if !hasOrphans() {
			return nil
		}
		return children()
	})
	for _, j := range w.jobs {
		if j.ended.Load() {
			w.settle(j, orphans)
		}
	}
}

// reapChild reaps one dead child. It kills a command's group first: until its
// leader is reaped, the number cannot be reused.
func (w *supervisor) reapChild(pid int) {
	j := w.jobs[pid]
	if j != nil && !j.ended.Load() {
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
	var state unix.WaitStatus
	if _, err := unix.Wait4(pid, &state, unix.WNOHANG, nil); err != nil {
		return
	}
	delete(w.strays, pid)
	if j != nil && !j.ended.Load() {
		j.state = state
		j.ended.Store(true)
		signalTo(w.started) // watch may have to settle it
	}
}

// settle reports a run whose command has ended, once none of its processes is left.
// It is called again after every death until then, and by watch. orphans returns the
// children of this process.
func (w *supervisor) settle(j *job, orphans func() []proc) {
	if j.cgroup != "" {
		killCgroup(j.cgroup)
		if populated(j.cgroup) {
			return
		}
	}
	if !j.empty {
		err := unix.Kill(-j.pid, unix.SIGKILL)
		j.empty = err != nil
		if err == unix.EPERM {
			j.left++
		}
	}
	waiting, left := w.killStrays(j, orphans)
	if waiting > 0 || !j.empty {
		return
	}
	if j.cgroup != "" {
		if w.groups.kernel {
			j.exceeds(enforced(j.cgroup))
		}
		if removeCgroup(j.cgroup) != nil {
			return // the kernel is not done with it: watch comes back
		}
	}
	delete(w.jobs, j.pid)
	if why := j.notStarted(); why != "" {
		report(msgFailed, j.mark, why)
		return
	}
	report(msgExit, j.mark, statusText(j.state), strconv.Itoa(j.left+left), j.limit())
}

// notStarted is why a command that has ended was not executed, or "".
func (j *job) notStarted() string {
	if j.said == nil {
		return ""
	}
	defer j.said.Close()
	text, _ := io.ReadAll(j.said)
	return string(text)
}

// killStrays kills j's processes outside its group. It counts those that are dying
// and those that cannot be killed. Their children are found after their death.
func (w *supervisor) killStrays(j *job, orphans func() []proc) (waiting, left int) {
	for _, p := range orphans() {
		if w.jobs[p.pid] != nil && !w.jobs[p.pid].ended.Load() {
			continue
		}
		belongs, sure := w.belongs(p, j)
		if !sure {
			waiting++
		}
		if !belongs {
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

// unknownFor is how long a run that has ended waits for the mark of an abandoned process.
const unknownFor = time.Second

// belongs says whether to kill an abandoned process with j. Its session or its mark
// identifies its run. Without either it is killed with the last of its candidates. It is not
// sure if the mark could not be read yet.
func (w *supervisor) belongs(p proc, j *job) (belongs, sure bool) {
	if owner := w.jobs[p.session]; owner != nil {
		return owner == j, true
	}
	mark, waited := markOf(p)
	if mark != "" {
		for _, other := range w.jobs {
			if other != j && other.mark == mark {
				return false, true
			}
		}
		return true, true // of j, or of a run that has ended
	}
	if waited > 0 && waited < unknownFor {
		return false, false
	}
	s := w.strays[p.pid]
	if s == nil {
		s = candidates{}
		for _, other := range w.jobs {
			s[other] = true
		}
		w.strays[p.pid] = s
	}
	delete(s, j)
	return len(s) == 0, true
}

// end kills everything and exits when the daemon is gone.
func (w *supervisor) end() {
	w.births.Lock()
	w.mu.Lock() // never unlocked: nothing may be started or reported any more
	if w.groups.runs != "" {
		killCgroup(w.groups.runs)
	}
	for killTree(os.Getpid()) > 0 {
		if _, err := unix.Wait4(-1, nil, 0, nil); err == unix.ECHILD {
			break
		}
		for reapedOne() {
		}
	}
	w.groups.remove()
	for _, j := range w.jobs {
		if j.dir != "" {
			_ = os.RemoveAll(j.dir)
		}
	}
	unix.Exit(0) // there is nothing to flush, and Close is waiting
}

func reapedOne() bool {
	pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
	return err == nil && pid > 0
}

// report sends a message to the daemon. If the daemon is gone, serve notices that
// itself.
func report(fields ...string) {
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
