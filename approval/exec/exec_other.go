//go:build unix && !linux

package exec

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/rs/zerolog"
)

// Supervisor guarantees less than on Linux: commands are the daemon's children. A
// run's process group is killed at its end, but not processes that left the group,
// and nothing is killed when the daemon is. The umask is the daemon's.
type Supervisor struct {
	Log zerolog.Logger

	mu     sync.Mutex
	runs   sync.WaitGroup
	kills  map[string]func()
	closed bool
}

var errClosed = errors.New("the supervisor is closed")

// SuperviseIfAsked does nothing: there is no supervisor process.
func SuperviseIfAsked() {}

// Start does nothing: there is no supervisor process.
func (s *Supervisor) Start() error { return nil }

// Limits says how the limits of runs are kept: only those of the time and the output are.
func (s *Supervisor) Limits() (how, why string) { return "", "" }

// Close kills the process groups of all runs and waits until they have ended.
func (s *Supervisor) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, kill := range s.kills {
		kill()
	}
	s.mu.Unlock()
	s.runs.Wait()
	return nil
}

func (s *Supervisor) start(sp spec) (*process, error) {
	var stdin *os.File
	input := io.Reader(bytes.NewReader(sp.stdin))
	if sp.piped {
		in, inW, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer in.Close()
		stdin, input = inW, in
	}
	stdout, outW, err := os.Pipe()
	if err != nil {
		closeAll(stdin)
		return nil, err
	}
	defer outW.Close()
	stderr, errW, err := os.Pipe()
	if err != nil {
		closeAll(stdin, stdout)
		return nil, err
	}
	defer errW.Close()
	cmd := &exec.Cmd{
		Path: sp.path, Args: sp.argv, Env: sp.env, Dir: sp.dir,
		Stdin: input, Stdout: outW, Stderr: errW, WaitDelay: drainGrace,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	exited := make(chan exit, 1)
	kill, err := s.launch(cmd, sp.mark, exited)
	if err != nil {
		closeAll(stdin, stdout, stderr)
		return nil, err
	}
	return &process{stdin: stdin, stdout: stdout, stderr: stderr, exited: exited, kill: kill}, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// launch starts cmd and waits for it in the background.
func (s *Supervisor) launch(cmd *exec.Cmd, mark string, exited chan<- exit) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if err := cmd.Start(); err != nil {
		exited <- exit{notStarted: err.Error()}
		return func() {}, nil
	}
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if s.kills == nil {
		s.kills = map[string]func(){}
	}
	s.kills[mark] = kill
	s.runs.Go(func() {
		_ = cmd.Wait()
		kill() // other processes of the group
		s.mu.Lock()
		delete(s.kills, mark)
		s.mu.Unlock()
		e := exit{}
		if state := cmd.ProcessState; state != nil && !state.Success() {
			e.status = state.String()
		}
		exited <- e
	})
	return kill, nil
}
