package hook

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The variable of a check makes the hook deny, whatever it names, and writes only in the folder of a check.
func TestCheckOnlyDenies(t *testing.T) {
	made, err := os.MkdirTemp(t.TempDir(), CheckFolder)
	require.NoError(t, err)
	other, open := t.TempDir(), filepath.Join(t.TempDir(), CheckFolder+"open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o755))
	link := filepath.Join(t.TempDir(), CheckFolder+"link")
	require.NoError(t, os.Symlink(other, link))
	file := filepath.Join(other, CheckFolder+"file")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	const event = `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"touch x"}}`
	for _, wait := range []Wait{"", Hold, Defer, HandBack, "else"} {
		for dir, recorded := range map[string]bool{made: true, other: false, open: false, link: false, file: false, "/": false, ".": false, made + "-none": false} {
			if runtime.GOOS == "windows" && dir == open {
				continue
			}
			a, _ := AgentNamed("claude-code")
			got := Hook{Agent: a, Check: dir, Wait: wait}.Run(context.Background(), strings.NewReader(event)) // without a gate to ask
			require.Equal(t, Deny, got.Exit, dir)
			require.Empty(t, got.Out)
			require.Contains(t, got.Reason, Checking+" is set")
			require.Equal(t, !recorded, strings.Contains(got.Reason, "cannot be recorded"), got.Reason)
			call, ok := Recorded(dir)
			require.Equal(t, recorded, ok, dir)
			if recorded {
				require.Equal(t, "PreToolUse Bash", call)
			}
		}
	}
	entries, err := os.ReadDir(other)
	require.NoError(t, err)
	require.Len(t, entries, 1)

	a, _ := AgentNamed("claude-code")
	require.Equal(t, Deny, Hook{Agent: a, Check: made}.Run(context.Background(), strings.NewReader("{")).Exit)
}

func TestStands(t *testing.T) {
	for _, name := range []string{"claude-code", "codex", "gemini"} {
		a, _ := AgentNamed(name)
		events, err := a.Events([]string{"pretool"})
		require.NoError(t, err)
		for _, scope := range []Scope{User, Managed} {
			text, err := a.Add(scope, nil, line(name), events)
			require.NoError(t, err)
			require.Equal(t, events, a.Stands(scope, text), "%s %s", name, scope)
			for _, other := range []string{"claude-code", "codex", "gemini"} {
				b, _ := AgentNamed(other)
				if other != name && scope == User {
					require.Empty(t, b.Stands(scope, text))
				}
			}
		}
		for _, text := range []string{"", "{", "[]", `{"hooks":[]}`, `{"hooks":{"PreToolUse":"x"}}`, `{"hooks":{"PreToolUse":[{"hooks":[{"command":"echo permesso hook"}]}]}}`} {
			require.Empty(t, a.Stands(User, []byte(text)), text)
		}
	}
	codex, _ := AgentNamed("codex")
	byHand := "[features]\nx = true\n[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ncommand = \"other\"\n[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ncommand = '/usr/bin/permesso hook codex'\n"
	require.Equal(t, []string{"PreToolUse"}, codex.Stands(Managed, []byte(byHand)))
	require.Empty(t, codex.Stands(Managed, []byte("command = \"permesso hook codex x\"\n[hooks]\n")))
	a, _ := AgentNamed("claude-code")
	beside := `{"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[{"command":"lint"},{"command":"/usr/bin/permesso hook claude-code"}]}]}}`
	require.Equal(t, []string{"PreToolUse"}, a.Stands(User, []byte(beside)))
}
