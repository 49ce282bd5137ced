package main

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The settings are changed once, only after they were shown, and back; a link stays one, and so does the mode.
func TestHookInstall(t *testing.T) {
	t.Parallel()
	home, dotfiles := t.TempDir(), t.TempDir()
	run := hookCommand(t, home)
	const before = "{\n  \"model\": \"opus\"\n}\n"
	real := filepath.Join(dotfiles, "claude.json")
	require.NoError(t, os.WriteFile(real, []byte(before), 0o640))
	require.NoError(t, os.Mkdir(filepath.Join(home, ".claude"), 0o700))
	file := filepath.Join(home, ".claude/settings.json")
	require.NoError(t, os.Symlink(real, file))
	read := func() string {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(b)
	}

	out, err := run("install", "claude-code")
	require.Error(t, err)
	require.Contains(t, out, "hint: --yes changes it without a question")
	requireBytes(t, before, read())
	printed, err := run("install", "claude-code", "--print")
	require.NoError(t, err)
	requireBytes(t, before, read())

	config := filepath.Join(home, ".config/permesso/permesso.toml")
	require.NoError(t, os.MkdirAll(filepath.Dir(config), 0o700))
	require.NoError(t, os.WriteFile(config, []byte("[workspaces.default]\n[workspaces.site]\n"), 0o600))
	elsewhere, err := run("install", "claude-code", "--print", "--home", "gate", "--workspace", "site")
	require.NoError(t, err)
	require.Contains(t, elsewhere, `"--workspace",
              "site",
              "--home",
              "`+home+`/gate"`, "the agent starts the hook in another folder")

	out, err = run("install", "claude-code", "--yes")
	require.NoError(t, err, out)
	require.Contains(t, out, "+             \"onFailure\": \"block\"\n")
	require.Contains(t, out, "before: "+real+".before-permesso\nnote: a project switches it off")
	require.Equal(t, printed, read())
	info, err := os.Lstat(file)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
	info, err = os.Stat(real)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())

	out, err = run("install", "claude-code", "--yes")
	require.NoError(t, err)
	require.Equal(t, real+" is already so\n", out)
	out, err = run("install", "claude-code", "--yes", "--approval-timeout", "1h")
	require.NoError(t, err)
	require.Contains(t, out, "+             \"timeout\": 3630,\n")
	out, err = run("install", "claude-code", "--yes", "--wait", "defer")
	require.NoError(t, err)
	require.Contains(t, out, "\"--wait\",\n+               \"defer\"\n")
	require.Contains(t, out, "note: start the agent by permesso hook run -- claude -p PROMPT: a call of one that is started otherwise waits as with --wait hold; a project")
	out, err = run("install", "claude-code", "--yes", "--wait", "forever")
	require.Error(t, err)
	require.Contains(t, out, `--wait: "forever" is none of hold, defer, hand-back`)
	out, err = run("uninstall", "claude-code", "--yes")
	require.NoError(t, err, out)
	requireBytes(t, before, read())

	out, err = run("install", "codex", "--yes", "--project", "--events", "pretool,permission")
	require.NoError(t, err, out)
	require.Contains(t, out, "note: Codex skips it, without a word, until you trust it")
	require.FileExists(t, filepath.Join(home, ".codex/hooks.json"))
	for _, args := range [][]string{
		{"install", "gemini", "--events", "permission"},
		{"install", "someone"},
		{"install"},
		{"install", "codex", "--user", "--project"},
		{"install", "codex", "--yes", "--wait", "defer"},
		{"install", "claude-code", "--yes", "--wait", "defer", "--events", "pretool,permission"},
		{"install", "gemini", "--yes", "--approval-timeout", "9s"},
		{"install", "gemini", "--yes", "--approval-timeout", "25d"},
		{"install", "gemini", "--yes", "--approval-timeout", "0"},
	} {
		out, err := run(args...)
		require.Error(t, err, args)
		require.Contains(t, out, "hint: ", args)
	}
}

// hookCommand runs commands of permesso hook with this home, in it.
func hookCommand(t *testing.T, home string) func(args ...string) (string, error) {
	return func(args ...string) (string, error) {
		cmd := osexec.Command(program(t, true), append([]string{"hook"}, args...)...)
		cmd.Dir, cmd.Env = home, []string{"HOME=" + home, "PATH=/usr/bin:/bin"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// What an uninstall leaves is what was there, to the byte, however often the hook was installed.
func TestHookUninstallRestores(t *testing.T) {
	t.Parallel()
	none := "none"
	for _, before := range []string{none, "", "{}", "{\"a\":1,\"hooks\":null}", "{\r\n\t\"a\": [1, 2],\r\n\t\"hooks\": {}\r\n}\r\n"} {
		home := t.TempDir()
		run := hookCommand(t, home)
		file := filepath.Join(home, ".claude/settings.json")
		require.NoError(t, os.Mkdir(filepath.Dir(file), 0o700))
		if before != none {
			require.NoError(t, os.WriteFile(file, []byte(before), 0o600))
		}
		for range 2 {
			for _, args := range [][]string{{"install", "claude-code", "--yes"}, {"install", "claude-code", "--yes", "--events", "permission"}, {"uninstall", "claude-code", "--yes"}} {
				out, err := run(args...)
				require.NoError(t, err, out)
			}
			left, err := os.ReadDir(filepath.Dir(file))
			require.NoError(t, err)
			if before == none {
				require.Empty(t, left)
				continue
			}
			require.Len(t, left, 1, "%q", before)
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, before, string(b))
		}
		out, err := run("uninstall", "claude-code", "--yes")
		require.NoError(t, err)
		require.Equal(t, file+" is already so\n", out)
	}
}

// A backup never has the hook.
// What switches the hook off is named at once.
func TestHookInstallWarns(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	run := hookCommand(t, home)
	file := filepath.Join(home, ".claude/settings.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(`{"disableAllHooks":true}`), 0o600))
	out, err := run("install", "claude-code", "--yes")
	require.NoError(t, err)
	require.Contains(t, out, "permesso: warning: "+file+" switches hooks off: disableAllHooks\nhint: remove it from the file")
}

func TestHookInstallBackup(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	run := hookCommand(t, home)
	file := filepath.Join(home, ".cursor/hooks.json")
	backup := file + ".before-permesso"
	install := func(more ...string) string {
		out, err := run(append([]string{"install", "cursor", "--yes"}, more...)...)
		require.NoError(t, err, out)
		return out
	}
	require.Contains(t, install(), "; no backup: without the hook the file is not needed\n")
	require.Contains(t, install("--wait", "hand-back"), "; no backup: without the hook the file is not needed\n")
	require.NoFileExists(t, backup)

	const others = `{"version":1,"hooks":{"stop":[{"command":"./done"}]}}`
	require.NoError(t, os.WriteFile(file, []byte(others), 0o600))
	kept := func(want string, args ...string) {
		require.Contains(t, install(args...), "; before: "+backup+"\n")
		b, err := os.ReadFile(backup)
		require.NoError(t, err)
		require.NotContains(t, string(b), "permesso")
		require.JSONEq(t, want, string(b))
	}
	kept(others)
	require.NoError(t, os.Remove(backup))
	kept(others, "--wait", "hand-back") // of the settings with the hook

	b, err := os.ReadFile(file)
	require.NoError(t, err)
	changed := strings.Replace(string(b), "./done", "./changed", 1)
	require.NoError(t, os.WriteFile(file, []byte(changed), 0o600))
	out, err := run("uninstall", "cursor", "--print")
	require.NoError(t, err)
	require.Contains(t, out, "./changed")
	kept(strings.Replace(others, "./done", "./changed", 1))

	with, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(backup, with, 0o600)) // of an earlier version
	out, err = run("uninstall", "cursor", "--yes")
	require.NoError(t, err)
	require.Contains(t, out, "changed "+file+"; before: "+backup+"\n")
	b, err = os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(b), "permesso")
}

// A link to no file stays a link, and settings that cannot be changed stay: the error says what to do.
func TestHookInstallRefuses(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	run := hookCommand(t, home)
	file := filepath.Join(home, ".gemini/settings.json")
	require.NoError(t, os.Mkdir(filepath.Dir(file), 0o700))
	require.NoError(t, os.Symlink("gone.json", file))
	out, err := run("install", "gemini", "--yes")
	require.Error(t, err)
	require.Contains(t, out, file+" is a link to gone.json: ")
	require.Contains(t, out, "hint: create that file, or remove the link\n")
	to, err := os.Readlink(file)
	require.NoError(t, err)
	require.Equal(t, "gone.json", to)

	require.NoError(t, os.WriteFile(filepath.Join(home, ".gemini/gone.json"), []byte("// mine\n{}"), 0o600))
	out, err = run("install", "gemini", "--print")
	require.Error(t, err)
	require.Contains(t, out, "gone.json: not JSON, which has neither comments nor")
	require.Contains(t, out, "hint: edit it by hand; the lines of the hook: permesso hook install gemini --project --print, in an empty folder\n")
}

// A workspace that the configuration does not have is refused; if that cannot be read, it is said.
func TestHookInstallWorkspace(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", hookConfig)
	h.serve().awaitLog(`"serving"`)
	install := func(more ...string) (string, error) {
		out, err := h.command(append([]string{"hook", "install", "claude-code", "--project", "--print"}, more...)...).CombinedOutput()
		return string(out), err
	}
	out, err := install()
	require.NoError(t, err, out)
	out, err = install("--workspace", "defaul")
	require.Error(t, err)
	require.Equal(t, "permesso: no workspace 'defaul'\nhint: did you mean 'default'?\n", out)
	remote := h.command("hook", "install", "claude-code", "--project", "--print", "--workspace", "defaul")
	remote.Env = append(remote.Env, "PERMESSO_URL=http://127.0.0.1:1")
	require.NoError(t, remote.Run(), "the hook of such an environment asks no workspace by its name")
	require.NoError(t, os.WriteFile(h.config, []byte("["), 0o600))
	out, err = install("--workspace", "site")
	require.NoError(t, err, out)
	require.Contains(t, out, "it is not known whether there is a workspace 'site': ")
}
