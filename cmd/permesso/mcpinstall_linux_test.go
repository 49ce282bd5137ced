package main

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mcpCommand runs commands of permesso mcp with this home, in it.
func mcpCommand(t *testing.T, home string) func(args ...string) (string, error) {
	return func(args ...string) (string, error) {
		cmd := osexec.Command(program(t, true), append([]string{"mcp"}, args...)...)
		cmd.Dir, cmd.Env = home, []string{"HOME=" + home, "PATH=/usr/bin:/bin"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// settingsFile writes settings, with the folders around them.
func settingsFile(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(text), mode))
	require.NoError(t, os.Chmod(file, mode))
}

const threeServers = "{\r\n\t\"mcpServers\": {\r\n\t\t\"fs\": {\"command\": \"npx\", \"args\": [\"-y\", \"fs\"], \"env\": {\"TOKEN\": \"s3\"}, \"cwd\": \"/srv\"},\r\n" +
	"\t\t\"off\": {\"command\": \"off\", \"disabled\": true},\r\n\t\t\"far\": {\"url\": \"https://example.org/mcp\", \"headers\": {\"A\": \"b\"}}\r\n\t}\r\n}"

// The gateway is put before the servers only after that was shown, and taken away to the byte; a link stays one, and so does
// the mode.
func TestMCPWrap(t *testing.T) {
	t.Parallel()
	home, dotfiles := t.TempDir(), t.TempDir()
	run := mcpCommand(t, home)
	real := filepath.Join(dotfiles, "mcp.json")
	settingsFile(t, real, threeServers, 0o600)
	file := filepath.Join(home, ".cursor/mcp.json")
	require.NoError(t, os.Mkdir(filepath.Dir(file), 0o700))
	require.NoError(t, os.Symlink(real, file))
	read := func() string {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(b)
	}

	out, err := run("wrap", "cursor")
	require.Error(t, err)
	require.Contains(t, out, "hint: --yes changes it without a question")
	requireBytes(t, threeServers, read())
	printed, err := run("wrap", "cursor", "--print")
	require.NoError(t, err)
	requireBytes(t, threeServers, read())

	out, err = run("wrap", "cursor", "--yes")
	require.NoError(t, err, out)
	require.Contains(t, out, "permesso: warning: calls to the server far are not gated: it has headers: the gateway would not have what is there\n")
	require.Contains(t, out, "before: "+real+".before-permesso-wrap\nnote: written from the documents of Cursor")
	wrapped := read()
	require.True(t, strings.HasSuffix(printed, wrapped))
	require.Contains(t, wrapped, `"args": ["mcp", "proxy", "--server", "fs", "--env", "TOKEN", "--name", "cursor", "--", "npx","-y", "fs"], "env": {"TOKEN": "s3"}, "cwd": "/srv"}`)
	require.Contains(t, wrapped, `"args": [ "mcp", "proxy", "--server", "off", "--name", "cursor", "--", "off"], "disabled": true}`)
	for _, name := range []string{real, real + ".before-permesso-wrap"} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	out, err = run("wrap", "cursor", "--yes")
	require.NoError(t, err)
	require.Contains(t, out, real+" is already so\n")

	// Our own server may come meanwhile.
	out, err = run("install", "cursor", "--yes")
	require.NoError(t, err, out)
	out, err = run("unwrap", "cursor", "--yes")
	require.NoError(t, err, out)
	require.NotContains(t, read(), "proxy")
	out, err = run("uninstall", "cursor", "--yes")
	require.NoError(t, err, out)
	requireBytes(t, threeServers, read())
	info, err := os.Lstat(file)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
	left, err := os.ReadDir(dotfiles)
	require.NoError(t, err)
	require.Len(t, left, 1, "no backup is left")
	out, err = run("unwrap", "cursor", "--yes")
	require.NoError(t, err)
	require.Equal(t, real+" is already so\n", out)
}

// Settings that were changed since are shown, and left as they are.
func TestMCPUnwrapRefuses(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	run := mcpCommand(t, home)
	file := filepath.Join(home, ".codex/config.toml")
	settingsFile(t, file, "[mcp_servers.fs]\ncommand = 'npx' # mine\n", 0o644)
	out, err := run("wrap", "codex", "--yes")
	require.NoError(t, err, out)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	changed := "model = \"gpt-5\"\n" + string(b)
	settingsFile(t, file, changed, 0o644)
	out, err = run("unwrap", "codex", "--yes")
	require.Error(t, err)
	require.Contains(t, out, "+ model = \"gpt-5\"\n")
	require.Contains(t, out, file+" was changed since the gateway was put there (- before, + now)\nhint: permesso mcp unwrap --keep-changes takes only the gateway away\n")
	b, err = os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, changed, string(b))
	out, err = run("unwrap", "codex", "--yes", "--keep-changes")
	require.NoError(t, err, out)
	b, err = os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "model = \"gpt-5\"\n[mcp_servers.fs]\ncommand = 'npx' # mine\n", string(b))

	out, err = run("wrap", "codex", "--yes")
	require.NoError(t, err, out)
	require.NoError(t, os.Remove(file+".before-permesso-wrap"))
	out, err = run("unwrap", "codex", "--yes")
	require.Error(t, err)
	require.Contains(t, out, "it is not known how "+file+" was before")

	settingsFile(t, file, "[mcp_servers.fs\n", 0o644)
	for _, command := range []string{"wrap", "unwrap", "install", "uninstall"} {
		out, err := run(command, "codex", "--yes")
		require.Error(t, err)
		require.Contains(t, out, file+": not TOML: ")
		require.Contains(t, out, "hint: ")
	}
}

// Servers elsewhere are named: those of the other scope, and of a second file.
func TestMCPWrapNamesOthers(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	run := mcpCommand(t, home)
	settingsFile(t, filepath.Join(home, ".config/opencode/opencode.jsonc"), `{"mcp": {"b": {"type": "local", "command": ["b"]}}} // mine`, 0o644)
	settingsFile(t, filepath.Join(home, "opencode.json"), `{"mcp": {"a": {"type": "local", "command": ["a"]}}}`, 0o644)
	out, err := run("wrap", "opencode", "--yes")
	require.NoError(t, err, out)
	require.Contains(t, out, "warning: "+home+"/opencode.json has servers that are not gated: a\n")
	require.Contains(t, out, "changed "+home+"/.config/opencode/opencode.jsonc; before: ")
	out, err = run("wrap", "opencode", "--yes", "--project")
	require.NoError(t, err, out)
	require.NotContains(t, out, "not gated")
	for _, args := range [][]string{{"unwrap", "opencode", "--yes"}, {"unwrap", "opencode", "--yes", "--project"}} {
		out, err := run(args...)
		require.NoError(t, err, out)
	}
	b, err := os.ReadFile(filepath.Join(home, ".config/opencode/opencode.jsonc"))
	require.NoError(t, err)
	requireBytes(t, `{"mcp": {"b": {"type": "local", "command": ["b"]}}} // mine`, string(b))
}

// Our server is put in and taken out to the byte, however often; a new file is for this user alone.
func TestMCPInstall(t *testing.T) {
	t.Parallel()
	const none = "none"
	for _, before := range []string{none, "", "{}", "{ }", "{\"mcpServers\": {}}", threeServers, "\xef\xbb\xbf{\n  // mine\n  \"a\": 1,\n}\n"} {
		home := t.TempDir()
		run := mcpCommand(t, home)
		file := filepath.Join(home, ".claude.json")
		if before != none {
			settingsFile(t, file, before, 0o640)
		}
		for range 2 {
			for _, args := range [][]string{{"install", "claude-code", "--yes"}, {"install", "claude-code", "--yes", "--timeout", "1h", "--name", "gate"}} {
				out, err := run(args...)
				require.NoError(t, err, out)
			}
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, map[bool]os.FileMode{true: 0o600, false: 0o640}[before == none], info.Mode().Perm())
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Contains(t, string(b), `"--hold"`)
			require.Equal(t, 1, strings.Count(string(b), `"--hold"`))
			require.Contains(t, string(b), `3600000`)
			out, err := run("uninstall", "claude-code", "--yes")
			require.NoError(t, err, out)
			left, err := os.ReadDir(home)
			require.NoError(t, err)
			if before == none {
				require.Empty(t, left)
				continue
			}
			require.Len(t, left, 1, "%q", before)
			b, err = os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, before, string(b))
		}
	}

	home := t.TempDir()
	run := mcpCommand(t, home)
	config := filepath.Join(home, ".config/permesso/permesso.toml")
	settingsFile(t, config, "[workspaces.default]\n[workspaces.site]\n", 0o600)
	out, err := run("install", "vscode", "--project", "--print", "--home", "gate", "--workspace", "site")
	require.NoError(t, err, out)
	require.Contains(t, out, `"args": ["mcp", "--name", "vscode", "--workspace", "site", "--home", "`+home+`/gate"]`, "the agent starts the server in another folder")
	for _, args := range [][]string{
		{"install", "someone"},
		{"wrap", "copilot"},
		{"install"},
		{"install", "codex", "--user", "--project"},
		{"install", "codex", "--yes", "--workspace", "sit"},
		{"install", "codex", "--yes", "--name", "a.b"},
		{"install", "cursor", "--yes", "--timeout", "1m"},
		{"install", "gemini", "--yes", "--timeout", "19s"},
		{"install", "gemini", "--yes", "--timeout", "25d"},
	} {
		out, err := run(args...)
		require.Error(t, err, args)
		require.Contains(t, out, "hint: ", args)
	}
}

// Claude Code keeps its memory in the file with the servers, and writes it at each start: only the servers count as changed.
func TestMCPUnwrapMemory(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	run := mcpCommand(t, home)
	file := filepath.Join(home, ".claude.json")
	const before = `{"numStartups": 1, "mcpServers": {"a": {"command": "a"}}, "projects": {"/p": {"mcpServers": {}}}}`
	for _, change := range []struct {
		from, to string
		same     bool
	}{{`"numStartups": 1`, `"numStartups": 2`, true}, {`"mcpServers": {}`, `"mcpServers": {"b": {"command": "b"}}`, false}} {
		settingsFile(t, file, before, 0o600)
		out, err := run("wrap", "claude-code", "--yes")
		require.NoError(t, err, out)
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		settingsFile(t, file, strings.Replace(string(b), change.from, change.to, 1), 0o600)
		out, err = run("unwrap", "claude-code", "--yes")
		require.Equal(t, change.same, err == nil, out)
		if !change.same {
			require.Contains(t, out, "was changed since the gateway was put there")
			continue
		}
		b, err = os.ReadFile(file)
		require.NoError(t, err)
		requireBytes(t, strings.Replace(before, change.from, change.to, 1), string(b))
		require.NoFileExists(t, file+".before-permesso-wrap")
	}
}
