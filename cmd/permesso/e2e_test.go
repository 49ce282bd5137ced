package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/ipc/mcp/mcptest"
	"github.com/permesso-dev/permesso/watcher"
)

// testTimeout limits each wait for an expected event.
const testTimeout = 5 * time.Minute

func TestMain(m *testing.M) {
	exec.SuperviseIfAsked()
	mcptest.ServeIfAsked()
	escapeIfAsked()
	if what := os.Getenv("PERMESSO_SOCKET_HELPER"); what != "" {
		os.Exit(socketHelper(what))
	}
	code := m.Run()
	builtDir.Lock()
	_ = os.RemoveAll(builtDir.path)
	os.Exit(code)
}

var builtDir struct {
	sync.Mutex
	path string
}

// builder builds the program once, with or without the race detector.
func builder(name string, env []string, flags ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		builtDir.Lock()
		defer builtDir.Unlock()
		if builtDir.path == "" {
			dir, err := os.MkdirTemp("", "permesso-e2e-")
			if err != nil {
				return "", err
			}
			builtDir.path = dir
		}
		file := filepath.Join(builtDir.path, name, "permesso")
		args := append([]string{"build", "-buildvcs=false", "-o", file}, flags...)
		cmd := osexec.Command("go", append(args, ".")...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("build: %w\n%s", err, out)
		}
		return file, nil
	})
}

var (
	// Built as it is installed, and as make test builds what runs without the race
	// detector: the build cache serves all three.
	plainBinary = builder("plain", []string{"CGO_ENABLED=0"}, "-trimpath")
	raceBinary  = builder("race", nil, "-race")
)

func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// raceExitsFast disables the race detector's one-second sleep at exit.
const raceExitsFast = "GORACE=atexit_sleep_ms=0"

// program is built with the race detector if the tests are, unless plain is set:
// for a process that is killed, it would only be slower.
func program(t testing.TB, plain bool) string {
	t.Helper()
	build := plainBinary
	if raceDetector() && !plain {
		build = raceBinary
	}
	file, err := build()
	require.NoError(t, err)
	return file
}

// concurrent are the words of command lines that run goroutines. Other commands
// run without the race detector: they have no races, and it makes them five times
// slower.
var concurrent = []string{"serve", "demo", "init", "run", "wait", "--wait", "history", "tail"}

func isSequential(args []string) bool {
	return !slices.ContainsFunc(args, func(a string) bool { return slices.Contains(concurrent, a) })
}

// scriptBin is a folder with a permesso. If the tests run under the race detector,
// that is a wrapper that uses it only for concurrent command lines.
func scriptBin(t testing.TB) string {
	t.Helper()
	plain := program(t, true)
	if !raceDetector() {
		return filepath.Dir(plain)
	}
	bin := t.TempDir()
	text := fmt.Sprintf("#!/bin/sh\nfor a; do case $a in %s) exec %s \"$@\" ;; esac; done\nexec %s \"$@\"\n",
		strings.Join(concurrent, "|"), program(t, false), plain)
	require.NoError(t, writeProgram(filepath.Join(bin, "permesso"), text, 0o755))
	return bin
}

// rig is a home and a configuration for the real program.
type rig struct {
	t      testing.TB
	dir    string
	config string
	layout ipc.Layout
	agent  client.Files // of the first workspace
	plain  bool         // without the race detector
}

func newRig(t testing.TB, ws, config string) *rig {
	t.Helper()
	dir := t.TempDir()
	h := &rig{t: t, dir: dir, config: filepath.Join(dir, "permesso.toml"), layout: ipc.Layout{Home: filepath.Join(dir, "home")}}
	h.agent = client.Files{Requests: h.layout.Requests(ws), Responses: h.layout.Responses(ws)}
	require.NoError(t, os.WriteFile(h.config, []byte(config), 0o600))
	return h
}

func (h *rig) command(args ...string) *osexec.Cmd {
	args = withSeen(h.layout, args)
	cmd := osexec.Command(program(h.t, h.plain || isSequential(args)), append([]string{"--config", h.config, "--home", h.layout.Home}, args...)...)
	cmd.Dir, cmd.Env = h.dir, append(os.Environ(), raceExitsFast, "XDG_STATE_HOME="+filepath.Join(h.dir, "state"))
	return cmd
}

// withSeen adds to approve the digest of the request as it is now, as a program that has
// read it would. If none is pending, the digest is that of no request.
func withSeen(layout ipc.Layout, args []string) []string {
	if len(args) < 2 || args[0] != "approve" || slices.Contains(args, "--seen") {
		return args
	}
	return append(slices.Clone(args), "--seen", digestOf(layout, args[1]))
}

// digestOf is the digest of the pending request whose id begins so: ID, or WORKSPACE/ID.
func digestOf(layout ipc.Layout, typed string) string {
	ws, id, ok := strings.Cut(typed, "/")
	if !ok {
		ws, id = "*", typed
	}
	files, _ := filepath.Glob(filepath.Join(layout.Pendings(ws), id+"*.json")) // the pattern is valid
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil {
			return approval.Digest(b)
		}
	}
	return strings.Repeat("0", 64)
}

// run runs one command and waits for it.
func (h *rig) run(stdin string, args ...string) (code int, stdout, stderr string) {
	h.t.Helper()
	code, stdout, stderr = h.runRaw(stdin, args...)
	return code, stdout, withoutWaiting(stderr)
}

// withoutWaiting removes the line that a command prints if the daemon takes more than two seconds to answer: on a busy
// machine any command may.
func withoutWaiting(stderr string) string { return waitingLine.ReplaceAllString(stderr, "") }

var waitingLine = regexp.MustCompile(`(?m)^permesso: waiting for the daemon with PID \d+; its last sign of life was at .*\n`)

// runRaw is run with all of stderr.
func (h *rig) runRaw(stdin string, args ...string) (code int, stdout, stderr string) {
	h.t.Helper()
	cmd := h.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exited *osexec.ExitError
	if !errors.As(err, &exited) {
		require.NoError(h.t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// daemon is a running permesso serve.
type daemonProcess struct {
	*rig
	cmd  *osexec.Cmd
	log  string
	from int64 // offset of its part of the log
	wait func() error
}

func (h *rig) serve(env ...string) *daemonProcess { return h.start(h.command("serve"), env...) }

// start starts a daemon with this command line.
func (h *rig) start(cmd *osexec.Cmd, env ...string) *daemonProcess {
	h.t.Helper()
	d := &daemonProcess{rig: h, cmd: cmd, log: filepath.Join(h.dir, "log")}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(h.t, err)
	info, err := log.Stat()
	require.NoError(h.t, err)
	d.from = info.Size()
	d.cmd.Stderr, d.cmd.Env = log, append(d.cmd.Env, env...)
	require.NoError(h.t, d.cmd.Start())
	require.NoError(h.t, log.Close())
	d.wait = sync.OnceValue(d.cmd.Wait)
	h.t.Cleanup(d.kill)
	return d
}

// kill sends SIGKILL and waits for the exit.
func (d *daemonProcess) kill() {
	_ = d.cmd.Process.Kill() // it may have exited already
	_ = d.wait()
}

func (d *daemonProcess) signal(s syscall.Signal) {
	d.t.Helper()
	require.NoError(d.t, d.cmd.Process.Signal(s))
}

// stop sends SIGTERM and requires exit code 0.
func (d *daemonProcess) stop() {
	d.t.Helper()
	d.signal(syscall.SIGTERM)
	require.NoError(d.t, d.awaitExit(), "%s", d.logged())
}

// awaitExit waits until the daemon exits by itself.
func (d *daemonProcess) awaitExit() error {
	d.t.Helper()
	done := make(chan error, 1)
	go func() { done <- d.wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(testTimeout):
		d.kill()
		require.Fail(d.t, "the daemon does not exit", "%s", d.logged())
		return nil
	}
}

func (d *daemonProcess) logged() string {
	d.t.Helper()
	b, err := os.ReadFile(d.log)
	require.NoError(d.t, err)
	return string(b[d.from:])
}

func (d *daemonProcess) awaitLog(text string) {
	d.t.Helper()
	await(d.t, d.log, func() bool { return strings.Contains(d.logged(), text) })
}

// await waits until ready returns true. It calls it on every event below path.
func await(t testing.TB, path string, ready func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	require.NoError(t, watcher.Await(ctx, path, func() (bool, error) { return ready(), nil }), "waiting for %s", path)
}

func awaitFile(t testing.TB, path string) {
	t.Helper()
	await(t, path, func() bool { _, err := os.Lstat(path); return err == nil })
}

// ask submits a request and returns its id.
func (h *rig) ask(body string) string {
	h.t.Helper()
	id := client.NewID()
	awaitFile(h.t, h.agent.Requests)
	require.NoError(h.t, h.agent.Submit(id, []byte(strings.Replace(body, "{", `{"request_id":"`+id+`",`, 1))))
	return id
}

func (h *rig) awaitPending(ws, id string) {
	h.t.Helper()
	awaitFile(h.t, filepath.Join(h.layout.Pendings(ws), id+".json"))
}

func (h *rig) response(id string) *approval.Response {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), testTimeout)
	defer cancel()
	r, err := h.agent.Await(ctx, client.Submitted{ID: id})
	require.NoError(h.t, err)
	return r
}

// script writes an executable shell script.
func (h *rig) script(name, text string) string {
	h.t.Helper()
	file := filepath.Join(h.dir, name)
	require.NoError(h.t, writeProgram(file, "#!/bin/sh\n"+text+"\n", 0o700))
	return file
}

const askAll = `
[tools.say]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
handler = { kind = "command", argv = ["/bin/echo", "said"] }
[tools.say.args]
text = { type = "text", optional = true }
n = { type = "number", optional = true }
[[rules]]
match = { tool = "say" }
outcome = "ask"
`

// If the home is moved or replaced, two daemons could hold its lock, or one
// daemon could write into a foreign folder. So the daemon stops.
func TestDaemonStopsWhenItsHomeIsReplaced(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		why string
		act func(t *testing.T, h *rig)
	}{
		{"removed", func(t *testing.T, h *rig) { require.NoError(t, os.RemoveAll(h.layout.Home)) }},
		{"moved away", func(t *testing.T, h *rig) { require.NoError(t, os.Rename(h.layout.Home, h.layout.Home+".old")) }},
		{"replaced by another", func(t *testing.T, h *rig) {
			require.NoError(t, os.Rename(h.layout.Home, h.layout.Home+".old"))
			require.NoError(t, os.Remove(filepath.Join(h.layout.Home+".old", "run", "permesso.sock"))) // a socket cannot be copied
			require.NoError(t, os.CopyFS(h.layout.Home, os.DirFS(h.layout.Home+".old")))
		}},
		{"only the lock removed", func(t *testing.T, h *rig) { require.NoError(t, os.Remove(h.layout.Lock())) }},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			h := newRig(t, "default", askAll)
			d := h.serve()
			d.awaitLog(`"serving"`)
			id := h.ask(`{"tool_name":"say"}`)
			h.awaitPending("default", id)
			tc.act(t, h)
			require.Error(t, d.awaitExit())
			require.Equal(t, console.ExitError, d.cmd.ProcessState.ExitCode())
			require.Contains(t, d.logged(), "permesso: home removed or replaced while the daemon runs\nhint: ")
		})
	}
}

// If the home goes away, the daemon stops and its handlers are killed: their
// outcome could not be recorded.
func TestHandlersAreKilledWhenTheHomeIsMoved(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", "")
	begun := filepath.Join(h.dir, "begun")
	file := h.script("slow", "echo $$ > "+begun+".tmp; mv "+begun+".tmp "+begun+"; exec sleep 600")
	config := fmt.Sprintf("[tools.slow]\ntrust = false\nhandler = { kind = \"command\", argv = [%q], timeout = \"15m\" }\n[[rules]]\nmatch = { tool = \"slow\" }\noutcome = \"allow\"\n", file)
	require.NoError(t, os.WriteFile(h.config, []byte(config), 0o600))
	d := h.serve()
	id := h.ask(`{"tool_name":"slow"}`)
	awaitFile(t, begun)
	old := h.layout.Home + ".old"
	require.NoError(t, os.Rename(h.layout.Home, old))
	require.Error(t, d.awaitExit())
	var pid int
	b, err := os.ReadFile(begun)
	require.NoError(t, err)
	_, err = fmt.Sscan(string(b), &pid)
	require.NoError(t, err)
	await(t, begun, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	require.NoDirExists(t, h.layout.Home)

	// When the home is back, the run is reported as interrupted.
	require.NoError(t, os.Rename(old, h.layout.Home))
	d = h.serve()
	require.Equal(t, approval.StatusInterrupted, h.response(id).Status)
	d.stop()
}

func TestHangupChangesNothing(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"serving"`)
	d.signal(syscall.SIGHUP)
	d.awaitLog("configuration unchanged")
	id := h.ask(`{"tool_name":"say"}`)
	h.awaitPending("default", id)
	d.signal(syscall.SIGHUP)
	code, _, stderr := h.run("", "approve", id)
	require.Equal(t, console.ExitOK, code, stderr)
	require.Equal(t, approval.StatusApproved, h.response(id).Status)
	d.stop()
}

// On SIGTERM the daemon waits for running handlers and starts no new ones. The
// next daemon runs the rest.
func TestTermLetsHandlersFinish(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", "")
	begun, finish := filepath.Join(h.dir, "begun"), filepath.Join(h.dir, "finish")
	file := h.script("slow", ": > "+begun+"; read -r line < "+finish+"; echo done")
	require.NoError(t, syscall.Mkfifo(finish, 0o600))
	config := fmt.Sprintf("[workspaces.default]\nlimits = { running = 1 }\n[tools.slow]\ntrust = false\nhandler = { kind = \"command\", argv = [%q], timeout = \"5m\" }\n[[rules]]\nmatch = { tool = \"slow\" }\noutcome = \"allow\"\n", file)
	require.NoError(t, os.WriteFile(h.config, []byte(config), 0o600))
	d := h.serve()
	first := h.ask(`{"tool_name":"slow"}`)
	awaitFile(t, begun)
	d.signal(syscall.SIGTERM)
	second := h.ask(`{"tool_name":"slow"}`)
	require.NoError(t, os.WriteFile(finish, []byte("go\n"), 0o600))
	require.NoError(t, d.awaitExit())
	require.Equal(t, approval.StatusAutoApproved, h.response(first).Status)
	require.NoFileExists(t, filepath.Join(h.agent.Responses, second+".json"))

	d = h.serve()
	require.NoError(t, os.WriteFile(finish, []byte("go\n"), 0o600))
	require.Equal(t, approval.StatusAutoApproved, h.response(second).Status)
	d.stop()
}

// logKeys are the keys that the package comment lists.
func logKeys(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("main.go")
	require.NoError(t, err)
	lines := regexp.MustCompile(`//\t(level time message .*)\n//\t(.*)\n`).FindSubmatch(b)
	require.NotNil(t, lines)
	return strings.Fields(string(lines[1]) + " " + string(lines[2]))
}

const (
	planted = "hunter2-planted-secret"
	forged  = `"}` + "\n" + `{"level":"info","ws":"default","message":"forged line"}` + "\n"
)

// submitPlanted submits requests with a secret and a forged log line in every
// field that an agent can fill.
func (h *rig) submitPlanted() (ids []string) {
	h.t.Helper()
	evil, err := json.Marshal(planted + forged)
	require.NoError(h.t, err)
	text := string(evil)
	prose := `"request_data":{"text":` + text + `},"title":` + text + `,"preview":` + text + `,"rationale":` + text + `,"session_id":` + text
	for _, body := range []string{
		`{"tool_name":"say",` + prose + `}`,
		`{"tool_name":"say",` + prose + `}`,
		`{"tool_name":"free",` + prose + `}`,
		`{"tool_name":"breaks",` + prose + `}`,
		`{"tool_name":"never",` + prose + `}`,
		`{"tool_name":"unknown",` + prose + `}`,
		`{"type":"question",` + prose + `,"options":[` + text + `]}`,
		`{"tool_name":` + text + `}`,
		`{"tool_name":"say",` + text + `:` + text + `}`,
		`{"tool_name":"say","expires_in_sec":` + text + `}`,
		`{"tool_name":"say","resubmits":` + text + `}`,
	} {
		ids = append(ids, h.ask(body))
	}
	for _, name := range []string{planted + strings.ReplaceAll(forged, "/", "") + ".json", planted + ".cancel"} {
		require.NoError(h.t, os.WriteFile(filepath.Join(h.agent.Requests, name), []byte(planted), 0o644))
	}
	return ids
}

func TestLogHoldsNoArgumentAndNoForgedLine(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", "")
	breaks := h.script("breaks", "cat; cat >&2 <<'EOF'\n"+planted+forged+"EOF\nexit 1")
	require.NoError(t, os.WriteFile(h.config, []byte(`log_level = "debug"`+askAll+fmt.Sprintf(`
[tools.free]
trust = false
args = { text = "text" }
handler = { kind = "command", argv = ["/bin/cat"] }
[tools.breaks]
trust = false
summary = "{text}"
handler = { kind = "command", argv = [%q] }
[tools.never]
public_source = false
secret_data = false
public_sink = false
dangerous_writes = true
args = { text = "text" }
[[rules]]
match = { tool = "free" }
outcome = "allow"
[[rules]]
match = { tool = "breaks" }
outcome = "allow"
[[rules]]
match = { tool = "never" }
outcome = "deny"
`, breaks)), 0o600))
	d := h.serve()
	ids := h.submitPlanted()
	waiting := map[int]string{0: "approve", 1: "deny", 6: "deny"}
	var cli strings.Builder
	for i, verb := range waiting {
		h.awaitPending("default", ids[i])
		args := []string{verb, ids[i]}
		if verb == "approve" {
			args = append(args, "--note", planted+forged)
		} else {
			args = append(args, planted+forged)
		}
		code, _, stderr := h.run("", args...)
		require.Equal(t, console.ExitOK, code, stderr)
		cli.WriteString(stderr)
	}
	for _, id := range ids {
		h.response(id)
	}
	d.stop()
	keys, lines := logKeys(t), 0
	for line := range strings.Lines(d.logged()) {
		lines++
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry), "%s", line)
		for key := range maps.Keys(entry) {
			require.Contains(t, keys, key, "%s", line)
		}
		require.NotEqual(t, "forged line", entry["message"])
		require.NotContains(t, line, planted)
	}
	require.Greater(t, lines, len(ids), "each request is logged")
	require.NotContains(t, cli.String(), planted)
}

// A decision made while the daemon is down is stored, and the next daemon applies
// it.
func TestDecisionsMadeWhileTheDaemonIsDown(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	yes, no, open := h.ask(`{"tool_name":"say"}`), h.ask(`{"tool_name":"say"}`), h.ask(`{"tool_name":"say"}`)
	for _, id := range []string{yes, no, open} {
		h.awaitPending("default", id)
	}
	d.kill()
	code, out, stderr := h.run("", "approve", yes)
	require.Equal(t, console.ExitOK, code, stderr)
	require.Contains(t, out, "not running: this takes effect when it starts")
	code, _, stderr = h.run("", "deny", no, "not", "today")
	require.Equal(t, console.ExitOK, code, stderr)
	code, _, stderr = h.run("", "deny", yes)
	require.Equal(t, console.ExitRefused, code)
	require.Contains(t, stderr, "already decided: approved by operator:")

	d = h.serve()
	require.Equal(t, approval.StatusApproved, h.response(yes).Status)
	denied := h.response(no)
	require.Equal(t, approval.StatusDenied, denied.Status)
	require.Equal(t, "not today", *denied.Feedback)
	require.FileExists(t, filepath.Join(h.layout.Pendings("default"), open+".json"))
	d.stop()
}

// writeProgram writes a program that a test will run. Meanwhile no test starts a process: its child would have the file
// open for a moment, and what is open for writing cannot be executed.
func writeProgram(name, text string, mode os.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(name, []byte(text), mode)
}
