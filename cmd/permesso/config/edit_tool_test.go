package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// added is what an edit appends, and requires that all bytes before it stay.
func added(t *testing.T, before string, after []byte, err error) string {
	t.Helper()
	require.NoError(t, err, printed(err))
	text, ok := strings.CutPrefix(string(after), before)
	require.True(t, ok, "%s", after)
	return text
}

// proposed is a tool with what is proposed for it.
func proposed(t config.NewTool) config.NewTool {
	t.Args = map[string]approval.Argument{}
	for _, name := range t.Placeholders() {
		t.Args[name] = approval.Argument{Type: config.LikelyType(name)}
	}
	if t.Capability == "" {
		t.Capability = t.LikelyCapability()
	}
	t.Propose()
	return t
}

func TestAddTool(t *testing.T) {
	for _, row := range []struct {
		why  string
		tool config.NewTool
		want string
	}{
		{
			"a command",
			config.NewTool{Name: "post_note", Argv: []string{"/bin/echo", "{text}", "it's \"5\" \\ è"}, Timeout: 90 * time.Second},
			`
[tools.post_note]
capability = "code:exec"
action_type = "custom:post_note"
verb = "post note"
summary = "{text}"
args = { text = "text" }
handler = { kind = "command", argv = ["/bin/echo", "{text}", "it's \"5\" \\ è"], timeout = "1m30s" }
`,
		},
		{
			"a name that must be quoted, and types by names",
			config.NewTool{Name: "mail.send", Capability: "mail:send", Argv: []string{"/bin/mail", "--", "{to}", "{file}"}},
			`
[tools."mail.send"]
capability = "mail:send"
action_type = "send_message"
verb = "mail send"
summary = "{file}, {to}"
target = "{to}"
args = { file = "path", to = "recipients" }
handler = { kind = "command", argv = ["/bin/mail", "--", "{to}", "{file}"] }
`,
		},
		{
			"an HTTP request",
			config.NewTool{
				Name: "add", URL: "https://api.example.org/v1/{board}", Method: "POST", Body: `{"text":{text}}`,
				SecretHeaders: map[string]string{"Authorization": "Bearer /etc/permesso/api.token"}, AllowPrivate: []string{"10.1.2.3"},
			},
			`
[tools.add]
capability = "network:http"
action_type = "http_request"
verb = "add"
summary = "{board}, {text}"
args = { board = "text", text = "text" }
handler = { kind = "http", method = "POST", url = "https://api.example.org/v1/{board}", body = '{"text":{text}}', ` +
				`secret_headers = { Authorization = "Bearer /etc/permesso/api.token" }, allow_private = ["10.1.2.3"] }
`,
		},
	} {
		t.Run(row.why, func(t *testing.T) {
			tool := proposed(row.tool)
			after, err := config.Reader{}.AddTool("p.toml", []byte(fullConfig), tool)
			require.Equal(t, row.want, added(t, fullConfig, after, err))
			c, err := config.Parse("p.toml", after)
			require.NoError(t, err)
			got := c.Tools[tool.Name]
			require.Equal(t, tool.Args, got.Args)
			require.Equal(t, tool.Argv, got.Handler.Argv)
			require.Equal(t, tool.Timeout, got.Handler.Timeout)
		})
	}
}

func TestAddToolRefuses(t *testing.T) {
	echo := []string{"/bin/echo", "{text}"}
	for _, row := range []struct {
		why, before, says string
		tool              config.NewTool
	}{
		{"an existing tool", fullConfig, `tool "t" already exists`, config.NewTool{Name: "t", Argv: echo}},
		{"an unknown capability", fullConfig, "capability must be", config.NewTool{Name: "a", Capability: "fs:delete", Argv: echo}},
		{"a summary with a field that is no argument", fullConfig, "is not an argument of the tool", config.NewTool{Name: "a", Argv: echo, Summary: "{other}"}},
		{"a name that adds another table", fullConfig, "", config.NewTool{Name: "a\"]\n[tools.\"b", Argv: echo}},
		{"tools in one line", "tools = {}\n[workspaces.one]\n", "not valid TOML", config.NewTool{Name: "a", Argv: echo}},
		{"a broken file", "gaet = 1\n", "unknown key", config.NewTool{Name: "a", Argv: echo}},
		{"a relative program", fullConfig, "absolute path", config.NewTool{Name: "a", Argv: []string{"echo"}}},
	} {
		t.Run(row.why, func(t *testing.T) {
			after, err := config.Reader{}.AddTool("p.toml", []byte(row.before), proposed(row.tool))
			require.Error(t, err)
			require.Contains(t, printed(err), row.says)
			require.Nil(t, after)
		})
	}
}

func TestAddRules(t *testing.T) {
	lines := config.NewRule{Tool: "t", Workspace: "one", Outcome: "deny", Reason: `it's "over"`}.Lines()
	require.Equal(t, "[[rules]]\nmatch = { tool = \"t\", workspace = \"one\" }\noutcome = \"deny\"\nreason = \"it's \\\"over\\\"\"", lines)
	after, err := config.Reader{}.AddRules("p.toml", []byte(fullConfig), lines)
	require.Equal(t, "\n"+lines+"\n", added(t, fullConfig, after, err))
	twice, err := config.Reader{}.AddRules("p.toml", after, lines)
	require.Equal(t, "\n"+lines+"\n", added(t, string(after), twice, err))
	c, err := config.Parse("p.toml", after)
	require.NoError(t, err)
	require.True(t, c.HasRules(lines))
	other := strings.Replace(lines, "deny", "ask", 1)
	require.False(t, c.HasRules(lines+"\n"+other))
	require.False(t, c.HasRules("# a comment\n"))
	both, err := config.Reader{}.AddRules("p.toml", []byte(fullConfig), "# a comment\n"+lines+"\n# another\n"+other)
	require.Equal(t, "\n# a comment\n"+lines+"\n# another\n"+other+"\n", added(t, fullConfig, both, err))
	c, err = config.Parse("p.toml", both)
	require.NoError(t, err)
	require.True(t, c.HasRules(lines+"\n"+other))
	for _, row := range []struct{ why, before, lines, says string }{
		{"no rule", fullConfig, "# a comment\n", "there is no rule to add"},
		{"a rule and a tool", fullConfig, lines + "\n[tools.x]\ntrust = false\n", "unknown key"},
		{"a top key", fullConfig, "local_decisions = true\n" + lines, "unknown key"},
		{"an unknown outcome", fullConfig, strings.Replace(lines, "deny", "maybe", 1), "outcome must be"},
		{"rules in one line", "rules = []\n", lines, "not valid TOML"},
	} {
		after, err := config.Reader{}.AddRules("p.toml", []byte(row.before), row.lines)
		require.Error(t, err, row.why)
		require.Contains(t, printed(err), row.says, row.why)
		require.Nil(t, after, row.why)
	}
}

const peopleConfig = `# mine
[workspaces.one]   # the first
approvers = ["ann"] # who
[workspaces.two]
approvers = [
  "bob", # the second
  "ann",
]
[workspaces.three]

[approvers.ann]
local = 1000
[approvers.bob] # him
telegram = 5
`

func TestAddAndRemoveApprover(t *testing.T) {
	n := config.NewApprover{Name: "eve", Local: "7", Telegram: "9", Email: "eve@example.org", Language: "it", Workspaces: []string{"one", "two", "three"}}
	after, err := config.Reader{}.AddApprover("p.toml", []byte(peopleConfig), n)
	require.NoError(t, err, printed(err))
	require.Equal(t, strings.NewReplacer(
		`["ann"]`, `["ann", "eve"]`, "  \"ann\",\n", "  \"ann\", \"eve\",\n", "[workspaces.three]\n", "[workspaces.three]\napprovers = [\"eve\"]\n",
	).Replace(peopleConfig)+"\n[approvers.eve]\nlocal = 7\ntelegram = 9\nemail = \"eve@example.org\"\nlanguage = \"it\"\n", string(after))
	back, err := config.Reader{}.RemoveApprover("p.toml", after, "eve")
	require.NoError(t, err, printed(err))
	require.Equal(t, strings.Replace(peopleConfig, "[workspaces.three]\n", "[workspaces.three]\napprovers = []\n", 1),
		strings.Replace(string(back), "\"ann\", \n", "\"ann\",\n", 1))

	back, err = config.Reader{}.RemoveApprover("p.toml", []byte(peopleConfig), "bob")
	require.NoError(t, err, printed(err))
	require.Equal(t, strings.NewReplacer("  \"bob\", # the second\n", "  # the second\n", "[approvers.bob] # him\ntelegram = 5\n", "").Replace(peopleConfig), string(back))
}

func TestApproverEditsRefuse(t *testing.T) {
	for _, row := range []struct {
		why, before, says string
		n                 config.NewApprover
	}{
		{"an existing name", peopleConfig, `approver "ann" already exists`, config.NewApprover{Name: "ann", Local: "5"}},
		{"an id of another person", peopleConfig, "already has this telegram id", config.NewApprover{Name: "eve", Telegram: "5"}},
		{"an unknown workspace", peopleConfig, "there is no workspace", config.NewApprover{Name: "eve", Local: "5", Workspaces: []string{"four"}}},
		{"an invalid name", peopleConfig, "name is 1 to 63", config.NewApprover{Name: "x]\n[tools.y", Local: "5"}},
		{"an id that adds a key", peopleConfig, "other settings would change", config.NewApprover{Name: "eve", Local: "5\n[workspaces.four]"}},
		{"a workspace with a principal", strings.Replace(peopleConfig, "# who", "\nprincipal = \"ann\"", 1), "only the principal", config.NewApprover{Name: "eve", Local: "5", Workspaces: []string{"one"}}},
		{"a workspace in one line", "workspaces = { one = {} }\n", "has no header", config.NewApprover{Name: "eve", Local: "5", Workspaces: []string{"one"}}},
	} {
		after, err := config.Reader{}.AddApprover("p.toml", []byte(row.before), row.n)
		require.Error(t, err, row.why)
		require.Contains(t, printed(err), row.says, row.why)
		require.Nil(t, after, row.why)
	}
	for _, row := range [][3]string{
		{"an unknown approver", peopleConfig, "eve"},
		{"an approver in one line", "[approvers]\nann = { local = 5 }\n", "ann"},
	} {
		after, err := config.Reader{}.RemoveApprover("p.toml", []byte(row[1]), row[2])
		require.Contains(t, printed(err), "is not a separate section here", row[0])
		require.Nil(t, after, row[0])
	}
	principal := strings.Replace(peopleConfig, "# who", "\nprincipal = \"ann\"", 1)
	after, err := config.Reader{}.RemoveApprover("p.toml", []byte(principal), "ann")
	require.Error(t, err, "the principal")
	require.Nil(t, after)
}
