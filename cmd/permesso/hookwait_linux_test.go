package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// editConfig denies one command, and allows another.
const editConfig = `listen = ""
ui = false
[workspaces.default]
[tools.Bash]
capability = "code:exec"
handler = { kind = "agent" }
args = { command = "command", cwd = "path", description = { type = "text", optional = true }, timeout = { type = "number", optional = true } }
[[rules]]
match = { tool = "Bash", args = { command = "rm" } }
outcome = "deny"
reason = "nothing is removed here"
`

// awaitOtherPending returns the one pending request that is not this one.
func (h *rig) awaitOtherPending(not string) (id string) {
	h.t.Helper()
	await(h.t, h.layout.Pendings("default"), func() bool {
		id = ""
		names, err := filepath.Glob(filepath.Join(h.layout.Pendings("default"), "*.json"))
		require.NoError(h.t, err)
		for _, name := range names {
			if name = strings.TrimSuffix(filepath.Base(name), ".json"); name != not {
				id = name
			}
		}
		return id != "" && len(names) == 1
	})
	return id
}

func (h *rig) mustRun(args ...string) string {
	h.t.Helper()
	code, out, errs := h.run("", args...)
	require.Zero(h.t, code, out+errs)
	return out
}

// What a person writes in place of a command is a request of its own: shown as a comparison, judged, and decided. Only then
// the agent gets it.
func TestHookEdit(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", editConfig)
	h.serve().awaitLog(`"serving"`)
	for _, row := range []struct{ event, agent, out string }{
		{"claude-code-bash", "claude-code", `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","permissionDecisionReason":"request ID: approved by BY","updatedInput":{"command":"npm test -- --run src","description":"Run the tests","timeout":120000}}}` + "\n"},
		{"codex-shell", "codex", `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","permissionDecisionReason":"request ID: approved by BY","updatedInput":{"command":"npm test -- --run src"}}}` + "\n"},
		{"gemini-shell", "gemini", `{"decision":"allow","hookSpecificOutput":{"tool_input":{"command":"npm test -- --run src","description":"Publish the branch"}}}` + "\n"},
	} {
		r := h.hook(hookEvent(t, row.event), row.agent)
		first := h.awaitOnePending()
		require.Contains(t, h.mustRun("show", first), "7: <text to run instead>")
		h.mustRun("change", "--run", first, "npm test -- --run src")
		second := h.awaitOtherPending(first)
		card := h.mustRun("show", second)
		require.Contains(t, card, "changed since "+approval.ShortID(first), row.event)
		require.Contains(t, card, "npm test -- --run src")
		require.Contains(t, card, "7: <text to run instead>")
		require.Equal(t, approval.StatusOverridden, h.response(first).Status)
		h.mustRun("approve", second)
		code, out, errs := r.end()
		require.Zero(t, code, errs)
		by := *h.response(second).Decision.By
		require.Equal(t, strings.NewReplacer("ID", approval.ShortID(second), "BY", by).Replace(row.out), out)
	}

	// The person's text is judged as the agent's is, and may be denied, or written anew.
	event := bytes.Replace(hookEvent(t, "codex-shell"), []byte(`"tool_use_id":"`), []byte(`"tool_use_id":"x`), 1)
	r := h.hook(event, "codex")
	first := h.awaitOnePending()
	h.mustRun("change", "--run", first, "cargo clean")
	second := h.awaitOtherPending(first)
	h.mustRun("change", "--run", second, "rm -r target")
	code, out, errs := r.end()
	requireDenied(t, code, out, errs)
	require.Contains(t, errs, "nothing is removed here")

	// Each text is a request of its own, also the one that the call has, and the same one once more.
	event = bytes.Replace(event, []byte(`"tool_use_id":"`), []byte(`"tool_use_id":"x`), 1)
	r = h.hook(event, "codex")
	id := h.awaitOnePending()
	for _, text := range []string{"cargo build --release", "cargo check", "cargo check", "cargo build --release"} {
		h.mustRun("change", "--run", id, text)
		id = h.awaitOtherPending(id)
		require.Contains(t, h.mustRun("show", id), text)
	}
	h.mustRun("approve", id)
	code, out, errs = r.end()
	require.Zero(t, code, errs)
	require.Contains(t, out, `"updatedInput":{"command":"cargo build --release"}`)

	// Another agent's request offers no such answer, nor does one whose event cannot carry it.
	event = []byte(`{"session_id":"s","cwd":"/home/ann/site","hook_event_name":"PermissionRequest","tool_name":"Bash","tool_input":{"command":"id"}}`)
	r = h.hook(event, "codex")
	id = h.awaitOnePending()
	require.NotContains(t, h.mustRun("show", id), "7: ")
	code, _, errs = h.run("", "change", "--run", id, "whoami")
	require.NotZero(t, code)
	require.Contains(t, errs, "answer with 5")
	h.mustRun("change", id, "whoami")
	code, out, errs = r.end()
	requireDenied(t, code, out, errs)
	require.Contains(t, errs, "whoami")
}

// Calls that do the same at the same time are asked once, and the approval is for one of them.
func TestHookAsksSameCallOnce(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", hookConfig)
	h.serve().awaitLog(`"serving"`)
	event := bytes.Replace(hookEvent(t, "claude-code-permission"), []byte(`"hook_event_name":"PermissionRequest"`), []byte(`"hook_event_name":"PreToolUse","tool_use_id":"one"`), 1)
	for _, approve := range []bool{true, false} {
		one := h.hook(event, "claude-code")
		id := h.awaitOnePending()
		event = bytes.Replace(event, []byte(`"tool_use_id":"`), []byte(`"tool_use_id":"x`), 1)
		other := h.hook(event, "claude-code")
		h.awaitInFlight(2)
		if !approve {
			h.mustRun("deny", id)
			for _, r := range []*hookRun{one, other} {
				code, out, errs := r.end()
				requireDenied(t, code, out, errs)
			}
			continue
		}
		h.mustRun("approve", id)
		code, _, errs := one.end()
		require.Zero(t, code, errs)
		code, out, errs := other.end()
		requireDenied(t, code, out, errs)
		require.Contains(t, errs, "make it again if it is to run twice")
		event = bytes.Replace(event, []byte(`"tool_use_id":"`), []byte(`"tool_use_id":"y`), 1)
	}
	responses, err := filepath.Glob(filepath.Join(h.layout.Responses("default"), "*.json"))
	require.NoError(t, err)
	require.Len(t, responses, 2)
}

// Two hooks for one call, with other time-outs, ask once, and get the answer both. A later call with the same bytes does not.
func TestHookAnswersOneCall(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", hookConfig)
	h.serve().awaitLog(`"serving"`)
	event := bytes.Replace(hookEvent(t, "claude-code-permission"), []byte(`"hook_event_name":"PermissionRequest"`), []byte(`"hook_event_name":"PreToolUse","tool_use_id":"one"`), 1)
	one := h.hook(event, "claude-code", "--timeout", "5m")
	id := h.awaitOnePending()
	other := h.hook(event, "claude-code", "--timeout", "10m")
	h.awaitInFlight(2)
	h.mustRun("approve", id)
	for _, r := range []*hookRun{one, other, h.hook(event, "claude-code", "--timeout", "5m")} {
		code, _, errs := r.end()
		require.Zero(t, code, errs)
	}
	given := filepath.Join(h.dir, "state", "permesso-hooks", "given", id)
	long := time.Now().Add(-time.Minute)
	require.NoError(t, os.Chtimes(given, long, long))
	code, out, errs := h.hook(event, "claude-code", "--timeout", "5m").end()
	requireDenied(t, code, out, errs)
	require.Contains(t, errs, "was given to another call")

	// Calls without an id of their own are told from no other: one of them gets it.
	event = bytes.Replace(hookEvent(t, "claude-code-permission"), []byte(`"command":"`), []byte(`"command":"true; `), 1)
	same := []*hookRun{h.hook(event, "claude-code"), h.hook(event, "claude-code"), h.hook(event, "claude-code")}
	id = h.awaitOnePending()
	h.awaitInFlight(3)
	h.mustRun("approve", id)
	allowed := 0
	for _, r := range same {
		if code, _, _ := r.end(); code == 0 {
			allowed++
		}
	}
	require.Equal(t, 1, allowed)

	// A call without an id of its own is asked again, whatever the end of the earlier one.
	event = hookEvent(t, "claude-code-permission")
	for _, decide := range []string{"deny", "approve", "approve"} {
		r := h.hook(event, "claude-code")
		h.mustRun(decide, h.awaitOnePending())
		code, out, errs := r.end()
		if decide == "deny" {
			requireDenied(t, code, out, errs)
		} else {
			require.Zero(t, code, errs)
		}
	}
}

// What a person has written in the place of a call that was handed back is the end of it, too: given once.
func TestHookHandsBackAnEdit(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", editConfig)
	h.serve().awaitLog(`"serving"`)
	event := hookEvent(t, "codex-shell")
	call := func() (code int, out, errs string) {
		event = bytes.Replace(event, []byte(`"tool_use_id":"`), []byte(`"tool_use_id":"x`), 1)
		return h.hook(event, "codex", "--wait", "hand-back").end()
	}
	code, out, errs := call()
	requireDenied(t, code, out, errs)
	first := h.awaitOnePending()
	h.mustRun("change", "--run", first, "cargo clean")
	code, out, errs = call()
	requireDenied(t, code, out, errs)
	second := h.awaitOtherPending(first)
	require.Contains(t, errs, "asked, number "+approval.ShortID(second))
	h.mustRun("approve", second)
	code, out, errs = call()
	require.Zero(t, code, errs)
	require.Contains(t, out, `"updatedInput":{"command":"cargo clean"}`)
	code, out, errs = call()
	requireDenied(t, code, out, errs)
	require.Contains(t, errs, "asked, number ")
	require.NotContains(t, h.mustRun("show", h.awaitOnePending()), "cargo clean", "the agent's own call is asked anew")
}

// awaitInFlight waits until so many hooks have asked: the second one of a call reads the file of the first.
func (h *rig) awaitInFlight(n int) {
	h.t.Helper()
	await(h.t, h.layout.Requests("default"), func() bool {
		open := 0
		fds, err := filepath.Glob("/proc/[0-9]*/cmdline")
		require.NoError(h.t, err)
		for _, name := range fds {
			line, err := os.ReadFile(name)
			if err == nil && bytes.Contains(line, []byte("\x00hook\x00claude-code")) {
				environ, err := os.ReadFile(filepath.Join(filepath.Dir(name), "environ"))
				if err == nil && bytes.Contains(environ, []byte(h.dir)) {
					open++
				}
			}
		}
		return open >= n
	})
}

// A call that is handed back is denied with a number. The same call, made again, gets the end: once.
func TestHookHandsBack(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", hookConfig)
	h.serve().awaitLog(`"serving"`)
	event := bytes.Replace(hookEvent(t, "codex-shell"), []byte(`"command":"cargo build --release"`), []byte(`"command":"cargo build","x":1`), 1)
	call := func() (code int, out, errs string) {
		event = bytes.Replace(event, []byte(`"tool_use_id":"`), []byte(`"tool_use_id":"x`), 1)
		return h.hook(event, "codex", "--wait", "hand-back").end()
	}
	seen := map[string]bool{}
	for _, approve := range []bool{true, false, true} {
		code, out, errs := call()
		requireDenied(t, code, out, errs)
		id := h.awaitOnePending()
		require.Contains(t, errs, "asked, number "+approval.ShortID(id)+": make the same call again")
		require.False(t, seen[id], "an end is given once")
		seen[id] = true
		code, out, errs = call()
		requireDenied(t, code, out, errs)
		require.Contains(t, errs, approval.ShortID(id), "it waits still")
		if approve {
			h.mustRun("approve", id)
			code, out, errs = call()
			require.Zero(t, code, errs)
			require.Empty(t, out)
			continue
		}
		h.mustRun("deny", id, "not now")
		code, out, errs = call()
		requireDenied(t, code, out, errs)
		require.Contains(t, errs, "not now")
	}
	// Without a folder for what was given, nothing is.
	code, out, errs := call()
	requireDenied(t, code, out, errs)
	h.mustRun("approve", h.awaitOnePending())
	r := &hookRun{rig: h, cmd: h.command("hook", "codex", "--wait", "hand-back")}
	r.cmd.Env = append(r.cmd.Env, "XDG_STATE_HOME=/dev/null")
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = bytes.NewReader(event), &r.out, &r.errs
	require.NoError(t, r.cmd.Start())
	code, out, errs = r.end()
	requireDenied(t, code, out, errs)
}

// deferringAgent stands in for an agent that ends when its hook defers, and goes on when it is started again.
const deferringAgent = `#!/bin/sh
case "$*" in *--resume*) ;; *) echo "$*" > "$AGENT_DIR/first" ;; esac
echo "$*" >> "$AGENT_DIR/starts"
out=$($PERMESSO hook claude-code --wait defer < "$AGENT_DIR/event") || { echo '{"stop_reason":"end_turn","session_id":"9f2d","result":"denied"}'; exit 0; }
case $out in
*'"defer"'*) echo '{"stop_reason":"tool_deferred","session_id":"9f2d6a3e-5c41-4b7e-8a0c-2f1d3e4b5a6c","result":"","deferred_tool_use":{"id":"toolu_01Hq3Yx9","name":"Bash","input":{}}}' ;;
*'"allow"'*) echo ran >> "$AGENT_DIR/ran"; echo '{"stop_reason":"end_turn","session_id":"9f2d","result":"done"}' ;;
esac
`

// What is deferred survives the end of the agent, of its supervisor and of the daemon. It runs once, also if the agent is
// started again later, and not if the call has changed.
func TestHookDefers(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", hookConfig)
	dir := t.TempDir()
	event := bytes.Replace(hookEvent(t, "claude-code-bash"), []byte(`"description":"Run the tests"`), []byte(`"undeclared":true`), 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "event"), event, 0o600))
	agent := filepath.Join(dir, "claude")
	require.NoError(t, os.WriteFile(agent, []byte(deferringAgent), 0o700))
	start := func(args ...string) *hookRun {
		r := &hookRun{rig: h, cmd: h.command(append([]string{"hook", "run", "--", agent}, args...)...)}
		r.cmd.Env = append(r.cmd.Env, "AGENT_DIR="+dir, "PERMESSO="+r.cmd.Path+" --config "+h.config+" --home "+h.layout.Home, "PATH="+os.Getenv("PATH"))
		r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.errs
		require.NoError(t, r.cmd.Start())
		t.Cleanup(func() { _ = r.cmd.Process.Kill() })
		return r
	}
	ran := func() string {
		b, _ := os.ReadFile(filepath.Join(dir, "ran"))
		return string(b)
	}
	d := h.serve()
	d.awaitLog(`"serving"`)
	r := start("-p", "build it", "--model", "opus", "--output-format=text")
	id := h.awaitOnePending()
	await(t, dir, func() bool {
		names, _ := filepath.Glob(filepath.Join(h.dir, "state", "permesso-hooks", "waiting", "*"))
		return len(names) == 1
	})
	require.NoError(t, r.cmd.Process.Kill())
	_, _, _ = r.end()
	d.stop()
	h.serve().awaitLog(`"serving"`)

	resume := []string{"-p", "--resume", "9f2d6a3e-5c41-4b7e-8a0c-2f1d3e4b5a6c", "--model", "opus"}
	waiting, err := filepath.Glob(filepath.Join(h.dir, "state", "permesso-hooks", "waiting", "*"))
	require.NoError(t, err)
	require.Len(t, waiting, 1)
	require.NoError(t, os.Remove(waiting[0]))
	r = start(resume...)
	await(t, filepath.Dir(waiting[0]), func() bool { // it has deferred again
		b, _ := os.ReadFile(waiting[0])
		return len(b) == len(id)
	})
	require.Equal(t, id, h.awaitOnePending(), "it is the same request")
	h.mustRun("approve", id)
	code, out, errs := r.end()
	require.Zero(t, code, errs)
	require.Equal(t, "done\n", out)
	require.Equal(t, "ran\n", ran())
	first, err := os.ReadFile(filepath.Join(dir, "first"))
	require.NoError(t, err)
	require.Equal(t, "-p build it --model opus --output-format json\n", string(first))
	b, err := os.ReadFile(filepath.Join(dir, "starts"))
	require.NoError(t, err)
	require.Contains(t, string(b), "-p --model opus --output-format json --resume 9f2d6a3e-5c41-4b7e-8a0c-2f1d3e4b5a6c\n", "the prompt is not said twice")

	code, out, errs = start(resume...).end()
	require.Zero(t, code, errs)
	require.Equal(t, "denied\n", out, "an agent that is started again runs nothing again")
	require.Equal(t, "ran\n", ran())

	require.NoError(t, os.WriteFile(filepath.Join(dir, "event"), bytes.Replace(event, []byte("npm test"), []byte("npm run"), 1), 0o600))
	r = start(resume...)
	require.NotEqual(t, id, h.awaitOnePending(), "a changed call is asked anew")
	h.mustRun("deny", h.awaitOnePending())
	code, out, errs = r.end()
	require.Zero(t, code, errs)
	require.Equal(t, "denied\n", out)

	// Outside of permesso hook run no one would start the agent again: the hook holds.
	hold := h.hook(bytes.Replace(event, []byte("toolu"), []byte("other"), 1), "claude-code", "--wait", "defer")
	id = h.awaitOnePending()
	held, err := filepath.Glob(filepath.Join(h.dir, "state", "permesso-hooks", "calls", "*"))
	require.NoError(t, err)
	require.Len(t, held, 1)
	h.mustRun("approve", id)
	code, out, errs = hold.end()
	require.Zero(t, code, errs)
	require.Contains(t, out, `"permissionDecision":"allow"`)

	for _, args := range [][]string{{"do it"}, {"-p", "x", "--output-format", "stream-json"}} {
		code, _, errs := start(args...).end()
		require.Equal(t, 2, code, args)
		require.Contains(t, errs, "permesso hook run -- claude -p")
	}
}
