package hook

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

func fixture(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(fixtures, name+".json"))
	require.NoError(t, err)
	return b
}

// What a person sees of the calls of the agents that are written from their documents.
func TestDocumentedRequests(t *testing.T) {
	for _, row := range []struct{ fixture, tool, data, title string }{
		{"copilot-shell", "bash", `{"command":"npm publish","description":"Publish the package","mode":"sync","initial_wait":30,"cwd":"/home/ann/site"}`, "copilot in /home/ann/site"},
		{"copilot-text", "bash", `{"command":"npm publish","description":"Publish the package","cwd":"/home/ann/site"}`, "copilot in /home/ann/site"},
		{"copilot-permission", "bash", `{"command":"npm publish","cwd":"/home/ann/site"}`, "copilot in /home/ann/site"},
		{"copilot-compatible", "Bash", `{"command":"npm publish","cwd":"/home/ann/site"}`, "copilot in /home/ann/site"},
		{"vscode-camel", "editFiles", `{"files":["src/main.ts"]}`, "vscode in /home/ann/site"},
		{"cursor-tool", "Shell", `{"command":"npm run deploy","cwd":"","timeout":30000}`, "cursor in /home/ann/site"},
		{"cursor-shell", "Shell", `{"command":"npm run deploy","cwd":"/home/ann/site","sandbox":false}`, "cursor in /home/ann/site"},
		{"cursor-mcp", "MCP:send_mail", `{"to":"ben@example.org","mcp_server":{"command":"npx mail-server"}}`, "cursor in /home/ann/site"},
		{"opencode-tool", "bash", `{"command":"npm run deploy","description":"Deploy"}`, "opencode in /home/ann/site"},
		{"opencode-permission", "external_directory", `{"patterns":["/etc/*"],"metadata":{}}`, "opencode in /home/ann/site"},
	} {
		named, _ := agentOf(t, row.fixture)
		a, c, err := named.read(fixture(t, row.fixture))
		require.NoError(t, err, row.fixture)
		r, err := c.request(a, time.Minute)
		require.NoError(t, err, row.fixture)
		require.Equal(t, row.tool, r.ToolName, row.fixture)
		require.Equal(t, row.data, string(r.RequestData), row.fixture)
		require.Equal(t, row.title, r.Title)
		require.NotEmpty(t, r.SessionID, row.fixture)
	}
}

// The agents that read each other's settings are told apart by their events, whatever the command line names.
func TestSender(t *testing.T) {
	for fixtureName, want := range map[string]string{
		"claude-code-bash": "claude-code", "claude-code-permission": "claude-code", "copilot-shell": "copilot", "copilot-permission": "copilot",
		"copilot-compatible": "copilot", "vscode-edit": "vscode", "vscode-camel": "vscode",
	} {
		for _, named := range []string{"claude-code", "copilot", "vscode"} {
			a, _ := AgentNamed(named)
			a, c, err := a.read(fixture(t, fixtureName))
			require.NoError(t, err)
			require.Equal(t, want, a.Name, "%s, called as %s", fixtureName, named)
			require.Contains(t, a.asks, c.Event)
		}
	}
	// Copilot denies by JSON, although it was called by a hook in a project's settings of Claude Code.
	claude, _ := AgentNamed("claude-code")
	x := Hook{Agent: claude, Gate: &scripted{answers: []approval.Response{denied("no")}}}.Run(t.Context(), bytes.NewReader(fixture(t, "copilot-shell")))
	require.Equal(t, Answer{
		Out:    []byte(`{"permissionDecision":"deny","permissionDecisionReason":"request a7f30000: denied: no"}`),
		Reason: "request a7f30000: denied: no", Exit: Allow,
	}, x)
	for agent, event := range map[string]string{
		"codex": string(fixture(t, "copilot-shell")), "copilot": `{"toolName":"bash","tool_name":"Read","toolArgs":{}}`,
		"vscode": `{"hook_event_name":"PreToolUse","hookEventName":"PostToolUse","tool_name":"x","timestamp":"","transcript_path":""}`,
	} {
		a, _ := AgentNamed(agent)
		require.Equal(t, Deny, Hook{Agent: a, Gate: &scripted{}}.Run(t.Context(), strings.NewReader(event)).Exit, agent)
	}
}

// A gate that cannot be asked is a deny in the form of the event.
func TestRefuse(t *testing.T) {
	why := errors.New("there is no gate")
	for name, want := range map[string]Answer{
		"claude-code-bash":   {Reason: "there is no gate", Exit: Deny},
		"copilot-permission": {Out: []byte(`{"behavior":"deny","message":"there is no gate"}`), Reason: "there is no gate", Exit: Allow},
		"copilot-after":      {Out: []byte(`{"permissionDecision":"deny","permissionDecisionReason":"there is no gate"}`), Reason: "there is no gate", Exit: Deny},
		"cursor-shell":       {Out: []byte(`{"permission":"deny","user_message":"there is no gate","agent_message":"there is no gate"}`), Reason: "there is no gate", Exit: Deny},
	} {
		a, _ := agentOf(t, name)
		require.Equal(t, want, Hook{Agent: a}.Refuse(t.Context(), bytes.NewReader(fixture(t, name)), why), name)
	}
	claude, _ := AgentNamed("claude-code")
	x := Hook{Agent: claude}.Refuse(t.Context(), bytes.NewReader(fixture(t, "copilot-permission")), why)
	require.Equal(t, Answer{Out: []byte(`{"behavior":"deny","message":"there is no gate"}`), Reason: "there is no gate", Exit: Allow}, x)
}

// pluginTest loads the plugin with a hook of the test's, makes one call, lets opencode ask about it and about another one,
// and prints what came of each.
const pluginTest = `
const replies = []
const plugin = await (await import(process.argv[2])).Permesso({
  directory: "/home/ann/site",
  client: { postSessionIdPermissionsPermissionId: async (r) => { replies.push(r.path.id + " " + r.path.permissionID + " " + r.body.response) } },
})
const call = async (command) => {
  try {
    await plugin["tool.execute.before"]({ tool: "bash", sessionID: "ses_1", callID: "call_" + command }, { args: { command } })
    return "runs"
  } catch (e) {
    return "throws: " + e.message
  }
}
const out = { allow: await call("allow"), deny: await call("deny"), silent: await call("silent"), half: await call("half"), killed: await call("killed") }
const asked = (id, callID, permission) => plugin.event({ event: { type: "permission.asked", properties: { id, sessionID: "ses_1", permission, patterns: [], metadata: {}, tool: { messageID: "m", callID } } } })
await asked("per_1", "call_allow", "bash")
await asked("per_2", "call_other", "deny")
await asked("per_3", "call_other", "allow")
await plugin.event({ event: { type: "session.idle", properties: {} } })
while (replies.length < 3) await new Promise(setImmediate)
console.log(JSON.stringify({ ...out, replies: replies.sort() }))
`

// pluginHook is what the plugin starts in the test. It answers by what the call is.
const pluginHook = `#!/bin/sh
event=$(cat)
case $event in
*killed*) kill -9 $$ ;;
*silent*) exit 0 ;;
*half*) printf '{"reply":"on' ;;
*deny*) echo 'permesso: no' >&2; exit 2 ;;
*allow*) echo '{"reply":"once"}' ;;
esac
`

// Our plugin for opencode throws in all cases but an approval, and answers opencode's own questions by the approval.
func TestPlugin(t *testing.T) {
	node, err := exec.LookPath("node")
	require.NoError(t, err, "hint: make deps")
	dir := t.TempDir()
	program := filepath.Join(dir, "my hook")
	require.NoError(t, os.WriteFile(program, []byte(pluginHook), 0o755))
	a, _ := AgentNamed("opencode")
	text, err := a.Add(Project, nil, Line{Program: program, Args: []string{"hook", "opencode"}}, []string{opencodeTool})
	require.NoError(t, err)
	require.NotContains(t, string(text), `["permesso"`)
	plugin, test := filepath.Join(dir, "permesso.mjs"), filepath.Join(dir, "test.mjs")
	require.NoError(t, os.WriteFile(plugin, text, 0o644))
	require.NoError(t, os.WriteFile(test, []byte(pluginTest), 0o644))
	out, err := exec.CommandContext(t.Context(), node, test, plugin).CombinedOutput()
	require.NoError(t, err, string(out))
	require.JSONEq(t, `{
		"allow": "runs", "deny": "throws: permesso: no", "silent": "throws: permesso ended with code 0, without an answer",
		"half": "throws: permesso ended with code 0, without an answer", "killed": "throws: permesso ended with code null, without an answer",
		"replies": ["ses_1 per_1 once", "ses_1 per_2 reject", "ses_1 per_3 once"]
	}`, string(out))
}
