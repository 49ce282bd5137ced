package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec/evaluate"
	"github.com/permesso-dev/permesso/approval/program"
)

const maxLastWords = 4 << 10 // bytes that are kept of what a process that crashes writes

// evaluateLatest is for a busy machine: the kernel ends the process after evaluate.Time of a processor. The time of the calls
// does not count.
const evaluateLatest = 5 * evaluate.Time

// Planner evaluates programs, each in a process of its own that can do nothing but compute and ask, with limits of time
// and memory. Its zero value is ready to use. It is safe for concurrent use.
type Planner struct {
	used func(*os.ProcessState) // for tests: what a process has used
}

// Evaluate is program.Evaluate within the limits: a program that exceeds them gives a *approval.ProgramError.
func (p *Planner) Evaluate(ctx context.Context, job approval.ProgramJob, call func(approval.Call) (approval.Answer, error)) (approval.Evaluation, error) {
	e, err := startEvaluation()
	if err != nil {
		return approval.Evaluation{}, fmt.Errorf("start a process that evaluates: %w", err)
	}
	defer context.AfterFunc(ctx, e.kill)()
	limit := startLimit(evaluateLatest, func() {
		e.late.Store(true)
		e.kill()
	})
	var asked error
	ev, err := program.Client(e.out, e.in, job, func(c approval.Call) (approval.Answer, error) {
		limit.stop()
		defer limit.resume()
		answer, err := call(c)
		asked = err
		return answer, err
	})
	limit.stop()
	e.end()
	if p.used != nil {
		p.used(e.cmd.ProcessState)
	}
	_, fault := errors.AsType[*approval.ProgramError](err)
	switch {
	case err == nil, asked != nil, fault:
		return ev, err
	case ctx.Err() != nil:
		return ev, context.Cause(ctx)
	}
	return ev, e.exceeded(err)
}

// evaluation is a process that evaluates one program.
type evaluation struct {
	cmd   *exec.Cmd
	in    *os.File
	out   *os.File
	words lastWords
	late  atomic.Bool
	dead  chan struct{}
}

// startEvaluation starts this binary. It ends with its input: the kernel's signal at the death of a parent comes already
// when the parent's thread ends. It has no environment, which may hold secrets.
func startEvaluation() (*evaluation, error) {
	self, err := evaluate.Binary()
	if err != nil {
		return nil, err
	}
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer childIn.Close()
	out, childOut, err := os.Pipe()
	if err != nil {
		_ = in.Close()
		return nil, err
	}
	defer childOut.Close()
	e := &evaluation{in: in, out: out, dead: make(chan struct{})}
	e.cmd = &exec.Cmd{
		Path: self, Args: []string{"permesso-evaluate", evaluate.Arg}, Env: []string{}, Dir: "/",
		Stdin: childIn, Stdout: childOut, Stderr: &e.words, WaitDelay: drainGrace,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := e.cmd.Start(); err != nil {
		_ = in.Close()
		_ = out.Close()
		return nil, err
	}
	go func() {
		_ = e.cmd.Wait()
		close(e.dead)
	}()
	return e, nil
}

func (e *evaluation) kill() { _ = e.cmd.Process.Kill() }

// end waits for the process, which has nothing to do any more.
func (e *evaluation) end() {
	e.kill()
	<-e.dead
	_ = e.in.Close()
	_ = e.out.Close()
}

// exceeded is why a process has ended without an answer.
func (e *evaluation) exceeded(err error) error {
	state := e.cmd.ProcessState
	words := e.words.String()
	ended, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case e.late.Load(), ended.Signal() == syscall.SIGXCPU: // its time of a processor can differ from the limit's
		return &approval.ProgramError{Text: fmt.Sprintf("the program takes longer than %s", evaluate.Time)}
	case strings.Contains(words, "stack exceeds"):
		return &approval.ProgramError{Text: "the program nests values or calls too deeply"}
	case state.ExitCode() == 2 && !strings.HasPrefix(words, "panic:"): // the runtime crashes in several ways without memory
		return &approval.ProgramError{Text: fmt.Sprintf("the program needs more than %d MiB of memory", evaluate.Memory>>20)}
	}
	return fmt.Errorf("evaluate a program: %w: %s: %s", err, state, program.Shown(words))
}

// lastWords keeps the first bytes of what a process writes to standard error.
type lastWords struct {
	mu  sync.Mutex
	buf []byte
}

func (l *lastWords) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, b[:min(len(b), maxLastWords-len(l.buf))]...)
	return len(b), nil
}

func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}

// timeLimit calls a function once, after a time that can be stopped.
type timeLimit struct {
	mu    sync.Mutex
	left  time.Duration
	since time.Time
	timer *time.Timer
}

func startLimit(left time.Duration, over func()) *timeLimit {
	return &timeLimit{left: left, since: time.Now(), timer: time.AfterFunc(left, over)}
}

func (l *timeLimit) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer.Stop() {
		l.left -= time.Since(l.since)
	}
}

func (l *timeLimit) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Now()
	l.timer.Reset(max(l.left, 0))
}
