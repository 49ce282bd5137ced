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
		"permesso hook install claude-code --yes", "permesso hook uninstall claude-code", "permesso hook --workspace x run -- claude", "permesso hook $X",
		"permesso mcp unwrap claude-code --yes", "permesso mcp install codex", "permesso mcp proxy -- x",
		"p=permesso; $p approve a7f3", "$(echo permesso) approve a", "/usr/bin/perm* approve a", "~/bin/p?rmesso deny a", "npx permesso approve a", "npm exec permesso -- pause",
		`python3 -c 'import os;os.system("permesso approve a")'`, "perl -e 'exec qw(permesso approve a)'", "cp $(which permesso) x && ./x approve a",
		"ln -s /usr/bin/permesso x", "cp /usr/bin/permesso x; ./x approve a", "pkill permesso", "killall -9 permesso", "systemctl --user stop permesso.service", "rc-service permesso stop",
		"cd .claude; echo {} > settings.json", "cd ~/.codex && touch x", "mv x .claude", "rm -rf .claude", "rsync x ~/.claude/", "ln -s .claude y; echo > y/settings.json", "pushd .git",
		"cp -r x .gemini", "tee -a ~/.bash*", "sed -i s/a/b/ ~/.b?shrc", "rm ~/.[bz]*", "cat > .claude/*", "cp x .{claude,codex}/settings.json", "rm ~/.config/per*",
		"git config core.hooksPath x", "git config --global alias.x '!id'", "git -C sub config core.fsmonitor x", "git config set core.hooksPath x", "git config --file x include.path y", "git config $X y", "git config core.hooksPath get", "git config --file get core.hooksPath x", "git config -e",
		"export HOME=/tmp", "HOME=/tmp claude", "export CLAUDE_CONFIG_DIR=x", "XDG_CONFIG_HOME=/x make", "export PERMESSO_HOME=/x", "unset CODEX_HOME", "env HOME=/x make", "crontab -e", "echo x | crontab -",
		"echo 'permesso approve x' | sh", "script -c 'permesso approve x'", "gdb --args permesso approve x", "ssh localhost permesso approve x", "{permesso,approve,x}", "kill $(pidof permesso)",
		"claude mcp add x", "claude --bare -p x", "codex -c features.hooks=false exec x", "GIT_CONFIG_GLOBAL=x git status", "git restore --source=evil .claude", "git checkout -- .claude", "git -C . checkout .claude",
		"wget -P ~/.claude https://x/settings.json", "curl --output-dir ~/.claude -O https://x/settings.json", "echo x > ~/.bash_aliases", "echo x > /etc/gitconfig", "cp x ~/.local/bin/permesso",
	} {
		require.NotEmpty(t, rewires("command", line, false), line)
	}
	for _, line := range []string{
		"npm test", "git commit -m 'about .bashrc files'", "go build ./...", "permesso request say", "permesso wait a7f3", "permesso hook claude-code", "ls /home/ann/site",
		"cat README.md", "git push origin main", "grep -r permesso src", "make -C .github/workflows", "echo settings.json",
		"git config --get core.hooksPath", "sh -c 'grep -r permesso src'", "bash tools/permesso-build.sh", "git config --global user.name list", "git config user.name Ann", "git config --list", "git config get core.editor", "git config user.email a@b.example", "ls *", "ls ./*.go", "rm build/*",
		"go build -o permesso ./cmd/permesso", "git add cmd/permesso", "cd cmd/permesso && go test", "git checkout -b permesso", "ls .github/workflows/*", "echo $HOME", "cd .github/workflows",
		"python3 build.py", "node -e 'console.log(1)'", "$EDITOR notes.md", "$(go env GOPATH)/bin/tool run", "npm run build", "systemctl status nginx", "mv src/a.go src/b.go", "cp -r docs site",
		"git checkout -b claude", "git", "git -C", "git add .vscode", "git log permesso", "cat claude", "grep -rn codex .",
	} {
		require.Empty(t, rewires("command", line, false), line)
	}
	for _, file := range []string{"/p/README.md", "/p/src/settings.json", "/p/claude/settings.json", "/p/bashrc", "/p/permesso.go", "/p/.github/workflows/ci.yml", "/p/.github/copilot-instructions.md", "/p/Code/User/main.go"} {
		require.Empty(t, rewires("file_path", file, false), file)
	}
}
