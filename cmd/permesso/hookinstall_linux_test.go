package main

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The settings are changed once, only after they were shown, and back; a link stays one, and so does the mode.
func TestHookInstall(t *testing.T) {
	t.Parallel()
	home, dotfiles := t.TempDir(), t.TempDir()
	run := func(args ...string) (string, error) {
		cmd := osexec.Command(program(t, true), append([]string{"hook"}, args...)...)
		cmd.Dir, cmd.Env = home, []string{"HOME=" + home, "PATH=/usr/bin:/bin"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
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
		{"uninstall", "codex"},
	} {
		out, err := run(args...)
		require.Error(t, err, args)
		require.Contains(t, out, "hint: ", args)
	}
}
