package hook

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func line(agent string) Line {
	return Line{Program: "/opt/my tools/permesso", Args: []string{"hook", agent, "--timeout", "10m30s"}, Timeout: 630 * time.Second}
}

// What stands in the settings of each agent.
func TestAdd(t *testing.T) {
	for agent, want := range map[string]string{
		"claude-code": `{
  "hooks": {
    "PreToolUse": [
      {
        "hooks": [
          {
            "type": "command",
            "command": "/opt/my tools/permesso",
            "args": [
              "hook",
              "claude-code",
              "--timeout",
              "10m30s"
            ],
            "timeout": 630,
            "onFailure": "block"
          }
        ]
      }
    ]
  }
}
`,
		"codex": `{
  "hooks": {
    "PreToolUse": [
      {
        "hooks": [
          {
            "type": "command",
            "command": "'/opt/my tools/permesso' hook codex --timeout 10m30s",
            "timeout": 630
          }
        ]
      }
    ]
  }
}
`,
		"gemini": `{
  "hooks": {
    "BeforeTool": [
      {
        "matcher": ".*",
        "hooks": [
          {
            "name": "permesso",
            "type": "command",
            "command": "'/opt/my tools/permesso' hook gemini --timeout 10m30s",
            "timeout": 630000
          }
        ]
      }
    ]
  }
}
`,
		"copilot": `{
  "version": 1,
  "hooks": {
    "preToolUse": [
      {
        "type": "command",
        "bash": "'/opt/my tools/permesso' hook copilot --timeout 10m30s",
        "timeoutSec": 630
      }
    ]
  }
}
`,
		"vscode": `{
  "version": 1,
  "hooks": {
    "PreToolUse": [
      {
        "type": "command",
        "command": "'/opt/my tools/permesso' hook vscode --timeout 10m30s",
        "timeout": 630
      }
    ]
  }
}
`,
		"cursor": `{
  "version": 1,
  "hooks": {
    "preToolUse": [
      {
        "command": "'/opt/my tools/permesso' hook cursor --timeout 10m30s",
        "timeout": 630,
        "failClosed": true
      }
    ]
  }
}
`,
	} {
		a, ok := AgentNamed(agent)
		require.True(t, ok)
		events, err := a.Events([]string{"pretool"})
		require.NoError(t, err)
		got, err := a.Add(User, nil, line(agent), events)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		again, err := a.Add(User, got, line(agent), events)
		require.NoError(t, err)
		require.Equal(t, want, string(again), "a second time changes nothing")
		gone, err := a.Remove(User, got)
		require.NoError(t, err)
		require.Nil(t, gone, "the file is not needed any more")
	}
}

// Where each agent has its hooks.
func TestSettingsFiles(t *testing.T) {
	env := func(name string) string {
		return map[string]string{"COPILOT_HOME": "/c", "XDG_CONFIG_HOME": "/x", "CODEX_HOME": "/o", "CLAUDE_CONFIG_DIR": "/a"}[name]
	}
	none := func(string) string { return "" }
	for agent, want := range map[string][4]string{ // the user's, with the variable, the project's, the system's
		"claude-code": {"/h/.claude/settings.json", "/a/settings.json", "/p/.claude/settings.json", "/etc/claude-code/managed-settings.json"},
		"codex":       {"/h/.codex/hooks.json", "/o/hooks.json", "/p/.codex/hooks.json", "/etc/codex/requirements.toml"},
		"gemini":      {"/h/.gemini/settings.json", "/h/.gemini/settings.json", "/p/.gemini/settings.json", "/etc/gemini-cli/settings.json"},
		"copilot":     {"/h/.copilot/hooks/permesso.json", "/c/hooks/permesso.json", "/p/.github/hooks/permesso.json", "/etc/github-copilot/policy.d/permesso.json"},
		"vscode":      {"/h/.copilot/hooks/permesso.json", "/h/.copilot/hooks/permesso.json", "/p/.github/hooks/permesso.json", ""},
		"cursor":      {"/h/.cursor/hooks.json", "/h/.cursor/hooks.json", "/p/.cursor/hooks.json", "/etc/cursor/hooks.json"},
		"opencode":    {"/h/.config/opencode/plugins/permesso.js", "/x/opencode/plugins/permesso.js", "/p/.opencode/plugins/permesso.js", ""},
	} {
		a, ok := AgentNamed(agent)
		require.True(t, ok)
		for i, at := range []struct {
			scope Scope
			env   func(string) string
		}{{User, none}, {User, env}, {Project, none}, {Managed, none}} {
			file, err := a.File(at.scope, "/h", "/p", at.env)
			require.Equal(t, want[i], file, agent)
			require.Equal(t, want[i] == "", err != nil, agent)
		}
		require.NotEmpty(t, a.Advice(User), agent)
	}
}

// What others have in a file with a version stays there, and so does the hook of another agent in the same file.
func TestAddBesideOthers(t *testing.T) {
	copilot, _ := AgentNamed("copilot")
	vscode, _ := AgentNamed("vscode")
	both, err := copilot.Add(Project, nil, line("copilot"), []string{copilotTool})
	require.NoError(t, err)
	both, err = vscode.Add(Project, both, line("vscode"), []string{"PreToolUse"})
	require.NoError(t, err)
	one, err := copilot.Remove(Project, both)
	require.NoError(t, err)
	want, err := vscode.Add(Project, nil, line("vscode"), []string{"PreToolUse"})
	require.NoError(t, err)
	require.Equal(t, string(want), string(one))

	cursor, _ := AgentNamed("cursor")
	others := []byte("{\n  \"version\": 1,\n  \"hooks\": {\n    \"stop\": [\n      {\n        \"command\": \"./say-done\"\n      }\n    ]\n  }\n}\n")
	with, err := cursor.Add(User, others, line("cursor"), []string{"preToolUse", cursorShell})
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(with), `"version"`))
	without, err := cursor.Remove(User, with)
	require.NoError(t, err)
	require.Equal(t, others, without)

	opencode, _ := AgentNamed("opencode")
	_, err = opencode.Add(User, []byte("export const Other = 1\n"), line("opencode"), nil)
	require.ErrorContains(t, err, "others have written it")
	text, err := opencode.Add(User, nil, line("opencode"), nil)
	require.NoError(t, err)
	require.Contains(t, string(text), `const command = ["/opt/my tools/permesso","hook","opencode","--timeout","10m30s"]`)
	gone, err := opencode.Remove(User, text)
	require.NoError(t, err)
	require.Empty(t, gone)
}

// Settings are the same whatever their layout is, and whether our hook is in them; and those without ours stay as they are.
func TestRestores(t *testing.T) {
	a, _ := AgentNamed("cursor")
	for _, text := range []string{
		"", " \n", "{}", `{"hooks":null}`, `{"version":1}`, `{"b":1.50,"a":"\u00e9"}`, "{\r\n\t\"a\" : [ 1 ],\r\n\t\"hooks\": {\"preToolUse\": [], \"stop\": [{}]}\r\n}\r\n",
	} {
		with, err := a.Add(User, []byte(text), line("cursor"), []string{"preToolUse", cursorMCP})
		require.NoError(t, err, text)
		require.True(t, a.Restores(User, []byte(text), with), text)
		require.False(t, a.Restores(User, with, with), "it has the hook")
		same, err := a.Remove(User, []byte(text))
		require.NoError(t, err, text)
		require.Equal(t, text, string(same))
		for _, other := range []string{`{"c":1}`, `{"a":"\u00e9","b":1.50}`, `{"b":1.5,"a":"\u00e9"}`, "{"} {
			require.False(t, a.Restores(User, []byte(other), with), text)
		}
	}
	claude, _ := AgentNamed("claude-code")
	with, err := claude.Add(User, []byte(`{"version":1}`), line("claude-code"), []string{"PreToolUse"})
	require.NoError(t, err)
	kept, err := claude.Remove(User, with)
	require.NoError(t, err)
	require.JSONEq(t, `{"version":1}`, string(kept), "the version of another program's settings")
	none, err := a.Remove(User, nil)
	require.NoError(t, err)
	require.Nil(t, none)
	opencode, _ := AgentNamed("opencode")
	text, err := opencode.Add(User, nil, line("opencode"), nil)
	require.NoError(t, err)
	require.True(t, opencode.Restores(User, []byte{}, text))
	require.False(t, opencode.Restores(User, []byte("export {}\n"), text))
}

// What is wrong with settings is said.
func TestAddNamesTheCause(t *testing.T) {
	a, _ := AgentNamed("gemini")
	for text, want := range map[string]string{
		"\xef\xbb\xbf{}":              "it begins with a byte order mark: save it as UTF-8 without one",
		`{"a":1,"m-s":{"x":1,"x":2}}`: `duplicate object member name "x" within "/m-s"`,
		"// a comment\n{}":            "not JSON, which has neither comments nor a comma behind the last member: jsontext: invalid character '/'",
		`{"a":1,}`:                    "a comma behind the last member",
		"[]":                          "not a JSON object",
	} {
		_, err := a.Add(User, []byte(text), line("gemini"), []string{"BeforeTool"})
		require.ErrorContains(t, err, want)
	}
	with, err := a.Add(User, []byte(`{"hooks":null,"a":1}`), line("gemini"), []string{"BeforeTool"})
	require.NoError(t, err)
	require.Contains(t, string(with), `"BeforeTool"`)
}

// Everything else in the settings stays: order, digits, and the hooks of others, also beside ours.
func TestAddKeepsTheRest(t *testing.T) {
	a, _ := AgentNamed("claude-code")
	const others = `{
  "z": 1.50,
  "big": 12345678901234567890123,
  "hooks": {
    "PreToolUse": [
      {
        "matcher": "Bash",
        "hooks": [
          {
            "type": "command",
            "command": "/usr/bin/lint permesso hooks"
          }
        ]
      }
    ],
    "Stop": "of a later version"
  },
  "a": {
    "é": "\u00e9"
  }
}
`
	with, err := a.Add(User, []byte(others), line("claude-code"), []string{"PreToolUse", "PermissionRequest"})
	require.NoError(t, err)
	require.Contains(t, string(with), `"onFailure": "block"`)
	changed, err := a.Add(User, with, Line{Program: "/usr/bin/permesso", Args: []string{"hook", "claude-code"}, Timeout: time.Minute}, []string{"PreToolUse"})
	require.NoError(t, err)
	require.NotContains(t, string(changed), "/opt/my tools")
	require.NotContains(t, string(changed), "PermissionRequest")
	without, err := a.Remove(User, changed)
	require.NoError(t, err)
	require.Equal(t, others, string(without))
}

func TestAddRefuses(t *testing.T) {
	a, _ := AgentNamed("gemini")
	for _, text := range []string{"[]", "{", "// a comment\n{}", `{"hooks":[]}`, `{"hooks":{"BeforeTool":{}}}`, `{"a":1}x`, `{"a":1,"a":2}`} {
		_, err := a.Add(User, []byte(text), line("gemini"), []string{"BeforeTool"})
		require.Error(t, err, text)
	}
	for _, kinds := range [][]string{{}, {"permission"}, {"posttool"}} {
		_, err := a.Events(kinds)
		require.Error(t, err, kinds)
	}
	_, err := a.File(Managed, "/home/ann", "/p", os.Getenv)
	require.NoError(t, err)
	c, _ := AgentNamed("codex")
	file, err := c.File(User, "/home/ann", "/p", func(name string) string { return map[string]string{"CODEX_HOME": "/x"}[name] })
	require.NoError(t, err)
	require.Equal(t, "/x/hooks.json", file)

	managed, err := c.Add(Managed, nil, line("codex"), []string{"PreToolUse"})
	require.NoError(t, err)
	require.Contains(t, string(managed), "[[hooks.PreToolUse.hooks]]\ntype = \"command\"\ncommand = \"'/opt/my tools/permesso' hook codex --timeout 10m30s\"\ntimeout = 630\n")
	again, err := c.Add(Managed, managed, line("codex"), []string{"PreToolUse"})
	require.NoError(t, err)
	require.Equal(t, managed, again)
	gone, err := c.Remove(Managed, managed)
	require.NoError(t, err)
	require.Empty(t, gone)
	theirs := []byte("[features]\nx = true\n")
	_, err = c.Add(Managed, theirs, line("codex"), []string{"PreToolUse"})
	require.ErrorContains(t, err, "add these by hand:\n# Requirements of Codex")
	kept, err := c.Remove(Managed, theirs)
	require.NoError(t, err)
	require.Equal(t, theirs, kept)
}
