package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/mcp/mcptest"
)

// mcpConfig has tools of an MCP server, which speaks these versions.
func mcpConfig(t *testing.T, dir, more string, versions ...string) string {
	argv, err := json.Marshal(mcptest.Argv(dir, versions...))
	require.NoError(t, err)
	text := "listen = \"\"\nui = false\n[workspaces.default]\n[mcp.test]\nargv = " + string(argv) + "\n" + more + "\n"
	for _, tool := range []string{"record", "task", "die"} {
		text += "[tools." + tool + "]\n" + strings.Replace(noTrust, "dangerous_writes = false", "dangerous_writes = true", 1) +
			"args = { a = \"json\" }\nhandler = { kind = \"mcp\", server = \"test\", tool = \"" + tool + "\", timeout = \"1m\" }\n"
	}
	return text
}

// mcpRun is a daemon with an MCP server.
type mcpRun struct {
	*rig
	d     *daemonProcess
	files mcptest.Files
}

func newMCPRun(t *testing.T, versions ...string) *mcpRun {
	r := &mcpRun{files: mcptest.Files(t.TempDir())}
	r.rig = newRig(t, "default", mcpConfig(t, string(r.files), `env = ["TEST_TOKEN"]`, versions...))
	r.serve()
	return r
}

func (r *mcpRun) serve() { r.d = r.rig.serve("TEST_TOKEN=token-of-the-host-1234", raceExitsFast) }

// asked is a request that waits for a person.
func (r *mcpRun) asked(tool, data string) string {
	r.t.Helper()
	id := r.ask(`{"tool_name":"` + tool + `","request_data":` + data + `}`)
	r.awaitPending("default", id)
	return id
}

// approve approves a request in the background: the command waits for its end.
func (r *mcpRun) approve(id string) {
	r.t.Helper()
	cmd := r.command("approve", id)
	require.NoError(r.t, cmd.Start())
	r.t.Cleanup(func() { _ = cmd.Wait() })
}

func (r *mcpRun) awaitFile(name string) {
	r.t.Helper()
	awaitFile(r.t, filepath.Join(string(r.files), name))
}

// killDaemon kills the daemon, and waits until its server is gone.
func (r *mcpRun) killDaemon() {
	r.t.Helper()
	starts := r.files.Lines("starts")
	pid, err := strconv.Atoi(starts[len(starts)-1])
	require.NoError(r.t, err)
	fd, err := unix.PidfdOpen(pid, 0)
	require.NoError(r.t, err)
	defer unix.Close(fd)
	r.d.kill()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(testTimeout.Milliseconds()))
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(fds, int(testTimeout.Milliseconds()))
	}
	require.NoError(r.t, err)
	require.Equal(r.t, 1, n, "the server outlives its daemon")
}

// A tool of an MCP server runs once, with the arguments that were approved, and only then.
func TestMCPHandler(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string][]string{"old": {mcptest.Old}, "new": {mcptest.New}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newMCPRun(t, versions...)
			id := r.asked("record", `{"a":{"n":1.50,"text":"é"}}`)
			code, out, stderr := r.run("", "show", id)
			require.Equal(t, console.ExitOK, code, stderr)
			require.Contains(t, out, "calls: record of the MCP server test")
			require.Contains(t, out, "mcp-test-server")
			require.Contains(t, out, "1.50")
			require.Empty(t, r.files.Lines("starts"), "nothing runs before")
			r.approve(id)
			resp := r.response(id)
			require.Equal(t, approval.StatusApproved, resp.Status, "%v", resp)
			require.Equal(t, approval.Raw(`{"content":[{"type":"text","text":"recorded"}],"structuredContent":{"recorded":1.50}}`), resp.Result)
			require.Equal(t, []string{`{"a":{"n":1.50,"text":"é"}}`}, r.files.Lines("calls"))

			id = r.asked("record", `{"a":"denied"}`)
			code, _, stderr = r.run("", "deny", id)
			require.Equal(t, console.ExitOK, code, stderr)
			require.Equal(t, approval.StatusDenied, r.response(id).Status)

			id = r.asked("die", `{"a":1}`)
			r.approve(id)
			resp = r.response(id)
			require.Equal(t, approval.StatusFailed, resp.Status)
			require.Contains(t, *resp.Error, "outcome unknown: ")
			require.Contains(t, *resp.Error, "last words, with [redacted")
			require.NotContains(t, r.d.logged(), "token-of-the-host")

			// The server is another one than on the card.
			id = r.asked("record", `{"a":"changed"}`)
			r.replaceConfig(mcpConfig(t, string(r.files), "", versions...))
			r.d.awaitLog(logReloaded)
			r.approve(id)
			resp = r.response(id)
			require.Equal(t, approval.StatusFailed, resp.Status)
			require.Equal(t, "the tool changed, ask again", *resp.Error)
			require.Len(t, r.files.Lines("calls"), 1)

			id = r.asked("record", `{"a":"again"}`)
			r.approve(id)
			require.Equal(t, approval.StatusApproved, r.response(id).Status)
			r.killDaemon()
		})
	}
}

// A daemon that is killed while a task of a server goes on finds it again: its effect is there once, and its end is told.
func TestMCPTaskSurvivesTheDaemon(t *testing.T) {
	t.Parallel()
	r := newMCPRun(t, mcptest.New)
	id := r.asked("task", `{"a":1}`)
	r.approve(id)
	r.awaitFile("asked")
	kept := filepath.Join(r.layout.Receipts("default"), id+".task.json")
	require.FileExists(t, kept)
	r.killDaemon()
	r.serve()
	require.NoError(t, os.WriteFile(filepath.Join(string(r.files), "finish"), []byte("completed"), 0o600))
	resp := r.response(id)
	require.Equal(t, approval.StatusApproved, resp.Status)
	require.Contains(t, string(resp.Result), `"done"`)
	require.Equal(t, []string{`{"a":1}`}, r.files.Lines("calls"))
	await(t, kept, func() bool { _, err := os.Lstat(kept); return os.IsNotExist(err) })

	// A daemon that stops does not wait for a task.
	require.NoError(t, os.Remove(filepath.Join(string(r.files), "finish")))
	require.NoError(t, os.Remove(filepath.Join(string(r.files), "asked")))
	id = r.asked("task", `{"a":3}`)
	r.approve(id)
	r.awaitFile("asked")
	r.d.stop()
	require.NoError(t, os.WriteFile(filepath.Join(string(r.files), "finish"), []byte("completed"), 0o600))
	r.serve()
	require.Equal(t, approval.StatusApproved, r.response(id).Status)

	// A task that the server has forgotten is interrupted.
	require.NoError(t, os.Remove(filepath.Join(string(r.files), "finish")))
	require.NoError(t, os.Remove(filepath.Join(string(r.files), "asked")))
	id = r.asked("task", `{"a":2}`)
	r.approve(id)
	r.awaitFile("asked")
	r.killDaemon()
	require.NoError(t, os.Remove(filepath.Join(string(r.files), "task-3")))
	r.serve()
	resp = r.response(id)
	require.Equal(t, approval.StatusInterrupted, resp.Status)
	require.Contains(t, *resp.Error, "the server does not know its task any more")
	require.Equal(t, []string{`{"a":1}`, `{"a":3}`, `{"a":2}`}, r.files.Lines("calls"))

	code, out, stderr := r.run("", "audit", "verify")
	require.Equal(t, console.ExitOK, code, "%s%s", out, stderr)
}
