// Package check proves that the hook of an agent works. It starts the installed agent, in the project and with the settings
// in force there, against a model on loopback that asks for one harmless call, and sees whether the hook was called and
// whether the call, which the hook denies, stayed undone. No account is used and no gate is asked.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/ipc/hook"
	"github.com/permesso-dev/permesso/ipc/hook/model"
	"github.com/permesso-dev/permesso/ipc/procgroup"
)

// Place is where an agent looks for its settings.
type Place struct {
	Home    string // the user's folder
	Project string
	Env     func(string) string
}

// Check is one check of an agent's hook.
type Check struct {
	Place

	Agent    hook.Agent
	Program  string        // the agent's; "": the one in PATH
	Environ  []string      // of the agent
	Timeout  time.Duration // 0: 60 s
	Progress func(string)  // told what is being done; nil: nothing is told
}

const (
	timeout        = time.Minute
	versionTimeout = 15 * time.Second
	maxOutput      = 64 << 10 // bytes of the agent's output, the last ones
	outputDelay    = 2 * time.Second
)

// Run checks, and reports what it has seen. An error means that it could not be tried.
func (c Check) Run(ctx context.Context) (Report, error) {
	r := Report{Agent: c.Agent.Name, Standing: c.Standing(c.Agent)}
	s, ok := starts[c.Agent.Name]
	if !ok {
		return r, fmt.Errorf("%s cannot be checked: it is written from its documents, not tried", c.Agent.Name)
	}
	if r.Program, r.why = Find(c.Agent, c.Program); r.why != nil {
		return r, nil
	}
	c.tell("asking %s for its version", r.Program)
	r.Version = Version(ctx, r.Program, c.Environ)
	if err := c.try(ctx, s, &r); err != nil {
		return r, err
	}
	return r, ctx.Err()
}

func (c Check) tell(format string, a ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, a...))
	}
}

// Find is the program of an agent: the named one, or the one in PATH.
func Find(a hook.Agent, program string) (string, error) {
	return exec.LookPath(cmp.Or(program, starts[a.Name].program))
}

var versionForm = regexp.MustCompile(`\d+\.\d+\.\d+`)

// Version is what a program says of itself, "" if that is no version.
func Version(ctx context.Context, program string, environ []string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	dir, err := os.MkdirTemp("", hook.CheckFolder)
	if err != nil {
		return ""
	}
	defer os.RemoveAll(dir)
	var out tail
	cmd.Env = append(slices.Clone(environ), geminiHomeVariable+"="+dir) // Gemini CLI writes there, also for this
	cmd.Stdout, cmd.WaitDelay = &out, outputDelay
	procgroup.Own(cmd)
	cmd.Cancel = func() error {
		procgroup.Kill(cmd)
		return nil
	}
	err = cmd.Run()
	procgroup.Kill(cmd)
	if err != nil {
		return ""
	}
	return versionForm.FindString(out.String())
}

// try starts the agent and reports what the hook and the call did. It leaves neither files nor processes.
func (c Check) try(ctx context.Context, s start, r *Report) (err error) {
	dir, err := os.MkdirTemp("", hook.CheckFolder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	effect := filepath.Join(dir, "effect")
	call := s.call(effect)
	m := &model.Server{Turns: [][]model.Call{{call}}}
	server := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	url := "http://" + listener.Addr().String()
	env, err := s.environ(c, url, dir)
	if err != nil {
		return err
	}
	// A model of another provider, should the agent ask one, is asked for the same harmless thing.
	prompt := "Run this one command, and nothing else: " + touch(effect)
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, r.Program, s.args(url, prompt, r.permissionOnly())...)
	cmd.Dir, cmd.Env = c.Project, env
	r.outcome = c.run(ctx, cmd, dir)
	r.Asked = m.Asked() > 0
	r.call, r.Called = hook.Recorded(dir)
	_, missing := os.Lstat(effect)
	r.Undone = errors.Is(missing, os.ErrNotExist)
	return nil
}

// outcome is how the agent has ended.
type outcome struct {
	late bool
	last string // line of its output
	err  error
}

// run runs the agent to its end, or to the end of its time, and ends every process that it has started.
func (c Check) run(ctx context.Context, cmd *exec.Cmd, dir string) (o outcome) {
	var out tail
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, outputDelay
	procgroup.Own(cmd)
	killAll := func() {
		procgroup.Kill(cmd)
		killMarked(hook.Checking + "=" + dir)
	}
	cmd.Cancel = func() error {
		killAll()
		return nil
	}
	if o.err = cmd.Start(); o.err != nil {
		return o
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	began := time.Now()
	for waiting := true; waiting; {
		c.tell("%s runs in %s … %d s", filepath.Base(cmd.Path), cmd.Dir, int(time.Since(began).Seconds()))
		select {
		case o.err = <-ended:
			waiting = false
		case <-tick.C:
		}
	}
	killAll()
	o.late = errors.Is(ctx.Err(), context.DeadlineExceeded)
	o.last = out.lastLine()
	return o
}

// tail keeps the end of what is written.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if extra := len(t.b) - maxOutput; extra > 0 {
		t.b = slices.Delete(t.b, 0, extra)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.b) }

// styles are the colors of a terminal.
var styles = regexp.MustCompile("\x1b\\[[0-9;]*m")

func (t *tail) lastLine() string {
	text := styles.ReplaceAllString(strings.ToValidUTF8(string(t.b), "?"), "")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if runes := []rune(last); len(runes) > 400 {
		last = string(runes[:400]) + " …"
	}
	return last
}
