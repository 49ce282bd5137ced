package hook

import (
	"os"
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
		require.Equal(t, "{}\n", string(gone))
	}
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
