package chat

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// filled is what runs for these arguments, as the gate fills it.
func filled(t *testing.T, tool approval.Tool, data string) []string {
	t.Helper()
	runs, why := facts.Fill(tool, approval.Raw(data))
	require.Zero(t, why)
	c := Style{Redact: secretWords{"hunter2"}}.Card(example(func(p *approval.Pending) {
		p.RequestData, p.Runs = approval.Raw(data), runs
	}))
	return runsOf(c)
}

// Short values stand in the invocation as it will be, also several in one element and
// percent-encoded. What is not there as it is, is listed too.
func TestTheInvocationIsFinished(t *testing.T) {
	args := map[string]approval.Argument{"a": {}, "b": {}}
	argv := approval.Tool{Name: "two", Args: args, Handler: approval.Handler{Kind: "command", Argv: []string{"/bin/x", "/x/{a}/{b}"}}}
	require.Equal(t, []string{"runs: /bin/x", "│ /x/../../etc/y", "standard input: the arguments, as JSON", "a: ../../etc", "b: y"}, filled(t, argv, `{"a":"../../etc","b":"y"}`))
	url := approval.Tool{Name: "get", Args: args, Handler: approval.Handler{
		Kind: "http", HTTP: approval.HTTP{Method: "GET", URL: "https://a.example/{a}?q={b}"},
	}}
	require.Equal(t, []string{
		"runs: GET https://a.example/Roma%20x?q=a%26b", "a: Roma x", "b: a&b",
	}, filled(t, url, `{"a":"Roma x","b":"a&b"}`))
}

// What the agent executes is not what the gateway calls for it.
func TestWhoExecutesACall(t *testing.T) {
	for _, row := range []struct{ language, tool, want string }{
		{"en", "Bash", "execution: by the agent; the gate runs nothing"},
		{"en", "mcp.mail.send", "execution: the MCP gateway calls the server's tool once, exactly with these arguments"},
		{"it", "mcp.mail.send", "esecuzione: il gateway MCP chiama lo strumento del server una volta, esattamente con questi argomenti"},
	} {
		c := Style{Language: row.language}.Card(example(func(p *approval.Pending) {
			p.ToolName, p.Runs = row.tool, approval.Runs{Kind: approval.HandlerAgent}
		}))
		require.Equal(t, row.want, runsOf(c)[0])
	}
}

// A member's name is never masked, also not in the object line.
func TestNamesAreNotMaskedInTheObjectLine(t *testing.T) {
	c := Style{Redact: secretWords{"hunter2"}}.Card(example(func(p *approval.Pending) {
		p.Summary, p.Target, p.RequestData = "", "", approval.Raw(`{"data":{"hunter2":1}}`)
	}))
	require.Contains(t, c.Object, `{"hunter2":1}`)
}

// A tool's name is the operator's: nothing in it is a part of a secret.
func TestNamesOfToolsAreNotMasked(t *testing.T) {
	c := Style{Redact: secretWords{"sh"}}.Card(example(func(p *approval.Pending) { p.ToolName = "sh" }))
	require.Contains(t, c.Foot, "personal · sh · ")
}
