package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/ipc/mcp/mcptest"
	"github.com/permesso-dev/permesso/watcher"
)

func TestMain(m *testing.M) {
	exec.SuperviseIfAsked()
	mcptest.ServeIfAsked()
	_ = os.Setenv("TEST_TOKEN", mcpToken)
	_ = os.Setenv("SECRET_OF_THE_DAEMON", "must not leak")
	os.Exit(m.Run())
}

const (
	mcpToken    = "token-of-the-host-1234"
	mcpPatience = 3 * time.Minute
)

type acceptAll struct{}

func (acceptAll) Verify(_, _, _, _, _ string) error { return nil }

// mcpRig is a runner with a server.
type mcpRig struct {
	t      *testing.T
	runner *exec.Runner
	files  mcptest.Files
	server approval.Handler
	ended  chan struct{} // once for each server that has ended
	kept   atomic.Pointer[[]byte]
}

func newMCPRig(t *testing.T, versions ...string) *mcpRig {
	dir := t.TempDir()
	r := &mcpRig{t: t, files: mcptest.Files(dir), ended: make(chan struct{}, 100), server: approval.Handler{
		Kind: approval.HandlerMCP, MCP: approval.MCP{Server: "test"}, Argv: mcptest.Argv(dir, versions...), Env: []string{"TEST_TOKEN", "GOCOVERDIR"},
	}}
	r.restart()
	return r
}

// restart is another daemon.
func (r *mcpRig) restart() {
	r.close()
	log := zerolog.New(logFunc(func(line []byte) {
		if bytes.Contains(line, []byte("MCP server ended")) {
			r.ended <- struct{}{}
		}
	}))
	r.runner = &exec.Runner{Verifier: acceptAll{}, TempDir: r.t.TempDir(), MCP: mcpDialer{"1"}, Log: log}
	r.t.Cleanup(r.close)
}

func (r *mcpRig) close() {
	if r.runner != nil {
		require.NoError(r.t, r.runner.Close())
	}
}

type logFunc func([]byte)

func (f logFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

// overHTTP replaces the server by one at a URL.
func (r *mcpRig) overHTTP(see func(*http.Request), versions ...string) *mcpRig {
	h := mcptest.Handler(r.files, versions...)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if see != nil {
			see(q)
		}
		h.ServeHTTP(w, q)
	}))
	r.t.Cleanup(func() {
		r.close()
		web.CloseClientConnections()
		web.Close()
	})
	r.server = approval.Handler{
		Kind: approval.HandlerMCP, MCP: approval.MCP{Server: "test"},
		HTTP: approval.HTTP{URL: web.URL + "/mcp", AllowPrivate: []string{"127.0.0.1"}},
	}
	return r
}

func (r *mcpRig) job(tool, args string, change ...func(*approval.Handler)) approval.Job {
	h := r.server
	h.MCP.Tool = tool
	for _, c := range change {
		c(&h)
	}
	declared := map[string]approval.Argument{}
	for _, name := range []string{"a", "b", "n", "bytes"} {
		declared[name] = approval.Argument{Type: facts.TypeJSON, Optional: true}
	}
	return approval.Job{
		Workspace: "work", RequestID: "a7f3b2c1d4e5f6a7", Args: []byte(args), Receipt: "note",
		Tool:     approval.Tool{Name: "tool", Handler: h, Args: declared},
		KeepTask: func(task []byte) error { r.kept.Store(&task); return nil },
	}
}

func (r *mcpRig) call(tool, args string, change ...func(*approval.Handler)) approval.Effect {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), mcpPatience)
	defer cancel()
	e := r.runner.Run(ctx, r.job(tool, args, change...))
	require.NoError(r.t, ctx.Err())
	if r.server.HTTP.URL == "" || r.server.HTTP.SecretHeaders != nil { // else the token is not its own
		require.NotContains(r.t, e.Error+string(e.Result), mcpToken)
	}
	return e
}

func timeout(d time.Duration) func(*approval.Handler) {
	return func(h *approval.Handler) { h.Timeout = d }
}

func (r *mcpRig) await(file string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), mcpPatience)
	defer cancel()
	require.NoError(r.t, watcher.Await(ctx, filepath.Join(string(r.files), file), func() (bool, error) { return r.files.Has(file), nil }))
}

func (r *mcpRig) write(file, text string) {
	require.NoError(r.t, os.WriteFile(filepath.Join(string(r.files), file), []byte(text), 0o600))
}

func (r *mcpRig) pid() int {
	starts := r.files.Lines("starts")
	pid, err := strconv.Atoi(starts[len(starts)-1])
	require.NoError(r.t, err)
	return pid
}

// over are a server in each version, by each transport.
func over(t *testing.T) map[string]*mcpRig {
	return map[string]*mcpRig{
		"new": newMCPRig(t, mcptest.New), "old": newMCPRig(t, mcptest.Old), "both": newMCPRig(t),
		"new over HTTP": newMCPRig(t).overHTTP(nil, mcptest.New), "old over HTTP": newMCPRig(t).overHTTP(nil, mcptest.Old),
	}
}

func TestMCPToolRunsOnceWithItsArguments(t *testing.T) {
	t.Parallel()
	for name, r := range over(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.t = t
			const args = `{"b":1.50,"a":"é <","n":12345678901234567890}`
			e := r.call("record", strings.Replace(args, ",", ",\n ", 1))
			require.Empty(t, e.Error)
			require.Equal(t, approval.Raw(`{"content":[{"type":"text","text":"recorded"}],"structuredContent":{"recorded":1.50}}`), e.Result)
			require.Equal(t, strings.Fields(args), r.files.Lines("calls"))

			e = r.call("fail", `{}`)
			require.Regexp(t, `^Execution failed: no such board, says `, e.Error)
			e = r.call("unknown", `{}`)
			require.Regexp(t, `^Execution failed: error -3260\d: `, e.Error)
			require.False(t, e.Unstarted)

			if name == "old" || name == "old over HTTP" {
				return // the rest is the same
			}
			size := 1 << 20
			if name == "new" {
				size = 10 << 20
			}
			big := fmt.Sprintf(`{"bytes":%d}`, size)
			e = r.call("big", big, func(h *approval.Handler) { h.MaxOutput = 11 << 20 })
			require.Empty(t, e.Error)
			require.Len(t, e.Result, size+len(`{"content":[{"type":"text","text":""}]}`))
			require.Equal(t, "The tool has run, but its result is not returned: it is larger than 262144 bytes (max_output); do not repeat the call for it", r.call("big", big).Error)
			require.LessOrEqual(t, len(r.files.Lines("starts")), 1)
		})
	}
}

func TestMCPCallWithoutReceiptStartsNothing(t *testing.T) {
	t.Parallel()
	r := newMCPRig(t)
	r.runner.Verifier = nil
	e := r.call("record", `{}`)
	require.Contains(t, e.Error, "no verifier")
	require.True(t, e.Unstarted)
	r.runner.Verifier = acceptAll{}
	require.Contains(t, r.call("record", `{"undeclared":1}`).Error, "undeclared")
	require.Empty(t, r.files.Lines("starts"))
}

func TestMCPServerHasOnlyWhatItsTableLists(t *testing.T) {
	t.Parallel()
	r := newMCPRig(t)
	e := r.call("env", `{}`)
	require.Empty(t, e.Error)
	lines := strings.Split(strings.Trim(string(e.Result), `{"}]`), `\n`)
	var names []string
	dir := ""
	for _, l := range lines {
		name, value, _ := strings.Cut(l, "=")
		if i := strings.LastIndexByte(name, '"'); i >= 0 {
			name = name[i+1:]
		}
		names = append(names, name)
		switch name {
		case "PATH":
			require.Equal(t, "/usr/local/bin:/usr/bin:/bin", value)
		case "TEST_TOKEN":
			require.Contains(t, value, "redacted")
		case "umask":
			require.Equal(t, "0077", value)
		case "cwd":
			dir = value
		}
	}
	require.Subset(t, []string{"PERMESSO_RUN", "TEST_TOKEN", "GOCOVERDIR", "PATH", "cwd", "umask", "pid"}, names)
	require.Contains(t, dir, "permesso-run-")
	pid := r.pid()
	r.close()
	require.NoDirExists(t, dir)
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	require.Contains(t, r.call("env", `{}`).Error, "stopping")
}

func TestMCPServerIsStartedAgain(t *testing.T) {
	t.Parallel()
	r := newMCPRig(t)
	require.Empty(t, r.call("record", `{}`).Error)
	require.NoError(t, syscall.Kill(r.pid(), syscall.SIGKILL))
	<-r.ended
	require.Empty(t, r.call("record", `{}`).Error)
	require.Len(t, r.files.Lines("starts"), 2)

	e := r.call("die", `{}`)
	require.Regexp(t, `^Execution failed: outcome unknown: .* after the call was sent; check before you ask again$`, e.Error)
	require.Contains(t, e.Error, "exit status 3: last words, with [redacted")
	require.False(t, e.Unstarted)
	<-r.ended

	r.write("broken", "")
	for range 2 {
		e = r.call("record", `{}`)
		require.Regexp(t, `^Execution failed: nothing was sent: MCP server test: `, e.Error)
		require.Contains(t, e.Error, "exit status 4: broken, with [redacted")
		require.True(t, e.Unstarted)
	}
	e = r.call("record", `{}`, timeout(10*time.Millisecond))
	require.Regexp(t, `^Execution failed: nothing was sent: timed out after 10ms: MCP server test: .* exit status 4: broken`, e.Error)
	require.NoError(t, os.Remove(filepath.Join(string(r.files), "broken")))
	require.Empty(t, r.call("record", `{}`).Error)
	require.Len(t, r.files.Lines("calls"), 3)
}

func TestMCPServerThatCannotStart(t *testing.T) {
	t.Parallel()
	r := newMCPRig(t)
	r.server.Argv = []string{"/no/such/server"}
	e := r.call("record", `{}`)
	require.Equal(t, "Execution failed: nothing was sent: MCP server test: /no/such/server: no such program", e.Error)
	r.server.Argv = []string{"/bin/cat"} // which is no server: its answers are the questions
	e = r.call("record", `{}`, timeout(2*time.Second))
	require.Contains(t, e.Error, "nothing was sent: ")
	require.True(t, e.Unstarted)
}

func TestMCPCallThatHangs(t *testing.T) {
	t.Parallel()
	for name, r := range over(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.t = t
			require.Empty(t, r.call("record", `{}`).Error) // the start of the server is not a part of the time
			var wg sync.WaitGroup
			wg.Go(func() {
				e := r.runner.Run(t.Context(), r.job("hang", `{}`, timeout(3*time.Second)))
				require.Equal(t, "Execution failed: timed out after 3s after the call was sent, and the server was told to cancel it; outcome unknown: check before you ask again", e.Error)
			})
			r.await("hanging")
			require.Empty(t, r.call("record", `{}`).Error, "calls run at the same time")
			wg.Wait()
			r.await("cancelled")
			require.Empty(t, r.call("record", `{}`).Error)
			require.LessOrEqual(t, len(r.files.Lines("starts")), 1)
		})
	}
}

func TestMCPServerWithAnotherDefinition(t *testing.T) {
	t.Parallel()
	r := newMCPRig(t)
	require.Empty(t, r.call("record", `{}`).Error)
	r.runner.Use(map[string]approval.Tool{"a": r.job("record", `{}`).Tool})
	require.Empty(t, r.call("record", `{}`, timeout(time.Minute)).Error)
	require.Len(t, r.files.Lines("starts"), 1)

	done := make(chan approval.Effect)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { done <- r.runner.Run(ctx, r.job("hang", `{}`)) }()
	r.await("hanging")
	r.server.Env = append(r.server.Env, "LANG")
	require.Empty(t, r.call("record", `{}`).Error)
	require.Len(t, r.files.Lines("starts"), 2)
	select {
	case <-r.ended:
		require.Fail(t, "a call was running")
	default:
	}
	cancel()
	require.NotEmpty(t, (<-done).Error)
	<-r.ended
	r.runner.Use(nil)
	<-r.ended
	require.Empty(t, r.call("record", `{}`).Error)
	require.Len(t, r.files.Lines("starts"), 3)
}

func TestMCPServerOverHTTP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte(mcpToken+"\n"), 0o600))
	var seen atomic.Value
	r := newMCPRig(t).overHTTP(func(q *http.Request) { seen.Store(q.Header.Get("Authorization") + " " + q.Header.Get("X-Team")) })
	r.server.HTTP.Headers = map[string]string{"X-Team": "a"}
	r.server.HTTP.SecretHeaders = map[string]string{"Authorization": "Bearer " + secret}
	require.Empty(t, r.call("record", `{}`).Error)
	require.Equal(t, "Bearer "+mcpToken+" a", seen.Load())
	require.Contains(t, string(r.call("echo", `{}`).Result), "[redacted", "the server is in this process")

	refused := func(why string) {
		e := r.call("record", `{}`)
		require.Regexp(t, `^Execution failed: nothing was sent: .*`+why, e.Error)
		require.True(t, e.Unstarted)
	}
	good := r.server.HTTP
	r.server.HTTP.AllowPrivate = nil
	r.server.HTTP.SecretHeaders = nil
	refused("127.0.0.1")
	r.server.HTTP = good
	require.NoError(t, os.Remove(secret))
	refused("secret header Authorization")

	r.server.HTTP = approval.HTTP{AllowPrivate: []string{"127.0.0.1"}}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { seen.Store("redirected") }))
	t.Cleanup(other.Close)
	redirect := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(redirect.Close)
	r.server.HTTP.URL = redirect.URL + "/"
	refused("redirect")
	require.NotEqual(t, "redirected", seen.Load())
}

func TestMCPInputThatNoOneCanGive(t *testing.T) {
	t.Parallel()
	r := newMCPRig(t, mcptest.New)
	require.Contains(t, r.call("input", `{}`).Error, "the server asks for input, which no one can give here")
}

func TestMCPTask(t *testing.T) {
	t.Parallel()
	for name, r := range over(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.t = t
			if name == "old" || name == "old over HTTP" {
				require.Contains(t, r.call("task", `{}`).Error, "has not declared tasks")
				require.Nil(t, r.kept.Load())
				return
			}
			done := make(chan approval.Effect, 1)
			run := func() { done <- r.runner.Run(t.Context(), r.job("task", `{"a":1}`)) }
			go run()
			r.await("asked")
			require.JSONEq(t, `{"version":1,"task_id":"task-1"}`, string(*r.kept.Load()))
			r.write("finish", "completed")
			require.Equal(t, approval.Effect{Result: approval.Raw(`{"content":[{"text":"done","type":"text"}]}`)}, <-done)

			require.NoError(t, os.Remove(filepath.Join(string(r.files), "finish")))
			require.NoError(t, os.Remove(filepath.Join(string(r.files), "asked")))
			go run()
			r.await("asked")
			r.runner.Leave()
			require.Equal(t, approval.Effect{Left: true}, <-done)
			r.restart()
			for end, want := range map[string]string{
				"failed":         "the server's task failed: because",
				"cancelled":      "the server cancelled its task: because",
				"input_required": "the server's task asks for input, which no one can give here, and was told to end",
				"odd":            `outcome unknown: the server says that its task is "odd"; check before you ask again`,
			} {
				r.write("finish", end)
				go run()
				require.Equal(t, "Execution failed: "+want, (<-done).Error)
			}
			require.Len(t, r.files.Lines("calls"), 6)
			require.NoError(t, os.Remove(filepath.Join(string(r.files), "finish")))
			before := len(r.files.Lines("cancelled"))
			e := r.call("task", `{}`, timeout(2*time.Second))
			require.Equal(t, "Execution failed: timed out after 2s, and the server was told to cancel its task; outcome unknown: check before you ask again", e.Error)
			require.Len(t, r.files.Lines("cancelled"), before+1)
		})
	}
}

func TestMCPTaskIsFoundAgain(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*mcpRig{"command": newMCPRig(t, mcptest.New), "HTTP": newMCPRig(t).overHTTP(nil, mcptest.New)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.t = t
			resume := func(task string, within time.Duration) approval.Effect {
				job := r.job("task", `{}`, timeout(within))
				job.Task = []byte(task)
				return r.runner.Resume(t.Context(), job)
			}
			done := make(chan approval.Effect, 1)
			go func() { done <- r.runner.Run(t.Context(), r.job("task", `{}`)) }()
			r.await("asked")
			r.restart()
			require.NotEmpty(t, (<-done).Error)
			r.write("finish", "completed")
			e := resume(string(*r.kept.Load()), time.Minute)
			require.Empty(t, e.Error)
			require.Contains(t, string(e.Result), "done")
			require.Len(t, r.files.Lines("calls"), 1)

			for task, why := range map[string]string{
				`{"version":1,"task_id":"task-9"}`: "the server does not know its task any more (error -32602: there is no such task)",
				`{"version":1,"task_id":""}`:       "what was kept of it cannot be read",
				`{`:                                "what was kept of it cannot be read",
			} {
				e = resume(task, time.Minute)
				require.True(t, e.Unknown)
				require.Equal(t, "Interrupted: the daemon stopped while a task of an MCP server ran, and its outcome is unknown: "+why+"; check before retrying", e.Error)
			}
			r.write("broken", "")
			r.restart()
			if name == "HTTP" {
				r.server.HTTP.URL = closedURL(t)
			}
			e = resume(string(*r.kept.Load()), 5*time.Second)
			require.True(t, e.Unknown)
			require.Contains(t, e.Error, "timed out after 5s: the server could not be asked for its task: ")
			require.NotContains(t, e.Error, mcpToken)
			require.Len(t, r.files.Lines("calls"), 1)
		})
	}
}

// closedURL is one where no server is.
func closedURL(t *testing.T) string {
	web := httptest.NewServer(http.NotFoundHandler())
	web.Close()
	_, err := url.Parse(web.URL)
	require.NoError(t, err)
	return web.URL + "/"
}

func TestMCPErrorsOfTheWire(t *testing.T) {
	t.Parallel()
	require.NoError(t, serverError(nil))
	plain := errors.New("lost")
	require.Equal(t, plain, serverError(plain))
	_, err := connected(nil, fmt.Errorf("connect: %w", plain))
	require.ErrorIs(t, err, plain)
}
