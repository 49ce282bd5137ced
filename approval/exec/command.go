package exec

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

const (
	// killGrace is how long a killed run may take to end. Only a process stuck
	// inside the kernel takes longer.
	killGrace = 10 * time.Second
	// drainGrace is how long output is read after all processes are dead. It
	// matters only if a descriptor was passed to another program.
	drainGrace = 250 * time.Millisecond
)

// spec is a fully expanded command.
type spec struct {
	path  string // absolute
	argv  []string
	env   []string // NAME=value
	mark  string   // also in env
	dir   string
	temp  bool // dir was made for this run
	stdin []byte
	piped bool // of a server: stdin is a pipe, and not these bytes

	memory int64 // limit in bytes, 0: none
	tasks  int   // limit of processes and threads, 0: none
}

// Limits that a run can be over, see exit.
const (
	overMemory = "memory"
	overTasks  = "tasks"
)

// exit is the end of a run. When it is sent, no process of the run is left, except
// those counted in left.
type exit struct {
	notStarted string // why nothing ran, or ""
	lost       bool   // the supervisor died or was closed: outcome unknown
	status     string // "exit status 3", "signal: killed"; "" for success
	over       string // the limit that it was over, or ""
	left       int    // processes of other users, which cannot be killed
}

// process is a running command.
type process struct {
	stdin          *os.File // of a piped spec, else nil
	stdout, stderr *os.File
	exited         <-chan exit // buffered, receives exactly one value
	kill           func()
}

func (r *Runner) command(ctx context.Context, job approval.Job) approval.Effect {
	s, err := r.prepare(job)
	if err != nil {
		return refused(err)
	}
	s.path, err = lookPath(s.argv[0], s.env)
	if err != nil {
		return unstarted("%v", err)
	}
	if s.dir, s.temp, err = r.workDir(job.Tool.Handler); err != nil {
		return unstarted("%v", err)
	}
	if s.temp {
		defer r.removeAll(s.dir)
	}
	p, err := r.Supervisor.start(s)
	if err != nil {
		return unstarted("%v", err)
	}
	return r.collectEffect(ctx, job, p)
}

// prepare fills in the arguments and the environment.
func (r *Runner) prepare(job approval.Job) (spec, error) {
	runs, err := fill(job)
	if err != nil {
		return spec{}, err
	}
	argv := make([]string, len(runs.Argv))
	for i, parts := range runs.Argv {
		argv[i] = facts.Join(parts)
	}
	mark := newMark()
	env, err := environment(job, mark)
	h := job.Tool.Handler
	return spec{argv: argv, env: env, mark: mark, stdin: job.Args, memory: memoryOf(h), tasks: tasksOf(h)}, err
}

// fill is what the approver was shown: the gate uses the same function.
func fill(job approval.Job) (approval.Runs, error) {
	runs, why := facts.Fill(job.Tool, job.Args)
	if !why.IsZero() {
		return runs, errors.New(why.String())
	}
	return runs, nil
}

// workDir returns the folder the command starts in, and whether to remove it
// afterwards.
func (r *Runner) workDir(h approval.Handler) (string, bool, error) {
	if h.Dir == "" {
		dir, err := os.MkdirTemp(r.TempDir, "permesso-run-")
		if err != nil {
			return "", false, fmt.Errorf("make working folder: %w", err)
		}
		return dir, true, nil
	}
	return h.Dir, false, checkFolder(h.Dir)
}

// collectEffect collects a run's output, and kills the run on a timeout or too much
// output. The supervisor kills it on too much memory and too many processes.
func (r *Runner) collectEffect(ctx context.Context, job approval.Job, p *process) approval.Effect {
	h := job.Tool.Handler
	stdout := collect(p.stdout, newHead(limitOf(h)))
	stderr := collect(p.stderr, newTail())
	why, e := wait(ctx, h, p, stdout.sink.(*head).over, stderr.sink.(*tail).over)
	stdout.finish()
	stderr.finish()
	if e.left > 0 {
		r.Log.Warn().Str("ws", job.Workspace).Str("id", job.RequestID).Str("tool", job.Tool.Name).
			Int("left", e.left).Msg("run ended with processes of another user still running")
	}
	return effectOf(h, why, e, stdout.sink.(*head), stderr.sink.(*tail))
}

// wait returns when the run has ended. why is set if the run was killed.
func wait(ctx context.Context, h approval.Handler, p *process, stdoutOver, stderrOver <-chan struct{}) (string, exit) {
	limit := timeoutOf(h)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var why string
	select {
	case e := <-p.exited:
		return "", e
	case <-stdoutOver: // effectOf writes the message
	case <-stderrOver:
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

// effectOf turns the end of a run into an effect. A command that succeeded before
// the kill reached it has succeeded.
func effectOf(h approval.Handler, why string, e exit, stdout *head, stderr *tail) approval.Effect {
	switch {
	case e.notStarted != "":
		return unstarted("%s", e.notStarted)
	case e.lost:
		return approval.Effect{Error: "Execution interrupted: outcome unknown"}
	case stdout.exceeded():
		return failed("output larger than %d bytes (max_output)", stdout.limit)
	case e.status == "":
		return approval.Effect{Result: result(stdout.kept)}
	case e.over == overMemory:
		return failed("more than %d bytes of memory (max_memory)", memoryOf(h))
	case e.over == overTasks:
		return failed("more than %d processes and threads (max_processes)", tasksOf(h))
	case stderr.exceeded():
		return failed("stderr larger than %d bytes", maxStderr)
	case why != "":
		return failed("%s", why)
	}
	if message := stderr.String(); message != "" {
		return failed("%s: %s", e.status, message)
	}
	return failed("%s", e.status)
}

func timeoutOf(h approval.Handler) time.Duration { return cmp.Or(h.Timeout, defaultTimeout) }

func memoryOf(h approval.Handler) int64 { return cmp.Or(h.MaxMemory, defaultMaxMemory) }

func tasksOf(h approval.Handler) int { return cmp.Or(h.MaxProcesses, defaultMaxProcesses) }

func limitOf(h approval.Handler) int { return cmp.Or(h.MaxOutput, defaultMaxOutput) }

// removeAll removes a working folder, even if the command made subfolders
// inaccessible. No process of the command is running.
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
		// Names inside the folder may contain arguments: log only the cause.
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			err = pe.Err
		}
		r.Log.Warn().Str("path", dir).Err(err).Msg("remove working folder")
	}
}

// Program is a program that the host itself runs: no request asks for it.
type Program struct {
	Argv   []string // Argv[0] is an absolute path
	Env    []string // NAME=value
	Dir    string   // absolute
	Stdout io.Writer
	Stderr io.Writer // written at the same time as Stdout
}

// Run runs a program until it ends or ctx does. When it returns, no process of the
// program is left. If this process is killed, the supervisor kills them.
func (s *Supervisor) Run(ctx context.Context, g Program) error {
	mark := newMark()
	p, err := s.start(spec{path: g.Argv[0], argv: g.Argv, env: append([]string{envMark + "=" + mark}, g.Env...), mark: mark, dir: g.Dir})
	if err != nil {
		return err
	}
	stdout, stderr := collect(p.stdout, g.Stdout), collect(p.stderr, g.Stderr)
	_, e := wait(ctx, approval.Handler{Timeout: math.MaxInt64}, p, nil, nil)
	stdout.finish()
	stderr.finish()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case e.notStarted != "":
		return errors.New(e.notStarted)
	case e.lost:
		return errors.New("interrupted")
	case e.status != "":
		return errors.New(e.status)
	}
	return nil
}

// The variables that the daemon sets for every command.
const (
	envRequestID = "PERMESSO_REQUEST_ID"
	envWorkspace = "PERMESSO_WORKSPACE"
	envKey       = "PERMESSO_IDEMPOTENCY_KEY"
	envMark      = "PERMESSO_RUN"
)

const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// newMark returns a random name for one run.
func newMark() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return hex.EncodeToString(b[:])
}

// environment builds a command's complete environment: the daemon's variables, then
// the listed host variables that are set.
func environment(job approval.Job, mark string) ([]string, error) {
	env := []string{envRequestID + "=" + job.RequestID, envWorkspace + "=" + job.Workspace, envMark + "=" + mark}
	if job.Key != "" {
		env = append(env, envKey+"="+job.Key)
	}
	return withHostVariables(env, job.Tool.Handler.Env)
}

// withHostVariables adds the listed host variables that are set, and a PATH.
func withHostVariables(env, names []string) ([]string, error) {
	havePath := false
	for _, name := range names {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
			havePath = havePath || name == "PATH"
		}
	}
	if !havePath {
		env = append(env, "PATH="+defaultPath)
	}
	for _, v := range env {
		if strings.ContainsRune(v, 0) {
			return nil, errors.New("environment variable contains a NUL byte")
		}
	}
	return env, nil
}

var envPattern = pattern(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkEnvName refuses invalid names and the names that the daemon sets.
func checkEnvName(name string) error {
	switch name {
	case "":
		return errors.New("env: a name is empty")
	case envRequestID, envWorkspace, envKey, envMark:
		return fmt.Errorf("env %q is set by the gate", name)
	}
	if !envPattern().MatchString(name) {
		return fmt.Errorf("env %q: list names only, without values", name)
	}
	return nil
}

// lookPath finds the program in the command's own PATH, never in the daemon's. It
// skips relative entries: the working folder must not determine what runs.
func lookPath(name string, env []string) (string, error) {
	if filepath.IsAbs(name) {
		return name, executable(name)
	}
	for _, v := range env {
		list, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			file := filepath.Join(dir, name)
			if filepath.IsAbs(dir) && executable(file) == nil {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("%s: no such program in PATH", name)
}

func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no such program", file)
	case err != nil:
		return fmt.Errorf("find program: %w", err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s: not executable", file)
	}
	return nil
}
