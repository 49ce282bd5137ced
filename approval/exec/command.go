package exec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

const (
	// killGrace is how long a killed run may take to be gone. Only a process
	// stuck inside the kernel needs longer, and nobody can help that one.
	killGrace = 10 * time.Second
	// drainGrace is how long we go on reading after everything is dead. It
	// matters only when a descriptor was handed to some other program.
	drainGrace = 250 * time.Millisecond
)

// spec is a command, fully worked out.
type spec struct {
	path  string // absolute
	argv  []string
	env   []string // NAME=value
	mark  string   // also in env
	dir   string
	temp  bool // dir was made for this run
	stdin []byte
}

// exit tells how a run ended. By then it has left nothing behind.
type exit struct {
	notStarted string // why nothing ran, or ""
	lost       bool   // the supervisor died or was closed: outcome unknown
	status     string // "exit status 3", "signal: killed"; "" for success
	left       int    // processes of other users that we may not kill
}

// process is a run under way.
type process struct {
	stdout, stderr *os.File
	exited         <-chan exit // buffered, exactly one
	kill           func()
}

func (r *Runner) command(ctx context.Context, job approval.Job) approval.Effect {
	s, err := r.prepare(job)
	if err != nil {
		return refused(err)
	}
	s.path, err = lookPath(s.argv[0], s.env)
	if err != nil {
		return failed(false, "%v", err)
	}
	if s.dir, s.temp, err = r.workDir(job.Tool.Handler); err != nil {
		return failed(false, "%v", err)
	}
	if s.temp {
		defer r.removeAll(s.dir)
	}
	p, err := r.supervisor().start(s)
	if err != nil {
		return failed(false, "%v", err)
	}
	return r.attend(ctx, job, p)
}

// prepare works out everything that the arguments and the environment decide.
func (r *Runner) prepare(job approval.Job) (spec, error) {
	argv, err := expandArgv(job.Tool.Handler.Argv, job.Args)
	if err != nil {
		return spec{}, err
	}
	mark, err := newMark()
	if err != nil {
		return spec{}, err
	}
	env, err := environment(job, mark)
	return spec{argv: argv, env: env, mark: mark, stdin: job.Args}, err
}

// workDir returns the folder the command starts in, and whether it is ours to
// remove.
func (r *Runner) workDir(h approval.Handler) (string, bool, error) {
	if h.Dir == "" {
		dir, err := os.MkdirTemp(r.TempDir, "permesso-run-")
		if err != nil {
			return "", false, fmt.Errorf("make working folder: %w", err)
		}
		return dir, true, nil
	}
	info, err := os.Stat(h.Dir)
	if err == nil && !info.IsDir() {
		err = errors.New("not a folder")
	}
	if err != nil {
		return "", false, fmt.Errorf("working folder: %w", err)
	}
	return h.Dir, false, nil
}

// attend sees a run through: it collects the output and kills what takes too
// long or says too much.
func (r *Runner) attend(ctx context.Context, job approval.Job, p *process) approval.Effect {
	h := job.Tool.Handler
	stdout := collect(p.stdout, newHead(limitOf(h)))
	stderr := collect(p.stderr, &tail{})
	why, e := wait(ctx, h, p, stdout.sink.(*head).over)
	stdout.finish()
	stderr.finish()
	if e.left > 0 {
		r.Log.Warn().Str("ws", job.Workspace).Str("id", job.RequestID).Str("tool", job.Tool.Name).
			Int("left", e.left).Msg("processes of another user outlive the run")
	}
	return judge(why, e, stdout.sink.(*head), stderr.sink.(*tail))
}

// wait returns when the run is over, and why it had to be killed, if it had.
func wait(ctx context.Context, h approval.Handler, p *process, over <-chan struct{}) (string, exit) {
	limit := timeoutOf(h)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var why string
	select {
	case e := <-p.exited:
		return "", e
	case <-over: // judge has the words for it
	case <-timer.C:
		why = fmt.Sprintf("timed out after %s", limit)
	case <-ctx.Done():
		why = "cancelled"
	}
	p.kill()
	timer.Reset(killGrace)
	select {
	case e := <-p.exited:
		return why, e
	case <-timer.C:
		return why, exit{lost: true}
	}
}

// judge turns an ending into an effect. A command that ended well by itself
// while we were about to kill it has ended well.
func judge(why string, e exit, stdout *head, stderr *tail) approval.Effect {
	switch {
	case e.notStarted != "":
		return failed(false, "%s", e.notStarted)
	case e.lost:
		return approval.Effect{Error: "Execution interrupted: outcome unknown", Started: true}
	case stdout.exceeded():
		return failed(true, "output larger than %d bytes", stdout.limit)
	case e.status == "":
		return approval.Effect{Result: result(stdout.kept), Started: true}
	case why != "":
		return failed(true, "%s", why)
	}
	if said := stderr.String(); said != "" {
		return failed(true, "%s: %s", e.status, said)
	}
	return failed(true, "%s", e.status)
}

func timeoutOf(h approval.Handler) time.Duration {
	if h.Timeout == 0 {
		return DefaultTimeout
	}
	return h.Timeout
}

func limitOf(h approval.Handler) int {
	if h.MaxOutput == 0 {
		return DefaultMaxOutput
	}
	return h.MaxOutput
}

// removeAll removes a working folder, also one whose subfolders the command
// has locked against us. Nothing of the command is alive to race with.
func (r *Runner) removeAll(dir string) {
	err := os.RemoveAll(dir)
	if err == nil {
		return
	}
	unlock := func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700) //nolint:gosec // a folder about to be removed
		}
		return nil
	}
	if werr := filepath.WalkDir(dir, unlock); werr == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		// The names in there may be made of the arguments.
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			err = pe.Err
		}
		r.Log.Warn().Str("path", dir).Err(err).Msg("remove working folder")
	}
}
