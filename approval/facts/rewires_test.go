package facts

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// What changes who is asked is found, however it is written; everyday work is not.
func TestRewires(t *testing.T) {
	args := map[string]approval.Argument{"command": {Type: TypeCommand}, "file_path": {Type: TypePath}, "content": {Type: TypeText}}
	rewires := func(name, value string, reads bool) string {
		b, err := json.Marshal(map[string]string{name: value})
		require.NoError(t, err)
		return Rewires(args, b, reads, []string{"/srv/gate"})
	}
	for _, file := range []string{
		"/home/ann/.claude/settings.json", ".claude/settings.local.json", "~/.codex/config.toml", "a/../.codex/hooks.json", ".gemini/settings.json",
		".cursor/hooks.json", ".github/hooks/pre.json", "/p/.mcp.json", "/home/ann/.bashrc", ".zshenv", "/home/ann/.profile", "/p/.git/hooks/pre-commit",
		"/p/.git/config", "/home/ann/.config/permesso/permesso.toml", "/home/ann/.local/state/permesso/keys/mac.key", "/etc/permesso/permesso.toml",
		"/run/permesso/permesso.sock", "/etc/claude-code/managed-settings.json", ".CLAUDE/Settings.json", "/home/ann/.config/fish/config.fish",
		"/home/ann/.copilot/hooks/permesso.json", ".github/copilot/settings.json", "/etc/github-copilot/policy.d/permesso.json", ".cursor/hooks/ask.sh",
		"/etc/cursor/hooks.json", "/home/ann/.config/Code/User/settings.json", "/home/ann/.config/opencode/plugins/permesso.js", ".opencode/plugins/permesso.js",
	} {
		require.NotEmpty(t, rewires("file_path", file, false), file)
		require.Empty(t, rewires("file_path", file, true), "it is only read")
		require.Empty(t, rewires("content", file, false), "a text names it")
		require.NotEmpty(t, rewires("undeclared", file, false), file)
		for _, line := range []string{"echo x >> " + file, "tee " + file, "cp x '" + file + "'", "sed -i s/a/b/ " + file, "dd of=" + file, "sh -c 'echo x > " + file + "'", "true && rm " + file, "X=" + file + " make"} {
			require.NotEmpty(t, rewires("command", line, false), line)
		}
	}
	require.Equal(t, "/srv/gate/keys/mac", rewires("file_path", "/srv/gate/keys/mac", true), "also read")
	require.NotEmpty(t, rewires("command", "ls /srv/x/../gate", false))
	require.Empty(t, rewires("command", "ls /srv/gates", false))
	for _, line := range []string{
		"permesso approve a7f3", "/usr/local/bin/permesso deny a7f3", "sudo permesso config edit", "env A=b permesso pause", "permesso", "permesso $X", "PERMESSO grants",
		"sh -c 'permesso approve a'", "echo a | xargs permesso approve", "permesso --home x request y", "( permesso resume )", "echo $(permesso approve x)", "x=.bashrc; echo a > ~/$x",
	} {
		require.NotEmpty(t, rewires("command", line, false), line)
	}
	for _, line := range []string{
		"npm test", "git commit -m 'about .bashrc files'", "go build ./...", "permesso request say", "permesso wait a7f3", "permesso hook claude-code", "ls /home/ann/site",
		"cat README.md", "git push origin main", "grep -r permesso src", "make -C .github/workflows", "echo settings.json",
	} {
		require.Empty(t, rewires("command", line, false), line)
	}
	for _, file := range []string{"/p/README.md", "/p/src/settings.json", "/p/claude/settings.json", "/p/bashrc", "/p/permesso.go", "/p/.github/workflows/ci.yml", "/p/.github/copilot-instructions.md", "/p/Code/User/main.go"} {
		require.Empty(t, rewires("file_path", file, false), file)
	}
}
