package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// A tool states what it reads and writes: policy does not guess.
func TestToolStatesItsTrust(t *testing.T) {
	const four = "public_source = true\nsecret_data = \"forbidden\"\npublic_sink = false\ndangerous_writes = false\n"
	for _, row := range []struct{ why, tool, want string }{
		{"a capability", "capability = \"fs:read\"", ""},
		{"all four", four, ""},
		{"false", "trust = false", ""},
		{"a capability and a property", "capability = \"fs:read\"\nsecret_data = false", ""},
		{"nothing", "", `p.toml:1:8: tool "t" states neither its capability nor its trust`},
		{"an action type", "action_type = \"write_file\"", `p.toml:1:8: tool "t" states neither its capability nor its trust`},
		{"one property", "public_sink = true", `p.toml:1:8: tool "t" states no public_source, secret_data or dangerous_writes`},
		{"all but one", strings.Replace(four, "public_sink = false\n", "", 1), `p.toml:1:8: tool "t" states no public_sink`},
	} {
		_, err := config.Parse("p.toml", []byte("[tools.t]\n"+row.tool))
		if row.want == "" {
			require.NoError(t, err, row.why)
			continue
		}
		require.EqualError(t, err, row.want, row.why)
		for i, lines := range choices(hints.Of(err)) {
			c, err := config.Parse("p.toml", []byte("[tools.t]\n"+row.tool+"\n"+lines))
			require.NoError(t, err, "%s: choice %d of the hint", row.why, i)
			require.Contains(t, c.Tools, "t")
		}
	}
}

// choices are the lines of a hint that can be pasted: one choice is a line, or all the
// lines after the words "all four".
func choices(hint string) []string {
	before, four, found := strings.Cut(hint, "or all four, each true, false or \"forbidden\":\n")
	_, lines, _ := strings.Cut(before, ":\n")
	if !found {
		return []string{lines}
	}
	return append(strings.Split(strings.TrimSpace(lines), "\n"), four)
}

// The hint begins with the capability that fits what is there.
func TestLikelyCapability(t *testing.T) {
	for tool, want := range map[string]string{
		`action_type = "write_file"`:   "fs:write",
		`action_type = "send_message"`: "channel:out",
		`handler = { kind = "http", method = "GET", url = "https://example.org/" }`: "network:http",
		`handler = { kind = "command", argv = ["/bin/true"] }`:                      "code:exec",
	} {
		_, err := config.Parse("p.toml", []byte("[tools.t]\n"+tool))
		require.Contains(t, hints.Of(err), "\ncapability = \""+want+"\" ")
	}
}

func TestTrustOfWorkspaces(t *testing.T) {
	c, err := config.Parse("p.toml", []byte("[workspaces.a]\nfolder = false\nbinds_sessions = true\nremember_exec_cmd = \"any\"\n"+
		"release_trust = { public_source = true, public_sink = \"forbidden\" }\n[workspaces.b]\n"))
	require.NoError(t, err)
	a, b := c.Workspaces["a"], c.Workspaces["b"]
	require.True(t, a.NoFolder && a.BindsSessions && a.RememberExec)
	require.Equal(t, approval.Trust{PublicSource: "true", PublicSink: "forbidden"}, a.ReleaseTrust)
	require.False(t, b.NoFolder || b.BindsSessions || b.RememberExec)
	require.Zero(t, b.ReleaseTrust)

	_, err = config.Parse("p.toml", []byte("[workspaces.a]\nbinds_sessions = true"))
	require.Equal(t, "p.toml:2:18: binds_sessions needs folder = false: an agent that writes request files chooses its session ids itself\n"+
		"hint: add folder = false, and give the agent's host a key: permesso key create", printed(err))
	_, err = config.Parse("p.toml", []byte("[workspaces.a]\nrelease_trust = { dangerous_writes = false }"))
	require.ErrorContains(t, err, `unknown key "dangerous_writes"`, "what the agent does itself is always asked, or a grant covers it")
}

func TestDespite(t *testing.T) {
	const tool = `[tools.mail]
capability = "mail:send"
target = "{folder}"
args = { to = "recipients", cc = { type = "recipients", optional = true }, text = "text", folder = "text" }
[tools.run]
capability = "code:exec"
args = { line = "command", in = "path", fetch = "url", at = "host" }
[tools.fixed]
capability = "channel:out"
args = { text = "text" }
[[rules]]
`
	const missing = "p.toml:14:1: despite needs listed values of every destination; missing: "
	for _, row := range []struct{ why, rule, want string }{
		{"no destination", "match = { tool = \"fixed\" }\noutcome = \"allow\"", ""},
		{"all are closed", "match = { tool = \"mail\", args = { to = \"ann@example.org\", cc = [], folder = \"sent\" } }\noutcome = \"allow\"", ""},
		{"a recipient", "match = { tool = \"mail\", args = { to = \"ann@example.org\", folder = \"sent\" } }\noutcome = \"allow\"", missing + "cc"},
		{"a pattern", "match = { tool = \"mail\", args = { to = \"@example.org\", cc = [], folder = \"sent\" } }\noutcome = \"allow\"", missing + "to"},
		{"the target's text", "match = { tool = \"mail\", args = { to = \"a@example.org\", cc = [] } }\noutcome = \"allow\"", missing + "folder"},
		{"none is closed", "match = { tool = \"run\" }\noutcome = \"allow\"", missing + "at, fetch, in, line"},
		{"an ask", "match = { tool = \"fixed\" }\noutcome = \"ask\"", "p.toml:14:1: despite belongs to allow rules"},
		{"a deny", "match = { tool = \"fixed\" }\noutcome = \"deny\"", "p.toml:14:1: despite belongs to allow rules"},
		{"no tool", "match = { workspace = \"default\" }\noutcome = \"allow\"", "p.toml:14:1: despite needs a rule that names one tool"},
	} {
		c, err := config.Parse("p.toml", []byte(tool+row.rule+"\ndespite = [\"trifecta\"]"))
		if row.want != "" {
			require.EqualError(t, err, row.want, row.why)
			continue
		}
		require.NoError(t, err, row.why)
		require.Equal(t, []string{"trifecta"}, c.Rules[0].Despite)
	}
	_, err := config.Parse("p.toml", []byte(tool+"match = { tool = \"fixed\" }\noutcome = \"allow\"\ndespite = [\"deny\"]"))
	require.EqualError(t, err, "p.toml:14:12: despite must hold trifecta or secrets")
}
