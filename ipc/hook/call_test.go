package hook

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

func callOf(t *testing.T, agent, tool, input string, more ...string) (Agent, Call) {
	t.Helper()
	a, ok := AgentNamed(agent)
	require.True(t, ok)
	event := `{"session_id":"s","cwd":"/home/ann/site","hook_event_name":"PreToolUse","tool_name":"` + tool + `","tool_input":` + input + strings.Join(more, "") + `}`
	if agent == "gemini" {
		event = strings.Replace(event, "PreToolUse", "BeforeTool", 1)
	}
	a, c, err := a.read([]byte(event))
	require.NoError(t, err)
	return a, c
}

// What the hook adds says where a call works, whatever the agent calls it.
func TestAddedArguments(t *testing.T) {
	for _, row := range []struct{ why, agent, tool, input, want, editable string }{
		{"a command has its folder", "claude-code", "Bash", `{"command":"ls"}`, `{"command":"ls","cwd":"/home/ann/site"}`, "command"},
		{"", "codex", "Bash", `{"command":"ls"}`, `{"command":"ls","cwd":"/home/ann/site"}`, "command"},
		{"or another one", "gemini", "run_shell_command", `{"command":"ls","dir_path":"sub"}`, `{"command":"ls","dir_path":"sub","cwd":"/home/ann/site/sub"}`, "command"},
		{"", "gemini", "run_shell_command", `{"command":"ls","dir_path":"/etc"}`, `{"command":"ls","dir_path":"/etc","cwd":"/etc"}`, "command"},
		{"a command that is no text is not edited", "codex", "Bash", `{"command":["ls"]}`, `{"command":["ls"],"cwd":"/home/ann/site"}`, ""},
		{"a file is absolute, and not cleaned", "claude-code", "Read", `{"file_path":"../x"}`, `{"file_path":"../x","files":"/home/ann/site/../x"}`, ""},
		{"", "gemini", "write_file", `{"file_path":"a.txt","content":"x"}`, `{"file_path":"a.txt","content":"x","files":"/home/ann/site/a.txt"}`, ""},
		{"a search without a folder is in that of the call", "claude-code", "Grep", `{"pattern":"x"}`, `{"pattern":"x","files":"/home/ann/site"}`, ""},
		{"", "claude-code", "Grep", `{"pattern":"x","path":null}`, `{"pattern":"x","path":null,"files":"/home/ann/site"}`, ""},
		{"a pattern that leads out", "claude-code", "Glob", `{"pattern":"/etc/**/*.pem"}`, `{"pattern":"/etc/**/*.pem","files":["/home/ann/site","/etc/**/*.pem"]}`, ""},
		{"", "claude-code", "Glob", `{"pattern":"src/*/../../../x"}`, `{"pattern":"src/*/../../../x","files":["/home/ann/site","/home/ann/site/src/*/../../../x"]}`, ""},
		{"", "claude-code", "Glob", `{"pattern":"~/*.pem"}`, `{"pattern":"~/*.pem","files":["/home/ann/site","~/*.pem"]}`, ""},
		{"and one that does not", "claude-code", "Glob", `{"pattern":"**/*.go","path":"/home/ann/site/src"}`, `{"pattern":"**/*.go","path":"/home/ann/site/src","files":["/home/ann/site/src","/home/ann/site/**/*.go"]}`, ""},
		{"one with braces is each of its patterns", "claude-code", "Glob", `{"pattern":"{/etc,.}/*"}`, `{"pattern":"{/etc,.}/*","files":["/home/ann/site","/etc/*","/home/ann/site/./*"]}`, ""},
		{"", "claude-code", "Grep", `{"pattern":"x","glob":".{,.}/{x,{y,z}}"}`, `{"pattern":"x","glob":".{,.}/{x,{y,z}}","files":["/home/ann/site","/home/ann/site/./x","/home/ann/site/./y","/home/ann/site/./z","/home/ann/site/../x","/home/ann/site/../y","/home/ann/site/../z"]}`, ""},
		{"braces that are none", "claude-code", "Glob", `{"pattern":"}a{b{c,/d}"}`, `{"pattern":"}a{b{c,/d}","files":["/home/ann/site","/home/ann/site/}a{bc","/home/ann/site/}a{b/d"]}`, ""},
		{"a search that names a file", "claude-code", "Grep", `{"pattern":"x","glob":".env"}`, `{"pattern":"x","glob":".env","files":["/home/ann/site","/home/ann/site/.env"]}`, ""},
		{"many", "gemini", "read_many_files", `{"include":["src/**","/etc/passwd"]}`, `{"include":["src/**","/etc/passwd"],"files":["/home/ann/site/src/**","/etc/passwd"]}`, ""},
		{
			"a patch", "codex", "apply_patch", `{"command":"*** Begin Patch\n*** Update File: a.go\n*** Move to: /etc/b.go\n@@\n-x\n+*** Add File: no\n *** Delete File: c\n*** End Patch"}`,
			`{"command":"*** Begin Patch\n*** Update File: a.go\n*** Move to: /etc/b.go\n@@\n-x\n+*** Add File: no\n *** Delete File: c\n*** End Patch","files":["/home/ann/site/a.go","/etc/b.go","/home/ann/site/c"]}`, "",
		},
		{"an address", "claude-code", "WebFetch", `{"url":"https://example.org","prompt":"x"}`, `{"url":"https://example.org","prompt":"x"}`, "url"},
		{"what is not known gets nothing", "claude-code", "Strange", `{"file_path":"x"}`, `{"file_path":"x"}`, ""},
	} {
		a, c := callOf(t, row.agent, row.tool, row.input)
		r, err := c.request(a, time.Minute)
		require.NoError(t, err, row.input)
		require.Equal(t, []byte(row.want), []byte(r.RequestData), row.why)
		require.Equal(t, row.editable, r.Editable, row.input)
	}
	for _, row := range []struct{ tool, input, says string }{
		{"Bash", `{"command":"ls","cwd":"/home/ann/site"}`, "the call has an argument cwd, which permesso adds to calls of Bash"},
		{"Read", `{"file_path":"/etc/shadow","files":"/home/ann/site/a"}`, "an argument files"},
		{"Read", `{"file_path":["/etc/shadow",7]}`, "file_path is neither a text nor a list of texts"},
		{"Read", `{"file_path":{"a":1}}`, "file_path is neither a text nor a list of texts"},
		{"Glob", `{"pattern":7}`, "pattern is neither a text nor a list of texts"},
		{"Glob", `{"pattern":"` + strings.Repeat("{a,b}", 40) + `"}`, "the argument pattern: a pattern for more than 64 cannot be judged"},
	} {
		a, c := callOf(t, "claude-code", row.tool, row.input)
		_, err := c.request(a, time.Minute)
		require.ErrorContains(t, err, row.says)
	}
	a, c := callOf(t, "codex", "apply_patch", `{"command":"rm -rf /"}`)
	_, err := c.request(a, time.Minute)
	require.ErrorContains(t, err, "the patch names no file")
}

// The agent's word about a helper and about the server of a tool is a part of the request.
func TestSubagentAndServer(t *testing.T) {
	a, c := callOf(t, "claude-code", "mcp__mail__send", `{"to":"ann@example.org"}`, `,"agent_id":"a1","agent_type":"explorer\n","mcp_server":{"name":"mail","source":"project"}`)
	r, err := c.request(a, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "explorer", r.Subagent)
	want := `{"to":"ann@example.org","mcp_server":{"name":"mail","source":"project"}}`
	require.Equal(t, []byte(want), []byte(r.RequestData))
	require.Equal(t, "claude-code in /home/ann/site", r.Title)
}

// A call that comes by another way than a hook is titled with what its client calls itself.
func TestRequestNamesTheClient(t *testing.T) {
	for _, row := range []struct{ client, folder, want string }{
		{"", "/home/ann", "claude-code in /home/ann"},
		{"my\nIDE", "/home/ann", "my IDE in /home/ann"},
		{"my IDE", "", "my IDE"},
		{strings.Repeat("x", 999), "/home/ann", strings.Repeat("x", 64) + " in /home/ann"},
	} {
		r, err := PermissionPrompt(row.client, "ExitPlanMode", approval.Raw(`{}`), row.folder)
		require.NoError(t, err)
		require.Equal(t, row.want, r.Title)
	}
}
