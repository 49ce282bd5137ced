package exec

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Supervisor is the daemon's handle of the supervisor process, the parent of all
// commands. Its zero value is ready to use: the process is started with the first
// command, and again if it died. It is safe for concurrent use.
type Supervisor struct {
	Log zerolog.Logger

	without []string // for tests, see cgroupsOf

	mu     sync.Mutex
	link   *link // nil until needed
	closed bool
}

var errClosed = errors.New("the supervisor is closed")

// Start starts the process before the first command, which saves that command some
// milliseconds.
func (s *Supervisor) Start() error {
	_, err := s.connect(nil)
	return err
}

// Limits says how the limits of runs are kept since Start: LimitsKernel, or
// LimitsCounted and why the kernel does not keep them. Both are "" before Start.
func (s *Supervisor) Limits() (how, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.link == nil:
		return "", ""
	case s.link.why != "":
		return LimitsCounted, s.link.why
	}
	return LimitsKernel, ""
}

// Close kills everything that is running, waits until it is dead, and ends the
// process. Running jobs report an unknown outcome.
func (s *Supervisor) Close() error {
	s.mu.Lock()
	s.closed = true
	l := s.link
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	l.hangUp()
	select {
	case <-l.dead:
	case <-time.After(killGrace): // it does not react: it may be stopped by a signal
		_ = l.proc.Kill()
		<-l.dead
	}
	return nil
}

// connect returns the live link, or a new one. It never returns broken, the link
// that the caller found broken.
func (s *Supervisor) connect(broken *link) (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if s.link != nil && s.link != broken && !s.link.isDead() {
		return s.link, nil
	}
	l, err := dial(s.Log, s.without)
	if err != nil {
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	select {
	case <-l.ready:
	case <-l.dead:
		return nil, errors.New("start supervisor: it died; its message is on the daemon's stderr")
	}
	s.link = l
	return l, nil
}

// start sends a command to the supervisor. If the send fails, the command was not
// received, so it is safe to send it to the next supervisor.
func (s *Supervisor) start(sp spec) (*process, error) {
	message, err := sp.pack()
	if err != nil {
		return nil, err
	}
	l, err := s.connect(nil)
	if err != nil {
		return nil, err
	}
	p, err := l.start(sp, message)
	if errors.Is(err, errSupervisorGone) {
		if l, err = s.connect(l); err != nil {
			return nil, err
		}
		p, err = l.start(sp, message)
	}
	return p, err
}

// link is one supervisor process and the socket to it.
type link struct {
	conn *net.UnixConn
	proc *os.Process
	log  zerolog.Logger
	dead chan struct{} // closed when the process and all runs are gone

	ready  chan struct{} // closed when the following are known
	groups string        // the folder of the runs' cgroups, or ""
	why    string        // why the kernel does not keep limits, or ""

	mu      sync.Mutex
	runs    map[string]chan<- exit // by mark; nil once the process is gone
	closing bool                   // closed on purpose
}

var errSupervisorGone = errors.New("the supervisor is gone")

// dial starts this binary as a supervisor.
func dial(log zerolog.Logger, without []string) (*link, error) {
	// Close-on-exec from the start: if another process held an end of this socket,
	// the supervisor would not notice the daemon's death.
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	daemonEnd, supervisorEnd := os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "daemon")
	defer daemonEnd.Close()
	defer supervisorEnd.Close()
	c, err := net.FileConn(daemonEnd)
	if err != nil {
		return nil, err
	}
	proc, err := startSupervisor(supervisorEnd, without)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	l := &link{
		conn: c.(*net.UnixConn), proc: proc, log: log,
		dead: make(chan struct{}), ready: make(chan struct{}), runs: map[string]chan<- exit{},
	}
	go l.listen()
	return l, nil
}

func startSupervisor(socket *os.File, without []string) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	// /proc/self/exe, because an upgrade may have replaced the file. No environment,
	// because it may hold secrets. Its own session, because a ^C in the terminal is
	// for the daemon only.
	return os.StartProcess("/proc/self/exe", append([]string{"permesso-supervisor", superviseArg}, without...), &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, os.Stderr, socket},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

// start sends a command with its three descriptors.
func (l *link) start(sp spec, message []byte) (*process, error) {
	std, err := newStdio(sp)
	if err != nil {
		return nil, err
	}
	defer std.closeChildEnds()
	exited := make(chan exit, 1)
	if err := l.add(sp.mark, exited); err != nil {
		std.closeDaemonEnds()
		return nil, err
	}
	if _, _, err := l.conn.WriteMsgUnix(message, unix.UnixRights(std.childEnds[:]...), nil); err != nil {
		std.closeDaemonEnds()
		l.remove(sp.mark)
		return nil, fmt.Errorf("%w: %w", errSupervisorGone, err)
	}
	kill := func() { _, _ = l.conn.Write(pack(msgKill, sp.mark)) }
	return &process{stdin: std.stdin, stdout: std.stdout, stderr: std.stderr, exited: exited, kill: kill}, nil
}

func (l *link) add(mark string, exited chan<- exit) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil {
		return errSupervisorGone
	}
	l.runs[mark] = exited
	return nil
}

func (l *link) remove(mark string) chan<- exit {
	l.mu.Lock()
	defer l.mu.Unlock()
	exited := l.runs[mark]
	delete(l.runs, mark)
	return exited
}

func (l *link) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs == nil || l.closing
}

// hangUp makes the supervisor kill everything and exit.
func (l *link) hangUp() {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	_ = l.conn.CloseWrite() // fails only if the supervisor is already gone
}

// listen reads the supervisor's messages until it is gone.
func (l *link) listen() {
	defer close(l.dead)
	buf := make([]byte, 8<<10)
	for {
		n, err := l.conn.Read(buf)
		if err != nil || n == 0 {
			break
		}
		l.handle(unpack(buf[:n]))
	}
	l.reap()
}

func (l *link) handle(fields []string) {
	if len(fields) < 3 {
		return
	}
	if fields[0] == msgReady {
		l.groups, l.why = fields[1], fields[2]
		close(l.ready)
		return
	}
	var e exit
	switch {
	case fields[0] == msgFailed:
		e.notStarted = fields[2]
	case fields[0] == msgExit && len(fields) == 5:
		e.status, e.over = fields[2], fields[4]
		e.left, _ = strconv.Atoi(fields[3])
	default:
		return
	}
	if exited := l.remove(fields[1]); exited != nil {
		exited <- e
	}
}

// reap ends the runs of a supervisor that is gone. A supervisor that exited cleanly
// has killed everything; after any other end the daemon kills by mark.
func (l *link) reap() {
	timer := time.AfterFunc(killGrace, func() { _ = l.proc.Kill() })
	state, err := l.proc.Wait()
	timer.Stop()
	_ = l.conn.Close()
	l.mu.Lock()
	runs, asked := l.runs, l.closing
	l.runs = nil
	l.mu.Unlock()
	if err != nil || !state.Success() {
		if l.groups != "" {
			killAbandoned(l.groups)
		}
		killMarked(runs)
	}
	if !asked {
		l.log.Error().Int("runs", len(runs)).Str("status", fmt.Sprint(state)).Msg("supervisor died; runs interrupted")
	}
	for _, exited := range runs {
		exited <- exit{lost: true}
	}
}

// stdio is a command's descriptors 0, 1 and 2, and the daemon's ends of them.
type stdio struct {
	childEnds             [3]int
	stdin, stdout, stderr *os.File // stdin: nil, unless it is a pipe
}

// newStdio makes stdin a file in memory, which needs no writer and works if the
// command does not read it, unless it is piped. The pipes are blocking on the command's
// side, as programs expect.
func newStdio(sp spec) (*stdio, error) {
	s := &stdio{childEnds: [3]int{-1, -1, -1}}
	var err error
	if sp.piped {
		s.stdin, s.childEnds[0], err = pipe("stdin", 1)
	} else {
		s.childEnds[0], err = memoryFile(sp.stdin)
	}
	if err == nil {
		s.stdout, s.childEnds[1], err = pipe("stdout", 0)
	}
	if err == nil {
		s.stderr, s.childEnds[2], err = pipe("stderr", 0)
	}
	if err != nil {
		s.closeChildEnds()
		s.closeDaemonEnds()
		return nil, err
	}
	return s, nil
}

func (s *stdio) closeChildEnds() {
	for _, fd := range s.childEnds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (s *stdio) closeDaemonEnds() {
	for _, f := range []*os.File{s.stdin, s.stdout, s.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// pipe makes a pipe of which the daemon has the end own: 0 to read, 1 to write.
func pipe(name string, own int) (*os.File, int, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, os.NewSyscallError("pipe2", err)
	}
	if err := unix.SetNonblock(p[own], true); err != nil {
		_ = unix.Close(p[0])
		_ = unix.Close(p[1])
		return nil, -1, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(p[own]), name), p[1-own], nil
}

func memoryFile(content []byte) (int, error) {
	fd, err := unix.MemfdCreate("arguments", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	for off := 0; off < len(content); {
		n, err := unix.Pwrite(fd, content[off:], int64(off))
		if err != nil && !errors.Is(err, unix.EINTR) {
			_ = unix.Close(fd)
			return -1, os.NewSyscallError("pwrite", err)
		}
		off += max(n, 0)
	}
	return fd, nil
}
