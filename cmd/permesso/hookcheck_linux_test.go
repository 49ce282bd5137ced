package main

import (
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// standInAgent calls the hook of its settings, if there is one, and obeys exit 2 alone, as Claude Code does without
// onFailure. It asks no model.
const standInAgent = `#!/bin/sh
[ "$1" = --version ] && { echo "${VERSION:-2.1.330} (Claude Code)"; exit 0; }
command=${2##*else: }
grep -qs permesso "$HOME/.claude/settings.json" && ! grep -qs disableAllHooks .claude/settings.json && {
	echo '{"hook_event_name":"PreToolUse","session_id":"s","cwd":"/","tool_name":"Bash","tool_input":{"command":"touch x"}}' |
		"$HOOK" hook claude-code
	[ $? = 2 ] && exit 0
}
eval "$command"
`

// The installed agent is found and started, without a daemon; install and check say what cannot be promised for its version,
// and doctor names what switches the hook off.
func TestHookCheck(t *testing.T) {
	t.Parallel()
	home, project, tmp := t.TempDir(), t.TempDir(), t.TempDir()
	bin := filepath.Join(home, "bin")
	require.NoError(t, os.Mkdir(bin, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(bin, "claude"), []byte(standInAgent), 0o700))
	run := func(version string, args ...string) (int, string) {
		cmd := osexec.Command(program(t, true), args...)
		cmd.Dir, cmd.Env = project, []string{"HOME=" + home, "PATH=" + bin + ":/usr/bin:/bin", "HOOK=" + program(t, true), "VERSION=" + version, "TMPDIR=" + tmp}
		out, _ := cmd.CombinedOutput()
		left, err := os.ReadDir(tmp)
		require.NoError(t, err)
		require.Empty(t, left, "%v left files", args)
		return cmd.ProcessState.ExitCode(), string(out)
	}

	code, out := run("", "hook", "check", "claude-code")
	require.Equal(t, 9, code, out)
	require.Contains(t, out, "✗ settings  no settings have the hook\n  hint: permesso hook install claude-code\n")
	require.Contains(t, out, "✗ undone    the call was executed")
	_, out = run("", "doctor", "--quick")
	require.NotContains(t, out, "hooks ", "doctor speaks of agents without our hook")

	code, out = run("2.1.200", "hook", "install", "claude-code", "--yes")
	require.Zero(t, code, out)
	require.Contains(t, out, "permesso: warning: nothing can be promised for claude-code 2.1.200: versions before 2.1.295 ignore onFailure")
	require.Contains(t, out, "hint: update claude to 2.1.295 or later\n")
	code, out = run("2.1.200", "hook", "check", "claude-code")
	require.Equal(t, 9, code, out)
	require.Contains(t, out, "✗ version   nothing can be promised")
	require.Contains(t, out, "✓ undone    the denied call was not executed\n")

	code, out = run("", "hook", "check", "claude-code", "--json")
	require.Zero(t, code, out)
	var report struct {
		Version                string
		Called, Undone, Proven bool
		Settings               []struct{ Scope string }
		Lines                  []struct{ Of, Severity, What, Hint string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.True(t, report.Called && report.Undone && report.Proven)
	require.Equal(t, "2.1.330", report.Version)
	require.Equal(t, "user", report.Settings[0].Scope)
	require.Len(t, report.Lines, 4)
	_, out = run("", "doctor", "--quick")
	require.Contains(t, out, "· hooks     claude-code: user settings have the hook, for PreToolUse: "+home+"/.claude/settings.json\n  hint: a project switches it off")

	off := filepath.Join(project, ".claude/settings.json")
	require.NoError(t, os.Mkdir(filepath.Dir(off), 0o700))
	require.NoError(t, os.WriteFile(off, []byte(`{"disableAllHooks":true}`), 0o600))
	code, out = run("", "hook", "check", "claude-code", "--program", bin+"/claude")
	require.Equal(t, 9, code, out)
	require.Contains(t, out, "✗ off       "+off+" switches hooks off: disableAllHooks\n  hint: ")
	code, out = run("", "doctor", "--quick")
	require.Equal(t, 9, code, out)
	require.Contains(t, out, "✗ hooks     claude-code: "+off+" switches hooks off: disableAllHooks\n")
	require.NotContains(t, out, "was not called")
	_, out = run("", "doctor", "--quick", "--hooks")
	require.Contains(t, out, "✗ hooks     claude-code: the hook was not called: the agent has asked no model: it printed nothing\n")
	require.NoError(t, os.Remove(filepath.Join(bin, "claude")))
	_, out = run("", "doctor", "--quick", "--hooks")
	require.Contains(t, out, "· hooks     claude-code is not installed, or not in PATH: its hook was not tried\n")
	code, out = run("", "hook", "check", "claude-code")
	require.Equal(t, 9, code, out)
	require.Contains(t, out, "✗ version   claude-code is not installed")
}

// With the variable of a check the hook denies what the policy allows, and asks no gate.
func TestHookCheckOnlyDenies(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", hookConfig)
	h.serve().awaitLog(`"serving"`)
	event := hookEvent(t, "claude-code-bash")
	code, _, errs := h.hook(event, "claude-code").end()
	require.Zero(t, code, errs)
	before, err := os.ReadDir(h.layout.Responses("default"))
	require.NoError(t, err)
	folder, err := os.MkdirTemp(t.TempDir(), "permesso-hook-check-")
	require.NoError(t, err)
	for _, dir := range []string{folder, t.TempDir(), "/", "none"} {
		r := h.hookWith([]string{"PERMESSO_HOOK_CHECK=" + dir}, event, "claude-code")
		code, out, errs := r.end()
		requireDenied(t, code, out, errs)
		require.Contains(t, errs, "PERMESSO_HOOK_CHECK is set")
	}
	require.FileExists(t, filepath.Join(folder, "called"))
	after, err := os.ReadDir(h.layout.Responses("default"))
	require.NoError(t, err)
	require.Len(t, after, len(before), "the gate was asked")
}
