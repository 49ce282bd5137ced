package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/ipc/hook"
	"github.com/permesso-dev/permesso/ipc/hook/model"
)

// setting is a place with a daemon of ours and an agent with our hook.
type setting struct {
	place
	lab     *lab
	program string
	agent   agent
	inside  *namespace // nil: the machine's
	model   *model.Server
	daemon  *exec.Cmd
	id      string // of the pending request
	allowed map[string]int
	digest  string // of it
	clock   bool   // the program's clock can be shifted
	cut     bool   // the connection was cut by a signal
}

// prepare makes all but the daemon and the agent's process.
func (w *setting) prepare(t trial) error {
	if err := w.mounts(t); err != nil {
		return err
	}
	if err := w.agent.prepare(w.place, row{ours: true, managed: w.agent.managed}); err != nil {
		return err
	}
	if err := w.configure(""); err != nil {
		return err
	}
	for i := range max(t.hooks, 1) {
		args := append([]string{"hook", "install", w.agent.name, "--yes"}, t.install...)
		switch {
		case i > 0: // another one for the same call, in the project
			args = append(args, "--project")
		case w.agent.managed:
			args = append(args, "--managed")
		}
		if err := w.operator(args...); err != nil {
			return err
		}
	}
	if t.event == "" {
		return nil
	}
	return w.wrap(t.event)
}

// configure writes a configuration with limits for 50 requests at once; by default 32 can wait, and 60 can be asked a minute.
// More lines are for the workspace.
func (w *setting) configure(more string) error {
	const text = "listen = \"\"\nui = false\n[workspaces.default]\nlimits = { pending = 64, ask_per_minute = 600 }\n"
	return w.write(filepath.Join(w.home, ".config/permesso/permesso.toml"), text+more, 0o600)
}

// mounts makes the namespace, if the trial needs one.
func (w *setting) mounts(t trial) (err error) {
	var script []string
	if w.agent.managed {
		script = append(script, etc(w.dir))
	}
	if t.full != "" {
		folder := filepath.Join(w.home, t.full)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		script = append(script, "mount -t tmpfs -o size=96m,mode=700 lab "+folder)
	}
	if script != nil {
		w.inside, err = newNamespace(strings.Join(script, "\n"))
	}
	return err
}

// settings is the file with the agent's hook.
func (w *setting) settings() (string, error) {
	a, _ := hook.AgentNamed(w.agent.name)
	scope, root := hook.User, ""
	if w.agent.managed {
		scope, root = hook.Managed, w.dir
	}
	file, err := a.File(scope, w.home, w.project, func(string) string { return "" })
	return root + file, err
}

// wrap puts a script between the agent and our hook, which gets what the shell command makes of the event.
func (w *setting) wrap(event string) error {
	file, err := w.settings()
	if err != nil {
		return err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	dir := filepath.Join(w.dir, "bin")
	text := strings.ReplaceAll(string(b), filepath.Dir(w.program), dir)
	if text == string(b) {
		return fmt.Errorf("%s does not name the hook", file)
	}
	if err := w.write(file, text, 0o644); err != nil {
		return err
	}
	script := "#!/bin/sh\nevent=" + dir + "/event.$$\ncat >$event\n{ " + event + "; } | " + w.program + " \"$@\"\ncode=$?\necho $code >>" + dir + "/codes\nexit $code\n"
	return w.write(filepath.Join(dir, filepath.Base(w.program)), script, 0o755)
}

// codes are the exit codes of the wrapped hook.
func (w *setting) codes() (string, error) {
	b, err := os.ReadFile(filepath.Join(w.dir, "bin/codes"))
	return strings.Join(strings.Fields(string(b)), " "), err
}

func (w *setting) env() []string {
	env := append(w.place.env(), "LAB_DIR="+w.dir, "PERMESSO_JOURNAL_SIZE=2097152")
	if w.clock {
		env = append(env, "LAB_CLOCK="+filepath.Join(w.dir, "clock"))
	}
	return env
}

// command is one in the namespace, in the project.
func (w *setting) command(ctx context.Context, argv ...string) *exec.Cmd {
	argv = w.inside.enter(w.project, argv)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = w.project, w.env()
	return cmd
}

func (w *setting) operator(args ...string) error {
	if out, err := w.command(context.Background(), append([]string{w.program}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("permesso %s: %w: %s", args[0], err, out)
	}
	return nil
}

func (w *setting) serve() error {
	w.daemon = w.command(context.Background(), w.program, "serve")
	if err := w.daemon.Start(); err != nil {
		return err
	}
	for range 1000 {
		if w.operator("pending") == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the daemon does not serve")
}

func (w *setting) kill() error {
	err := w.daemon.Process.Kill()
	_ = w.daemon.Wait()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// output may be read while a process writes it.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// running is an agent's process, or one that starts it.
type running struct {
	cmd   *exec.Cmd
	out   output
	ended chan struct{}
	stop  context.CancelFunc
}

// end ends it, with all its processes.
func (r *running) end() {
	r.stop()
	<-r.ended
}

// agentLine is the agent's command line.
func (w *setting) agentLine() []string {
	return append([]string{filepath.Join(w.lab.folder, "node_modules/.bin", w.agent.program)}, w.agent.args(row{managed: w.agent.managed})...)
}

func (w *setting) start(argv ...string) (*running, error) {
	return w.startWith(w.agent.env(w.url), argv...)
}

func (w *setting) startWith(env []string, argv ...string) (*running, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute+w.lab.wait)
	r := &running{ended: make(chan struct{}), stop: cancel, cmd: w.command(ctx, argv...)}
	r.cmd.Env = append(r.cmd.Env, env...)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	killGroup(r.cmd)
	if err := r.cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	go func() {
		_ = r.cmd.Wait()
		close(r.ended)
	}()
	return r, nil
}

// during starts the agent, does something, and waits for the agent's end.
func (w *setting) during(do func(*running) error) error {
	r, err := w.start(w.agentLine()...)
	if err != nil {
		return err
	}
	defer r.end()
	if err := do(r); err != nil {
		return fmt.Errorf("%w: %s", err, lastLine([]byte(r.out.String())))
	}
	<-r.ended
	if w.model.Asked() == 0 {
		return fmt.Errorf("the model was not asked: %s", lastLine([]byte(r.out.String())))
	}
	return nil
}

// until waits for something, as long as the process runs.
func (r *running) until(what string, is func() bool) error {
	for !is() {
		select {
		case <-r.ended:
			if is() {
				return nil
			}
			return errors.New("the agent ended without " + what)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// waiting is a pending request.
type waiting struct {
	ID      string `json:"request_id"`
	Tool    string `json:"tool_name"`
	Digest  string `json:"pending_sha256"`
	request string
}

// pending are the requests that wait. In their files they wait before the daemon shows them.
func (w *setting) pending() (all []waiting, err error) {
	cmd := w.command(context.Background(), w.program, "pending", "--json")
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, err
	}
	kept := all[:0]
	for _, x := range all {
		if x.request = w.record(x.ID); x.request != "" { // else it has just ended
			kept = append(kept, x)
		}
	}
	return kept, nil
}

func (w *setting) record(id string) string {
	b, err := w.read(filepath.Join(w.home, ".local/state/permesso/ipc/default/pending_approvals", id+".json"))
	if err != nil {
		return ""
	}
	return string(b)
}

// read reads a file of the namespace.
func (w *setting) read(name string) ([]byte, error) {
	if w.inside == nil {
		return os.ReadFile(name)
	}
	return w.command(context.Background(), "cat", name).Output()
}

// awaitPending waits for the request of the call.
func (w *setting) awaitPending(r *running) error {
	return r.until("a request", func() bool {
		all, err := w.pending()
		if err != nil || len(all) != 1 {
			return false
		}
		w.id, w.digest = all[0].ID, all[0].Digest
		return true
	})
}

// approve approves the only pending request.
func (w *setting) approve() error {
	all, err := w.pending()
	if err != nil {
		return err
	}
	if len(all) != 1 {
		return fmt.Errorf("%d requests are pending", len(all))
	}
	return w.decide(all[0], true)
}

// denial is the approver's reason.
const denial = "not on a Sunday"

// decide decides one request, and counts what was allowed.
func (w *setting) decide(x waiting, allow bool) error {
	if !allow {
		return w.operator("deny", x.ID, denial)
	}
	if err := w.operator("approve", x.ID, "--seen", x.Digest); err != nil {
		return err
	}
	w.allowed[effectOf(x.request)]++
	return nil
}

// decideAll decides each request of the process until it ends.
func (w *setting) decideAll(r *running, allow func(effect string) bool) error {
	done := map[string]bool{}
	for {
		all, err := w.pending()
		if err != nil {
			return err
		}
		for _, x := range all {
			if !done[x.ID] {
				done[x.ID] = true
				if err := w.decide(x, allow(effectOf(x.request))); err != nil {
					return err
				}
			}
		}
		select {
		case <-r.ended:
			return nil
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// makes is a command that leaves a file each time it runs.
func (w *setting) makes(effect string) string {
	return "mktemp " + w.dir + "/effects/" + effect + ".XXXXXX"
}

// effectOf is the effect that makes has named in a text, "" if none.
func effectOf(text string) string {
	_, rest, _ := strings.Cut(text, "/effects/")
	effect, _, ok := strings.Cut(rest, ".XXXXXX")
	if !ok {
		return ""
	}
	return effect
}

// effects are those that are there, and how often each was made.
func (w *setting) effects() (map[string]int, error) {
	files, err := filepath.Glob(filepath.Join(w.dir, "effects/*"))
	made := map[string]int{}
	for _, file := range files {
		effect, _, _ := strings.Cut(filepath.Base(file), ".")
		made[effect]++
	}
	return made, err
}

// signal sends a signal to the hook's process.
func (w *setting) signal(sig syscall.Signal) error { return w.signalTo("hook", sig) }

// signalTo sends a signal to the process of a command of ours.
func (w *setting) signalTo(command string, sig syscall.Signal) error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(line, []byte(w.program+"\x00"+command+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return err
		}
		environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err != nil || !bytes.Contains(environ, []byte(w.dir)) {
			continue
		}
		w.cut = sig != 0
		return syscall.Kill(pid, sig)
	}
	return os.ErrProcessDone
}

// fill leaves no byte on the small file system of the trial.
func (w *setting) fill(folder string) error {
	_ = w.command(context.Background(), "sh", "-c", "cat /dev/zero >"+filepath.Join(w.home, folder, "fill")+" 2>/dev/null").Run() // it ends when nothing is left
	if err := w.command(context.Background(), "sh", "-c", "echo more >"+filepath.Join(w.home, folder, "more")).Run(); err == nil {
		return errors.New("the file system is not full")
	}
	return nil
}

// serveModel starts the model's server.
func serveModel(m *model.Server) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), func() { _ = server.Close() }, nil
}
