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

// Supervisor is the daemon's end of the process that all commands are children
// of. Its zero value is ready: the process is started with the first command,
// and again after it died. It is safe for concurrent use.
type Supervisor struct {
	Log zerolog.Logger

	mu     sync.Mutex
	link   *link // nil until needed
	closed bool
}

var errClosed = errors.New("the supervisor is closed")

// Start starts the process ahead of the first command, which otherwise pays
// for it with some milliseconds.
func (s *Supervisor) Start() error {
	_, err := s.connect(nil)
	return err
}

// Close kills everything that is still running, waits until it is dead, and
// ends the process. Runs under way report an unknown outcome.
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
	case <-time.After(killGrace): // it does not listen: it is stopped, or worse
		_ = l.proc.Kill()
		<-l.dead
	}
	return nil
}

// connect returns the living link, or a new one. A link that the caller found
// broken is given as broken, so that it is not returned once more.
func (s *Supervisor) connect(broken *link) (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if s.link != nil && s.link != broken && !s.link.isDead() {
		return s.link, nil
	}
	l, err := dial(s.Log)
	if err != nil {
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	s.link = l
	return l, nil
}

// start hands a command to the supervisor. A supervisor that cannot be reached
// has not got the command, so it is safe to give it to the next one.
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
	if errors.Is(err, errUnreached) {
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

	mu   sync.Mutex
	runs map[string]chan<- exit // by mark; nil once the process is gone
	over bool                   // we hung up on purpose
}

var errUnreached = errors.New("the supervisor is gone")

// dial starts the own binary as a supervisor.
func dial(log zerolog.Logger) (*link, error) {
	// Close-on-exec from birth: an end of this socket in any other process
	// would keep the supervisor from noticing the daemon's death.
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "daemon")
	defer ours.Close()
	defer theirs.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	proc, err := startSupervisor(theirs)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	l := &link{
		conn: c.(*net.UnixConn), proc: proc, log: log,
		dead: make(chan struct{}), runs: map[string]chan<- exit{},
	}
	go l.listen()
	return l, nil
}

func startSupervisor(socket *os.File) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	// Not by name: an upgrade may have put another binary there. Without our
	// environment: its secrets have no business in the parent of handlers. In
	// its own session: a ^C in the terminal is the daemon's to handle.
	return os.StartProcess("/proc/self/exe", []string{"permesso-supervisor", superviseArg}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, os.Stderr, socket},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

// start sends a command with its three descriptors.
func (l *link) start(sp spec, message []byte) (*process, error) {
	std, err := newStdio(sp.stdin)
	if err != nil {
		return nil, err
	}
	defer std.closeTheirs()
	exited := make(chan exit, 1)
	if err := l.enter(sp.mark, exited); err != nil {
		std.closeOurs()
		return nil, err
	}
	if _, _, err := l.conn.WriteMsgUnix(message, unix.UnixRights(std.theirs[:]...), nil); err != nil {
		std.closeOurs()
		l.leave(sp.mark)
		return nil, fmt.Errorf("%w: %w", errUnreached, err)
	}
	kill := func() { _, _ = l.conn.Write(pack(msgKill, sp.mark)) }
	return &process{stdout: std.stdout, stderr: std.stderr, exited: exited, kill: kill}, nil
}

func (l *link) enter(mark string, exited chan<- exit) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil {
		return errUnreached
	}
	l.runs[mark] = exited
	return nil
}

func (l *link) leave(mark string) chan<- exit {
	l.mu.Lock()
	defer l.mu.Unlock()
	exited := l.runs[mark]
	delete(l.runs, mark)
	return exited
}

func (l *link) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs == nil || l.over
}

// hangUp makes the supervisor kill everything and end.
func (l *link) hangUp() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	_ = l.conn.CloseWrite() // fails only when the other side is gone already
}

// listen reads what the supervisor says until it is gone.
func (l *link) listen() {
	defer close(l.dead)
	buf := make([]byte, 8<<10)
	for {
		n, err := l.conn.Read(buf)
		if err != nil || n == 0 {
			break
		}
		l.hear(unpack(buf[:n]))
	}
	l.bury()
}

func (l *link) hear(fields []string) {
	if len(fields) < 3 {
		return
	}
	var e exit
	switch {
	case fields[0] == msgFailed:
		e.notStarted = fields[2]
	case fields[0] == msgExit && len(fields) == 4:
		e.status = fields[2]
		e.left, _ = strconv.Atoi(fields[3])
	default:
		return
	}
	if exited := l.leave(fields[1]); exited != nil {
		exited <- e
	}
}

// bury ends the runs of a supervisor that is gone. One that left in good order
// has killed everything; after any other end we look for ourselves.
func (l *link) bury() {
	timer := time.AfterFunc(killGrace, func() { _ = l.proc.Kill() })
	state, err := l.proc.Wait()
	timer.Stop()
	_ = l.conn.Close()
	l.mu.Lock()
	runs, asked := l.runs, l.over
	l.runs = nil
	l.mu.Unlock()
	if err != nil || !state.Success() {
		killMarked(runs)
	}
	if !asked {
		l.log.Error().Int("runs", len(runs)).Str("status", fmt.Sprint(state)).Msg("supervisor died; runs are interrupted")
	}
	for _, exited := range runs {
		exited <- exit{lost: true}
	}
}

// stdio is what a command has as 0, 1 and 2, and our ends of it.
type stdio struct {
	theirs         [3]int
	stdout, stderr *os.File
}

// newStdio makes stdin a file in memory: it needs nobody to feed it, and a
// command that does not read it disturbs nobody. The pipes are blocking on the
// command's side, as programs expect.
func newStdio(input []byte) (*stdio, error) {
	s := &stdio{theirs: [3]int{-1, -1, -1}}
	var err error
	if s.theirs[0], err = memoryFile(input); err != nil {
		return nil, err
	}
	if s.stdout, s.theirs[1], err = pipe("stdout"); err == nil {
		s.stderr, s.theirs[2], err = pipe("stderr")
	}
	if err != nil {
		s.closeTheirs()
		s.closeOurs()
		return nil, err
	}
	return s, nil
}

func (s *stdio) closeTheirs() {
	for _, fd := range s.theirs {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (s *stdio) closeOurs() {
	for _, f := range []*os.File{s.stdout, s.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

func pipe(name string) (*os.File, int, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, os.NewSyscallError("pipe2", err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		_ = unix.Close(p[0])
		_ = unix.Close(p[1])
		return nil, -1, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(p[0]), name), p[1], nil
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
