package servers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/agentconf"
)

var ours = Entry{
	Name: "permesso", Program: "/opt/my tools/permesso", Args: []string{"mcp", "--hold", "9m50s"}, Timeout: 10 * time.Minute, Variables: []string{"PERMESSO_URL"},
}

func named(t *testing.T, name string) Agent {
	t.Helper()
	a, ok := AgentNamed(name)
	require.True(t, ok)
	return a
}

func requireBytes(t *testing.T, want string, got []byte) {
	t.Helper()
	require.Equal(t, want, string(got))
}

// What stands in the settings of each agent.
func TestAdd(t *testing.T) {
	for agent, want := range map[string]string{
		"claude-code": `{
  "mcpServers": {
    "permesso": {
      "type": "stdio",
      "command": "/opt/my tools/permesso",
      "args": ["mcp", "--hold", "9m50s"],
      "timeout": 600000
    }
  }
}
`,
		"codex": `[mcp_servers.permesso]
command = "/opt/my tools/permesso"
args = ["mcp", "--hold", "9m50s"]
tool_timeout_sec = 600
env_vars = ["PERMESSO_URL"]
default_tools_approval_mode = "approve"
`,
		"gemini": `{
  "mcpServers": {
    "permesso": {
      "command": "/opt/my tools/permesso",
      "args": ["mcp", "--hold", "9m50s"],
      "timeout": 600000,
      "trust": true
    }
  }
}
`,
		"cursor": `{
  "mcpServers": {
    "permesso": {
      "type": "stdio",
      "command": "/opt/my tools/permesso",
      "args": ["mcp", "--hold", "9m50s"]
    }
  }
}
`,
		"vscode": `{
  "servers": {
    "permesso": {
      "type": "stdio",
      "command": "/opt/my tools/permesso",
      "args": ["mcp", "--hold", "9m50s"]
    }
  }
}
`,
		"opencode": `{
  "mcp": {
    "permesso": {
      "type": "local",
      "command": ["/opt/my tools/permesso", "mcp", "--hold", "9m50s"],
      "timeout": 600000
    }
  }
}
`,
	} {
		a := named(t, agent)
		got, err := a.Add(nil, ours)
		require.NoError(t, err, agent)
		require.Equal(t, want, string(got))
		again, err := a.Add(got, ours)
		require.NoError(t, err)
		require.Equal(t, want, string(again), "a second time changes nothing")
		other := ours
		other.Name, other.Args = "gate", []string{"mcp"}
		moved, err := a.Add(got, other)
		require.NoError(t, err)
		require.NotContains(t, string(moved), "9m50s")
		gone, err := a.Remove(moved)
		require.NoError(t, err)
		require.Nil(t, gone, "the file is not needed any more")
		require.NotEmpty(t, a.Advice())
	}
}

// Where each agent has its servers.
func TestFiles(t *testing.T) {
	env := func(name string) string {
		return map[string]string{"XDG_CONFIG_HOME": "/x", "CODEX_HOME": "/o", "CLAUDE_CONFIG_DIR": "/a"}[name]
	}
	for agent, want := range map[string][3]string{ // the user's, with the variable, the project's
		"claude-code": {"/h/.claude.json", "/a/.claude.json", "/p/.mcp.json"},
		"codex":       {"/h/.codex/config.toml", "/o/config.toml", "/p/.codex/config.toml"},
		"gemini":      {"/h/.gemini/settings.json", "/h/.gemini/settings.json", "/p/.gemini/settings.json"},
		"cursor":      {"/h/.cursor/mcp.json", "/h/.cursor/mcp.json", "/p/.cursor/mcp.json"},
		"opencode":    {"/h/.config/opencode/opencode.json", "/x/opencode/opencode.json", "/p/opencode.json"},
	} {
		a := named(t, agent)
		none := func(string) string { return "" }
		got := [3]string{a.Files(agentconf.User, "/h", "/p", none)[0], a.Files(agentconf.User, "/h", "/p", env)[0], a.Files(agentconf.Project, "/h", "/p", env)[0]}
		require.Equal(t, want, got, agent)
	}
	require.Equal(t, []string{"/p/.vscode/mcp.json"}, named(t, "vscode").Files(agentconf.Project, "/h", "/p", env))
	for system, want := range map[string]string{
		"linux": "/h/.config/Code/User/mcp.json", "darwin": "/h/Library/Application Support/Code/User/mcp.json", "windows": "/h/AppData/Roaming/Code/User/mcp.json",
	} {
		require.Equal(t, want, codeUser(system).Path(agentconf.User, "/h", "/p", func(string) string { return "" }))
	}
	require.Len(t, named(t, "opencode").Files(agentconf.Project, "/h", "/p", env), 4)
}

// What others have in a file stays there, byte for byte, and is there after a removal.
func TestAddKeepsTheRest(t *testing.T) {
	for _, text := range []string{
		"", " \n", "{}", "{ }", "{\n}", "{\r\n}\r\n", `{"mcpServers":{}}`, `{"mcpServers": {"a": {"command": "x"}}}`, "// mine\n{}",
		"\xef\xbb\xbf{\n\t\"a\": 1.50\n}", "{\n  \"a\": 1, // one\n  /* two */\n}\n",
		"{\r\n\t\"z\": [1, 2],\r\n\t\"mcpServers\": {\r\n\t\t// files\r\n\t\t\"fs\": {\"command\": \"x\"}, // last\r\n\t},\r\n}\r\n",
		"{\n    \"mcpServers\": {\n        \"b\": {\n            \"command\": \"\\u0078\"\n        }\n    },\n    \"n\": 12345678901234567890123\n}",
		"{\n  \"mcpServers\": { /* none yet */ }\n}",
	} {
		a := named(t, "cursor")
		with, err := a.Add([]byte(text), ours)
		require.NoError(t, err, text)
		require.Contains(t, string(with), `"permesso"`)
		for _, line := range strings.FieldsFunc(strings.NewReplacer("{", "\n", "}", "\n", ",", "\n").Replace(text), func(r rune) bool { return r == '\n' }) {
			require.Contains(t, string(with), strings.TrimSpace(line), "nothing else is changed")
		}
		require.True(t, a.Restores([]byte(text), with), text)
		require.False(t, a.Restores(with, with), "it has the server")
		without, err := a.Remove(with)
		require.NoError(t, err, text)
		if strings.Contains(text, "\"a\"") || strings.Contains(text, "\"b\"") || strings.Contains(text, "\"z\"") {
			require.Equal(t, text, string(without))
		}
		same, err := a.Remove([]byte(text))
		require.NoError(t, err)
		require.Equal(t, text, string(same))
		again, err := a.Add(with, ours)
		require.NoError(t, err)
		require.Equal(t, string(with), string(again))
	}
	codex := named(t, "codex")
	for _, text := range []string{
		"model = \"gpt-5\"", "model = \"gpt-5\"\n", "# mine\r\n[mcp_servers.fs]\r\ncommand = 'x'\r\n", "mcp_servers.fs.command = \"x\" # dotted\n",
		"[mcp_servers]\n[mcp_servers.\"a.b\"]\nurl = \"https://example.org/mcp\"\n\n\n", "[[x]]\ny = 1\n[[x]]\ny = 2\n",
	} {
		with, err := codex.Add([]byte(text), ours)
		require.NoError(t, err, text)
		require.True(t, strings.HasPrefix(string(with), text))
		without, err := codex.Remove(with)
		require.NoError(t, err)
		require.Equal(t, strings.TrimRight(text, "\r\n"), strings.TrimRight(string(without), "\r\n"))
		require.True(t, codex.Restores([]byte(text), with), text)
		more := slices.Concat(with, []byte("[mcp_servers.permesso.env]\nA = \"b\"\n\n[projects.\"/x\"]\ntrust_level = \"trusted\"\n"))
		without, err = codex.Remove(more)
		require.NoError(t, err)
		require.NotContains(t, string(without), "permesso")
		require.True(t, strings.HasSuffix(string(without), "\n\n[projects.\"/x\"]\ntrust_level = \"trusted\"\n"), "%s", without)
		require.False(t, codex.Restores([]byte(text), more))
	}
}

// Ours may have been moved, and written anew in another layout: it is ours still.
func TestAddFindsOurs(t *testing.T) {
	a := named(t, "claude-code")
	const other = `{"mcpServers":{"permesso":{"type":"stdio","command":"/opt/my tools/permesso","args":["mcp",  "--hold","9m50s"],"timeout":600000},"b":{"command":"b"}}}`
	same, err := a.Add([]byte(other), ours)
	require.NoError(t, err)
	requireBytes(t, other, same)
	without, err := a.Remove([]byte(other))
	require.NoError(t, err)
	requireBytes(t, `{"mcpServers":{"b":{"command":"b"}}}`, without)

	opencode := named(t, "opencode")
	second, err := opencode.Add([]byte(`{"mcp": {"timeout": 5, "servers": {"a": {"type": "local", "command": ["a"]}}}}`), ours)
	require.NoError(t, err)
	requireBytes(t, `{"mcp": {"timeout": 5, "servers": {"a": {"type": "local", "command": ["a"]}, "permesso": {"type": "local", "command": ["/opt/my tools/permesso", "mcp", "--hold", "9m50s"], "timeout": 600000}}}}`, second)
}

// What is wrong with settings is said, and nothing is written.
func TestRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"[]":                            "it is not an object",
		"{":                             "not JSON",
		`{"a":1}x`:                      "there is more behind the object",
		`{"a":1}/* `:                    "there is more behind the object",
		"// a\r{\"a\":1}":               "save it with plain line ends",
		"/* a\u2028*/{}":                "save it with plain line ends",
		`{"a":1,"a":2}`:                 `duplicate object member name "a"`,
		`{"mcpServers":{"x":{},"x":1}}`: `duplicate object member name "x"`,
		`{"mcpServers":[]}`:             "what should hold servers is not an object",
		`{"mcpServers":{"permesso":{"command":"x"}}}`:                         "another server is named permesso",
		"{\"a\":" + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "}": "nested",
	} {
		_, err := named(t, "gemini").Add([]byte(text), ours)
		require.ErrorContains(t, err, want, text)
	}
	for text, want := range map[string]string{
		"a = 1\na = 2\n": "not TOML", "mcp_servers = { x = { command = \"x\" } }\n": "mcp_servers is written on one line",
	} {
		_, err := named(t, "codex").Add([]byte(text), ours)
		require.ErrorContains(t, err, want, text)
	}
	_, err := named(t, "codex").Remove([]byte("mcp_servers = { permesso = { command = \"permesso\", args = [\"mcp\"] } }\n"))
	require.ErrorContains(t, err, "take it out by hand")
	for _, name := range []string{"", "a b", "a.b", strings.Repeat("a", 65)} {
		e := ours
		e.Name = name
		_, err := named(t, "codex").Add(nil, e)
		require.ErrorContains(t, err, "no name for a server", name)
	}
}
