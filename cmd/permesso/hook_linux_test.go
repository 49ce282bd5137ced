package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// hookConfig declares one of the tools that the agents of the fixtures call.
const hookConfig = `listen = ""
ui = false
[workspaces.default]
approval_timeout = "1h"
[tools.Bash]
trust = false
reversibility = "reversible"
handler = { kind = "agent" }
args = { command = "command", cwd = "path", description = "text", timeout = { type = "number", optional = true } }
[tools.on_host]
trust = false
handler = { kind = "command", argv = ["/bin/true"] }
`

// hookRun is one process of a hook.
type hookRun struct {
	*rig
	cmd       *osexec.Cmd
	out, errs bytes.Buffer
}

func (h *rig) hook(event []byte, args ...string) *hookRun {
	h.t.Helper()
	return h.hookWith(nil, event, args...)
}

func (h *rig) hookWith(env []string, event []byte, args ...string) *hookRun {
	h.t.Helper()
	r := &hookRun{rig: h, cmd: h.command(append([]string{"hook"}, args...)...)}
	r.cmd.Env = append(r.cmd.Environ(), env...)
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = bytes.NewReader(event), &r.out, &r.errs
	require.NoError(h.t, r.cmd.Start())
	h.t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

func (r *hookRun) end() (code int, out, errs string) {
	r.t.Helper()
	err := r.cmd.Wait()
	if _, exited := errors.AsType[*osexec.ExitError](err); !exited {
		require.NoError(r.t, err)
	}
	return r.cmd.ProcessState.ExitCode(), r.out.String(), r.errs.String()
}

// requireDenied requires the one form on which every agent blocks.
func requireDenied(t *testing.T, code int, out, errs string) {
	t.Helper()
	require.Equal(t, 2, code, errs)
	require.Empty(t, out)
	require.Regexp(t, `^permesso: [^\n]*\S[^\n]*\n$`, errs)
}

// requireBytes compares JSON byte for byte.
func requireBytes(t *testing.T, want, got string) {
	t.Helper()
	require.Equal(t, []byte(want), []byte(got))
}

func hookEvent(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "hook", name+".json"))
	require.NoError(t, err)
	return b
}

// awaitOnePending returns the pending request, once there is exactly one.
func (h *rig) awaitOnePending() string {
	h.t.Helper()
	return strings.TrimSuffix(h.awaitPendings(1)[0], ".json")
}

// awaitPendings awaits that n requests are pending. One that has its response no longer is, although its file
// goes a moment later.
func (h *rig) awaitPendings(n int) (names []string) {
	h.t.Helper()
	dir := h.layout.Pendings("default")
	await(h.t, dir, func() bool {
		paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
		require.NoError(h.t, err)
		names = names[:0]
		for _, p := range paths {
			_, err := os.Stat(filepath.Join(h.layout.Responses("default"), filepath.Base(p)))
			if errors.Is(err, fs.ErrNotExist) {
				names = append(names, filepath.Base(p))
			}
		}
		return len(names) == n
	})
	return names
}

// A person approves and denies the calls of each agent: the answers are in that agent's form, byte for byte.
func TestHookAnswers(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", hookConfig)
	h.serve().awaitLog(`"serving"`)
	for _, row := range []struct{ event, agent, card, out string }{
		{"claude-code-permission", "claude-code", "content: new file, +2 -0\n", `{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"allow"}}}` + "\n"},
		{"codex-shell", "codex", "· cargo build --release: uses the network\n", ""},
		{"gemini-shell", "gemini", "· git push origin main: uses the network\n", `{"decision":"allow"}` + "\n"},
	} {
		event := hookEvent(t, row.event)
		r := h.hook(event, row.agent)
		id := h.awaitOnePending()
		_, card, _ := h.run("", "show", id)
		require.Contains(t, card, "execution: by the agent; the gate runs nothing", row.event)
		require.Contains(t, card, row.card, "it is typed, although no table declares it")
		code, _, errs := h.run("", "approve", id)
		require.Zero(t, code, errs)
		code, out, errs := r.end()
		require.Zero(t, code, errs)
		require.Equal(t, row.out, out, row.event)
		require.Empty(t, errs)
		response := h.response(id)
		require.Equal(t, approval.StatusApproved, response.Status)
		require.Equal(t, approval.ExecutionAgent, response.Execution)

		event = bytes.Replace(event, []byte(`"session_id":"`), []byte(`"session_id":"x`), 1) // another call
		r = h.hook(event, row.agent)
		id = h.awaitOnePending()
		code, _, errs = h.run("", "deny", id, "not", "on", "a", "Sunday")
		require.Zero(t, code, errs)
		code, out, errs = r.end()
		requireDenied(t, code, out, errs)
		require.Contains(t, errs, "not on a Sunday")
		require.Empty(t, h.response(id).Execution)
	}

	// What the table declares is judged by it; the same tool with an argument that is not declared is asked.
	event := hookEvent(t, "claude-code-bash")
	code, out, errs := h.hook(event, "claude-code").end()
	require.Zero(t, code, errs)
	require.Regexp(t, `^\{"hookSpecificOutput":\{"hookEventName":"PreToolUse","permissionDecision":"allow","permissionDecisionReason":"request [0-9a-f]{8}: allowed by a rule or a grant"\}\}\n$`, out)
	// What changes who is asked is asked each time, although its table allows it.
	wires := bytes.Replace(event, []byte("npm test -- --run"), []byte("echo alias >> ~/.bashrc"), 1)
	r := h.hook(wires, "claude-code")
	id := h.awaitOnePending()
	_, card, _ := h.run("", "show", id)
	require.Contains(t, card, "⚠ this changes who is asked: ~/.bashrc\n")
	require.Contains(t, card, "\nirreversible | ", "although the table says otherwise")
	code, _, errs = h.run("", "approve", id, "--always")
	require.NotZero(t, code, errs)
	code, _, errs = h.run("", "deny", id)
	require.Zero(t, code, errs)
	code, out, errs = r.end()
	requireDenied(t, code, out, errs)

	event = bytes.Replace(event, []byte(`"timeout":120000`), []byte(`"run_in_background":true`), 1)
	event = bytes.Replace(event, []byte(`"tool_use_id"`), []byte(`"agent_id":"a1","agent_type":"explorer","tool_use_id"`), 1)
	r = h.hook(event, "claude-code")
	id = h.awaitOnePending()
	_, card, _ = h.run("", "show", id)
	require.Contains(t, card, "run_in_background")
	require.Contains(t, card, "\nSubagent: \"explorer\"\n")
	code, _, errs = h.run("", "approve", id, "--note", "only once")
	require.Zero(t, code, errs)
	code, out, errs = r.end()
	require.Zero(t, code, errs)
	require.Contains(t, out, `"additionalContext":"The approver's note: only once"`)
}

// What is not an event that asks is denied in the one form, without a request; events that only inform are left alone.
func TestHookDeniesGarbage(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", hookConfig)
	h.serve().awaitLog(`"serving"`)
	good := strings.TrimSpace(string(hookEvent(t, "claude-code-bash")))
	events := map[string]string{
		"nothing": "", "a space": " ", "text": "rm -rf /", "a list": "[]", "two": good + good, "a number": "7", "null": "null",
		"no tool":          strings.Replace(good, `"tool_name":"Bash"`, `"tool":"Bash"`, 1),
		"an unknown event": strings.Replace(good, "PreToolUse", "BeforeLunch", 1),
		"no event":         strings.Replace(good, `"hook_event_name":"PreToolUse",`, "", 1),
		"deep":             strings.Replace(good, `"timeout":120000`, `"x":`+strings.Repeat("[", 5000)+strings.Repeat("]", 5000), 1),
		"twice a name":     strings.Replace(good, `"cwd"`, `"tool_name":"Read","cwd"`, 1),
		"not UTF-8":        strings.Replace(good, "Run", "\xff", 1),
		"huge":             strings.Replace(good, "Run the tests", strings.Repeat("x", 17<<20), 1),
		"too large":        strings.Replace(good, "Run the tests", strings.Repeat("x", 300<<10), 1),
		"a host's tool":    strings.Replace(good, `"Bash"`, `"on_host"`, 1),
	}
	for cut := 0; cut < len(good); cut += 20 {
		events[good[:cut]] = good[:cut]
	}
	for why, event := range events {
		code, out, errs := h.hook([]byte(event), "claude-code").end()
		t.Log(errs)
		require.Equal(t, 2, code, why)
		requireDenied(t, code, out, errs)
	}
	names, err := os.ReadDir(h.layout.Pendings("default"))
	require.NoError(t, err)
	require.Empty(t, names)
	for agent, event := range map[string]string{"claude-code": "PostToolUse", "codex": "Stop", "gemini": "AfterTool"} {
		code, out, errs := h.hook([]byte(`{"hook_event_name":"`+event+`","tool_name":"Bash"}`), agent).end()
		require.Empty(t, out+errs)
		require.Zero(t, code)
	}
	for _, args := range [][]string{{}, {"someone"}, {"claude-code", "codex"}, {"claude-code", "--frobnicate"}, {"claude-code", "--timeout", "soon"}, {"claude-code", "--workspace", "../x"}} {
		code, out, errs := h.hook([]byte(good), args...).end()
		require.Equal(t, 2, code, args)
		require.Empty(t, out, args)
		require.NotEmpty(t, strings.TrimSpace(errs), args)
	}
}

// However it ends without an approval, the call is denied, and what was asked for it can no longer be approved.
func TestHookEnds(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", hookConfig)
	event := hookEvent(t, "codex-shell")

	code, out, errs := h.hook(event, "codex").end()
	requireDenied(t, code, out, errs)
	require.Contains(t, errs, "there is no folder")

	d := h.serve()
	d.awaitLog(`"serving"`)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		r := h.hook(event, "codex")
		id := h.awaitOnePending()
		require.NoError(t, r.cmd.Process.Signal(sig))
		code, out, errs := r.end()
		requireDenied(t, code, out, errs)
		require.Equal(t, approval.StatusCancelled, h.response(id).Status)
		event = bytes.Replace(event, []byte(`"tool_use_id":"`), []byte(`"tool_use_id":"x`), 1)
	}

	r := h.hook(event, "codex", "--timeout", "7s")
	code, out, errs = r.end()
	requireDenied(t, code, out, errs)
	h.awaitPendings(0)
	event = bytes.Replace(event, []byte(`"tool_use_id":"`), []byte(`"tool_use_id":"x`), 1)

	// The answer cannot be written.
	gemini := hookEvent(t, "gemini-shell")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	r = &hookRun{rig: h, cmd: h.command("hook", "gemini")}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = bytes.NewReader(gemini), full, &r.errs
	require.NoError(t, r.cmd.Start())
	code, _, errs = h.run("", "approve", h.awaitOnePending())
	require.Zero(t, code, errs)
	code, out, errs = r.end()
	requireDenied(t, code, out, errs)

	// The daemon ends while the hook waits, and is started again.
	r = h.hook(event, "codex")
	id := h.awaitOnePending()
	d.stop()
	h.serve().awaitLog(`"serving"`)
	code, _, errs = h.run("", "approve", id)
	require.Zero(t, code, errs)
	code, out, errs = r.end()
	require.Zero(t, code, errs)
	require.Empty(t, out+errs)
}

// An agent that reads a deny from the output gets one for each end without an approval; if it cannot be written, the exit
// denies.
func TestHookDeniesInOutput(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", hookConfig)
	copilot := hookEvent(t, "copilot-shell")
	code, out, errs := h.hook(copilot, "copilot").end()
	require.Zero(t, code, errs)
	require.Regexp(t, `^\{"permissionDecision":"deny","permissionDecisionReason":"the gate cannot be asked: .*"\}\n$`, out)
	require.Empty(t, errs)

	code, out, errs = h.hook(hookEvent(t, "cursor-shell"), "cursor").end()
	require.Regexp(t, `^\{"permission":"deny","user_message":".+","agent_message":".+"\}\n$`, out)
	requireDenied(t, code, "", errs)

	noGate := &hookRun{rig: h, cmd: h.command("hook", "copilot")}
	noGate.cmd.Env = append(noGate.cmd.Environ(), "PERMESSO_URL=ftp://gate")
	noGate.cmd.Stdin, noGate.cmd.Stdout, noGate.cmd.Stderr = bytes.NewReader(copilot), &noGate.out, &noGate.errs
	require.NoError(t, noGate.cmd.Start())
	code, out, errs = noGate.end()
	require.Zero(t, code, errs)
	require.Contains(t, out, `{"permissionDecision":"deny",`)

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	r := &hookRun{rig: h, cmd: h.command("hook", "copilot")}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = bytes.NewReader(copilot), full, &r.errs
	require.NoError(t, r.cmd.Start())
	code, out, errs = r.end()
	requireDenied(t, code, out, errs)
}

// Two hooks for one call are one request; many calls at once are as many. Without an id of the call the two can be calls, and
// one of them gets the answer.
func TestHookAsksOnce(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", hookConfig)
	h.serve().awaitLog(`"serving"`)
	event := hookEvent(t, "gemini-shell")
	one, other := h.hook(event, "gemini"), h.hook(event, "gemini")
	id := h.awaitOnePending()
	code, _, errs := h.run("", "approve", id)
	require.Zero(t, code, errs)
	allowed, denied := "", 0
	for _, r := range []*hookRun{one, other} {
		code, out, errs := r.end()
		if allowed += out; code != 0 {
			requireDenied(t, code, out, errs)
			denied++
		}
	}
	requireBytes(t, `{"decision":"allow"}`+"\n", allowed)
	require.Equal(t, 1, denied)
	entries, err := os.ReadDir(h.layout.Responses("default"))
	require.NoError(t, err)
	require.Len(t, entries, 1)

	var all []*hookRun
	for i := range 20 {
		all = append(all, h.hook(bytes.Replace(event, []byte("origin main"), []byte("origin main"+strconv.Itoa(i)), 1), "gemini"))
	}
	dir := h.layout.Pendings("default")
	await(t, dir, func() bool {
		names, err := os.ReadDir(dir)
		require.NoError(t, err)
		return len(names) == len(all)
	})
	code, _, errs = h.run("", "deny", "--all", "--workspace", "default", "--yes")
	require.Zero(t, code, errs)
	for _, r := range all {
		code, out, errs := r.end()
		requireDenied(t, code, out, errs)
	}
}
