package check

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/hook"
)

// rig is a home and a project with a stand-in for an agent.
type rig struct {
	t   *testing.T
	dir string
	Check
}

// newRig installs the hook as permesso hook install does, unless it is not to stand.
func newRig(t *testing.T, agent, behaves string, stands bool) rig {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	own, err := os.Executable()
	require.NoError(t, err)
	bin := filepath.Join(dir, "bin")
	for _, folder := range []string{"bin", "home", "project", "tmp"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o700))
	}
	for _, name := range []string{"claude", "codex", "gemini", "permesso"} {
		require.NoError(t, os.Symlink(own, filepath.Join(bin, name)))
	}
	t.Setenv("TMPDIR", filepath.Join(dir, "tmp"))
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	a, ok := hook.AgentNamed(agent)
	require.True(t, ok)
	r := rig{t, dir, Check{
		Place: Place{Home: filepath.Join(dir, "home"), Project: filepath.Join(dir, "project"), Env: func(string) string { return "" }},
		Agent: a,
		Environ: []string{
			"HOME=" + filepath.Join(dir, "home"), "PATH=" + os.Getenv("PATH"), behavior + "=" + behaves, "CHILD=" + filepath.Join(dir, "child"),
			"GORACE=atexit_sleep_ms=0", "https_proxy=http://127.0.0.1:1", "ANTHROPIC_BASE_URL=http://127.0.0.1:1", hook.Checking + "=/",
		},
	}}
	if stands {
		file, err := a.File(hook.User, r.Home, r.Project, r.Env)
		require.NoError(t, err)
		events, err := a.Events([]string{"pretool"})
		require.NoError(t, err)
		text, err := a.Add(hook.User, nil, hook.Line{Program: filepath.Join(bin, "permesso"), Args: []string{"hook", agent}, Timeout: time.Minute}, events)
		require.NoError(t, err)
		r.write(file, string(text))
	}
	return r
}

func (r rig) write(file, text string) {
	r.t.Helper()
	if !filepath.IsAbs(file) {
		file = filepath.Join(r.Project, file)
	}
	require.NoError(r.t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(r.t, os.WriteFile(file, []byte(text), 0o600))
}

// line is what the report says of one thing, with its hint.
func (r rig) line(report Report, of string) string {
	r.t.Helper()
	for _, l := range report.Lines(r.Agent) {
		if l.Of == of {
			return string(l.Severity) + ": " + l.What + " (" + l.Hint + string(l.Command) + ")"
		}
	}
	return ""
}

// requireClean requires that a check has left no files.
func (r rig) requireClean() {
	r.t.Helper()
	left, err := os.ReadDir(filepath.Join(r.dir, "tmp"))
	require.NoError(r.t, err)
	require.Empty(r.t, left)
}

func TestCheckProves(t *testing.T) {
	for _, agent := range Agents() {
		r := newRig(t, agent, "", true)
		report, err := r.Run(context.Background())
		require.NoError(t, err)
		require.True(t, report.Proven(r.Agent), "%s: %+v", agent, report)
		require.Contains(t, r.line(report, "called"), "ok: the hook was called: ")
		require.Equal(t, "ok: the denied call was not executed ()", r.line(report, "undone"))
		require.Regexp(t, "^(ok|info): user settings have the hook, for [A-Za-z]+: .*/home/[.]", r.line(report, "settings"))
		require.Contains(t, r.line(report, "version"), "2.1.330")
		r.requireClean()
	}
}

func TestCheckFinds(t *testing.T) {
	for _, row := range []struct {
		agent, behaves string
		stands         bool
		called, undone bool
		of, says       string
	}{
		{"claude-code", "", false, false, false, "called", "error: the hook was not called (install)"},
		{"gemini", "", false, false, false, "settings", "error: no settings have the hook (install)"},
		{"codex", "silent", true, false, false, "called", "(Codex skips a hook that is not trusted, without a word: start codex in this folder, type /hooks, trust it; again after each change)"},
		{"claude-code", "silent", true, false, false, "undone", "error: the call was executed: the hook does not hold the agent's calls here"},
		{"claude-code", "disobeys", true, true, false, "undone", "error: the call was executed, although the hook denied it (do not rely on the hook with this version)"},
		{"claude-code", "garbage", true, false, true, "called", "error: the hook was not called: the agent has asked no model: ?{{{ (start "},
		{"claude-code", "old", true, true, true, "version", "error: nothing can be promised for claude-code 2.1.294: versions before 2.1.295 ignore onFailure, and execute a call whose hook breaks (update claude to 2.1.295 or later)"},
	} {
		r := newRig(t, row.agent, row.behaves, row.stands)
		report, err := r.Run(context.Background())
		require.NoError(t, err)
		require.Equal(t, []bool{row.called, row.undone}, []bool{report.Called, report.Undone}, "%+v", row)
		require.False(t, report.Proven(r.Agent), "%+v", row)
		require.Contains(t, r.line(report, row.of), row.says)
		r.requireClean()
	}
	r := newRig(t, "claude-code", "unversioned", true)
	report, err := r.Run(context.Background())
	require.NoError(t, err)
	require.True(t, report.Proven(r.Agent))
	require.Contains(t, r.line(report, "version"), "warning: ")

	r.Program = filepath.Join(r.dir, "none")
	report, err = r.Run(context.Background())
	require.NoError(t, err)
	require.False(t, report.Proven(r.Agent))
	require.Contains(t, r.line(report, "version"), "error: claude-code is not installed, or not in PATH")
}

// An agent that does not end is ended, with what it has started in other process groups; so is one whose check is
// interrupted.
func TestCheckEndsProcesses(t *testing.T) {
	for _, interrupt := range []bool{false, true} {
		r := newRig(t, "claude-code", "hangs", true)
		r.Timeout = time.Second
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if interrupt {
			r.Timeout = time.Hour
			r.Progress = func(string) {
				if _, err := os.Stat(filepath.Join(r.dir, "child")); err == nil {
					cancel()
				}
			}
		}
		report, err := r.Run(ctx)
		if interrupt {
			require.ErrorIs(t, err, context.Canceled)
		} else {
			require.NoError(t, err)
			require.Contains(t, r.line(report, "called"), "error: the hook was not called, and the agent did not end in time: waiting for ")
		}
		require.False(t, report.Proven(r.Agent))
		b, err := os.ReadFile(filepath.Join(r.dir, "child"))
		require.NoError(t, err)
		pid, err := strconv.Atoi(string(b))
		require.NoError(t, err)
		stat, err := os.ReadFile(filepath.Join("/proc", string(b), "stat")) // a process that ended may wait for its parent
		require.True(t, syscall.Kill(pid, 0) != nil || err != nil || strings.Contains(string(stat), ") Z "), "%d still runs", pid)
		r.requireClean()
	}
}

// Each file that switches hooks off is named, from the project upwards, with its key; what cannot be read is named, too.
func TestOff(t *testing.T) {
	type files map[string]string
	for _, row := range []struct {
		agent string
		files files
		want  []string // file key
	}{
		{
			"claude-code",
			files{".claude/settings.json": `{"disableAllHooks":true}`, ".claude/settings.local.json": `{"disableAllHooks":true}`},
			[]string{"project/.claude/settings.json disableAllHooks", "project/.claude/settings.local.json disableAllHooks"},
		},
		{"claude-code", files{"../.claude/settings.json": `{"disableAllHooks":true}`}, []string{".claude/settings.json disableAllHooks"}},
		{"claude-code", files{"../home/.claude/settings.json": `{"disableAllHooks":true}`}, []string{"home/.claude/settings.json disableAllHooks"}},
		{"claude-code", files{".claude/settings.json": `{"disableAllHooks":false}`, ".claude/settings.local.json": `{"x":{"disableAllHooks":true}}`}, nil},
		{"claude-code", files{".claude/settings.json": `{"disableAllHooks":true,}`}, []string{"project/.claude/settings.json "}},
		{"claude-code", files{".claude/settings.json": `[]`}, []string{"project/.claude/settings.json "}},
		{"claude-code", files{".claude/settings.json": ` `}, nil},
		{"codex", files{".codex/config.toml": "[features]\nhooks = false\n"}, []string{"project/.codex/config.toml features.hooks"}},
		{"codex", files{".codex/config.toml": "features.codex_hooks = false\n"}, []string{"project/.codex/config.toml features.codex_hooks"}},
		{"codex", files{".codex/config.toml": "features = { hooks = true }\n", "../.codex/config.toml": "features = { hooks = false }\n"}, []string{".codex/config.toml features.hooks"}},
		{"codex", files{".codex/config.toml": "features = 7\n"}, nil},
		{"codex", files{".codex/config.toml": "[features\n"}, []string{"project/.codex/config.toml "}},
		{
			"gemini",
			files{".gemini/settings.json": `{"hooksConfig":{"enabled":false,"disabled":["other","permesso"]}}`},
			[]string{"project/.gemini/settings.json hooksConfig.enabled", "project/.gemini/settings.json hooksConfig.disabled"},
		},
		{"gemini", files{".gemini/settings.json": `{"hooksConfig":{"disabled":["/usr/bin/permesso hook gemini"]}}`}, []string{"project/.gemini/settings.json hooksConfig.disabled"}},
		{"gemini", files{".gemini/settings.json": `{"hooksConfig":{"enabled":true,"disabled":["other",7]}}`}, nil},
		{"gemini", files{".gemini/settings.json": `{"hooksConfig":null}`}, nil},
	} {
		r := newRig(t, row.agent, "", false)
		for name, text := range row.files {
			r.write(name, text)
		}
		var got []string
		for _, o := range r.off(r.Agent) {
			name, err := filepath.Rel(r.dir, o.File)
			require.NoError(t, err)
			require.Equal(t, o.Key == "", o.Error != "")
			require.Equal(t, strings.HasPrefix(name, "."), o.Above, name)
			got = append(got, name+" "+o.Key)
		}
		require.Equal(t, row.want, got, "%v", row.files)
	}
	r := newRig(t, "gemini", "", false)
	r.write(".gemini/x", "")
	require.NoError(t, syscall.Mkfifo(filepath.Join(r.Project, ".gemini/settings.json"), 0o600))
	off := r.off(r.Agent)
	require.Len(t, off, 1)
	require.Equal(t, "not a regular file", off[0].Error)
	require.Contains(t, r.line(Report{Standing: r.Standing(r.Agent)}, "off"), "(look in it for hooksConfig.enabled, hooksConfig.disabledtry)")
}

// What switches a user's hook off does not switch the system's off, except by its name in Gemini CLI.
func TestOffLines(t *testing.T) {
	claude, _ := hook.AgentNamed("claude-code")
	gemini, _ := hook.AgentNamed("gemini")
	user, managed := Stand{Scope: hook.User, Advice: "x"}, Stand{Scope: hook.Managed}
	off := Off{File: "f", Key: "k"}
	named := Off{File: "f", Key: "k", Managed: true}
	above := Off{File: "f", Key: "k", Above: true}
	for _, row := range []struct {
		a     hook.Agent
		stand Stand
		off   Off
		want  Severity
	}{{claude, user, off, Error}, {claude, managed, off, Info}, {gemini, managed, off, Info}, {gemini, managed, named, Error}, {gemini, user, named, Error}, {claude, user, above, Warning}, {claude, managed, above, Info}} {
		lines := Standing{[]Stand{row.stand}, []Off{row.off}}.Lines(row.a)
		require.Len(t, lines, 2)
		require.Equal(t, row.want, lines[1].Severity, "%+v", row)
		require.NotEmpty(t, lines[1].Hint)
		require.Equal(t, row.stand.Scope == hook.User && !row.off.Managed, lines[1].Command == InstallManaged)
	}
}

func TestTooOld(t *testing.T) {
	claude, _ := hook.AgentNamed("claude-code")
	codex, _ := hook.AgentNamed("codex")
	for version, old := range map[string]bool{"2.1.294": true, "2.1.295": false, "2.1.330": false, "2.2.0": false, "1.9.999": true, "": false, "x": false} {
		require.Equal(t, old, TooOld(claude, version) != "", version)
		require.Empty(t, TooOld(codex, version))
	}
}

// The last line of an agent that refuses to start, which has what to do at its end.
func TestLastLine(t *testing.T) {
	const refusal = "Gemini CLI is not running in a trusted directory. To proceed, either use `--skip-trust`, set the `GEMINI_CLI_TRUST_WORKSPACE=true` " +
		"environment variable, or trust this directory in interactive mode. For more details, see https://geminicli.com/docs/cli/trusted-folders/#headless-and-automated-environments"
	out := tail{[]byte("a warning\n\x1b[31m" + refusal + "\x1b[0m\n")}
	require.Equal(t, refusal, out.lastLine())
	out = tail{[]byte(strings.Repeat("x", 1000))}
	require.Len(t, []rune(out.lastLine()), 402)
}
