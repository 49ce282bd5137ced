package mailserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"
)

// process is a server in a separate PID namespace: when the process that we started dies, the
// kernel kills all its children.
type process struct {
	name, dir string
	listens   []string
	process   *os.Process
	first     int           // pidfd of the namespace's first process, which ends last
	ended     chan struct{} // closed after Wait
}

// start runs a command and waits until a server listens at every address.
func (s *process) start(listens, sandbox []string, name string, args ...string) error {
	s.listens = listens
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	told, tells, err := os.Pipe()
	if err != nil {
		return err
	}
	defer told.Close()
	command := append([]string{"--info-fd", "3", "--unshare-pid", "--die-with-parent", "--dev-bind", "/", "/", "--proc", "/proc", "--cap-add", "ALL"}, sandbox...)
	command = append(append(command, "--", name), args...)
	cmd := exec.Command("bwrap", command...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{tells}
	// The kernel sends the signal when the thread that started the child ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it was killed, or its log has the reason
		}
	}()
	err = <-started
	tells.Close()
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.process, s.first = cmd.Process, -1
	var info struct {
		PID int `json:"child-pid"`
	}
	if err := json.UnmarshalRead(told, &info); err != nil {
		return fmt.Errorf("start %s: %w: %s", s.name, err, s.log())
	}
	if s.first, err = unix.PidfdOpen(info.PID, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	return s.await()
}

// await polls, because the servers do not report when they listen.
func (s *process) await() error {
	end := time.Now().Add(startTimeout)
	for _, at := range s.listens {
		for !reachable(at) {
			select {
			case <-s.ended:
				return fmt.Errorf("%s ended at once: %s", s.name, s.log())
			case <-time.After(5 * time.Millisecond):
			}
			if time.Now().After(end) {
				return fmt.Errorf("%s does not listen: %s", s.name, s.log())
			}
		}
	}
	return nil
}

// stop kills the server and waits until its children are gone and its ports are free. The
// namespace ends shortly after the process that we started. Until then its processes
// could answer on a port that the next server needs.
func (s *process) stop() {
	if s.process == nil {
		return
	}
	_ = s.process.Kill() // it may have ended already
	<-s.ended
	s.process = nil
	if s.first >= 0 {
		for end := time.Now().Add(startTimeout); time.Now().Before(end); {
			if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(s.first), Events: unix.POLLIN}}, 1000); n > 0 {
				break
			}
		}
		_ = unix.Close(s.first)
	}
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if !reachable(s.listens...) {
			return
		}
	}
}

// reachable says whether a server listens at one of the addresses.
func reachable(addresses ...string) bool {
	for _, at := range addresses {
		conn, err := net.DialTimeout("tcp", at, time.Second)
		if err == nil {
			conn.Close()
			return true
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return true // busy, not stopped
		}
	}
	return false
}

func (s *process) logFile() string { return filepath.Join(s.dir, s.name+".log") }

// log is the end of what the server wrote.
func (s *process) log() string {
	text, _ := os.ReadFile(s.logFile()) // no log file: empty text
	return string(text[max(0, len(text)-4000):])
}
