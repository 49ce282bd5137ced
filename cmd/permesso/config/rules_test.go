package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/permesso-dev/permesso/approval/codec"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/security/policy"
)

func TestParsePolicy(t *testing.T) {
	c, err := config.Parse("p.toml", []byte(`
[approvers.ann]
local = 0
[workspaces.w]
approvers = ["ann"]
contains_secrets = true
folder = false
binds_sessions = true
sessions = { sess_1 = "readonly", "sess 2" = "supervised" }
ask_above = { "mail:send" = "10/1h", none = "0/24h" }
deny_above = { "mail:send" = "50/24h" }
budget_session = { soft = 100 }
budget_day = { soft = 500, hard = 900 }
[tools.send]
capability = "mail:send"
cost = 25
[[rules]]
name = "the team"
outcome = "allow"
reason = "they asked for it"
[rules.match]
tool = "send"
workspace = "w"
approver = "ann"
capability = "mail:send"
target = "*@example.org"
session = "sess_*"
client = "ws:w"
args = { to = "@example.org", copies = 2, html = false, flags = ["-a", "<b>"] }
`))
	require.NoError(t, err)
	w := c.Workspaces["w"]
	require.True(t, w.Secrets)
	require.True(t, w.BindsSessions)
	require.Equal(t, map[string]string{"sess_1": "readonly", "sess 2": "supervised"}, w.Sessions)
	require.Equal(t, codec.Units(25), c.Tools["send"].Cost)
	p := c.PolicyConfig()
	require.Equal(t, []string{"w"}, p.Secrets)
	require.Equal(t, []string{"w"}, p.Bound)
	require.Equal(t, policy.Limits{
		Ask:     map[string]policy.Rate{"mail:send": {Burst: 10, Per: time.Hour}, "": {Burst: 0, Per: 24 * time.Hour}},
		Deny:    map[string]policy.Rate{"mail:send": {Burst: 50, Per: 24 * time.Hour}},
		Session: policy.Budget{Soft: codec.Units(100)}, Day: policy.Budget{Soft: codec.Units(500), Hard: codec.Units(900)},
	}, p.Limits["w"])
	require.Equal(t, []policy.Rule{{
		Name: "the team", Tool: policy.Names{"send"}, Capability: policy.Names{"mail:send"}, Target: []string{"*@example.org"},
		Workspace: policy.Names{"w"}, Approver: policy.Names{"ann"},
		Session: policy.Names{"sess_*"}, Client: policy.Names{"ws:w"}, Outcome: approval.Allow, Reason: "they asked for it",
		Args: []policy.Condition{
			{Field: "to", Is: []string{"@example.org"}},
			{Field: "copies", Equals: approval.Raw("2")},
			{Field: "html", Equals: approval.Raw("false")},
			{Field: "flags", Is: []string{"-a", "<b>"}},
		},
	}}, p.Rules)
}

func TestPolicyIssues(t *testing.T) {
	for _, c := range []struct{ why, file, want string }{
		{
			"a rate", "[workspaces.w]\nask_above = { \"mail:send\" = \"ten an hour\", \"mail:snd\" = \"1/1h\" }\ndeny_above = { \"fs:write\" = 3 }",
			`p.toml:2:29: mail:send is not a rate
hint: number per duration: { "mail:send" = "10/1h" }; "none" stands for tools without a capability
p.toml:2:44: "mail:snd" is not a capability
hint: did you mean "mail:send"?
p.toml:3:29: fs:write must be a string, not a whole number
hint: number per duration: { "mail:send" = "10/1h" }; "none" stands for tools without a capability`,
		},
		{
			"budgets", "[workspaces.w]\nbudget_day = { soft = 9, hard = 3 }\nbudget_session = {}",
			`p.toml:2:23: soft is above hard
hint: above soft, approval is needed; above hard, nothing runs; in the units of a tool's cost
p.toml:3:1: budget_session has neither soft nor hard
hint: above soft, approval is needed; above hard, nothing runs; in the units of a tool's cost`,
		},
		{
			"the autonomy of a session", "[workspaces.w]\nsessions = { a = \"ful\" }",
			`p.toml:2:18: a must be readonly, supervised or full
hint: did you mean "full"?`,
		},
		{
			"an invalid glob", "tools.t.trust = false\n[[rules]]\noutcome = \"deny\"\nmatch = { tool = \"t\", target = \"/[\" }",
			`p.toml:4:1: "/[" is not a valid glob`,
		},
		{
			"an empty list", "tools.t.trust = false\n[[rules]]\noutcome = \"deny\"\nmatch = { tool = [], weekdays = [] }",
			`p.toml:4:11: tool is an empty list: it would match nothing
hint: remove it
p.toml:4:22: weekdays is an empty list: it would match nothing
hint: remove it`,
		},
		{
			"a condition", "tools.t.trust = false\n[[rules]]\noutcome = \"deny\"\nmatch = { tool = \"t\", args = { a = 1.5, b = [1] } }",
			`p.toml:4:36: a must be a pattern, a whole number, true or false, or a list of patterns
hint: args = { path = "/data/**", command = ["go test ...", "git status"], amount = { max = "20.00" } }
p.toml:4:41: b must be a pattern, a whole number, true or false, or a list of patterns
hint: args = { path = "/data/**", command = ["go test ...", "git status"], amount = { max = "20.00" } }`,
		},
		{
			"a cost", "[tools.t]\ncost = -1",
			"p.toml:2:8: cost must be 0 to 1000000000\nhint: a number in units of your own, such as 5 or \"0.25\", or the name of an amount argument: cost = \"amount\"",
		},
		{
			"an admin workspace", "[workspaces.root]\nadmin = true\n[tools.web]\ncapability = \"network:http\"\n[tools.clock]\ncapability = \"time:read\"",
			`p.toml:3:8: tool "web" may read public sources, which admin workspace "root" must not
hint: set public_source = false (or "forbidden") if it reads no public source, or add a deny rule for it there`,
		},
	} {
		_, err := config.Parse("p.toml", []byte(c.file))
		require.Equal(t, c.want, printed(err), c.why)
	}
	_, err := config.Parse("p.toml", []byte("[workspaces.root]\nadmin = true\n[tools.web]\ncapability = \"network:http\"\n"+
		"[[rules]]\noutcome = \"deny\"\nmatch = { tool = \"web\", workspace = \"root\" }"))
	require.NoError(t, err, "denied in the admin workspace")
}

// A condition with equals or json names one value, of which a text is no glob. With
// other_args = false no other argument comes along, so a rule may close every destination.
func TestExactConditions(t *testing.T) {
	const file = `[workspaces.w]
[tools.post]
capability = "channel:out"
args = { to = "recipients", cc = { type = "recipients", optional = true }, text = "text" }
handler = { kind = "none" }
[[rules]]
match = { tool = "post", args = { to = ["ann@x.org"], text = { equals = "*\n" }, n = { json = '1.50' } }, other_args = false }
outcome = "allow"
despite = ["trifecta"]
`
	c, err := config.Parse("p.toml", []byte(file))
	require.NoError(t, err)
	require.True(t, c.Rules[0].OnlyArgs)
	require.Equal(t, []policy.Condition{
		{Field: "to", Is: []string{"ann@x.org"}},
		{Field: "text", Equals: approval.Raw(`"*\n"`)},
		{Field: "n", Equals: approval.Raw(`1.50`)},
	}, c.Rules[0].Args)
	for change, want := range map[[2]string]string{
		{", other_args = false", ""}:                         "despite needs listed values of every destination; missing: cc",
		{`{ equals = "*\n" }`, `{}`}:                         "text needs equals, json, contains, matches, max or min",
		{`{ equals = "*\n" }`, `{ equals = 1, json = "1" }`}: "text needs equals, json, contains, matches, max or min",
		{`{ equals = "*\n" }`, `{ equals = 1.5 }`}:           "equals must be a text, a whole number, true or false, or a list of strings",
		{`'1.50'`, `'1.'`}:                                   "json is not a JSON value",
		{`'1.50'`, `'{"a":1,"a":2}'`}:                        "json is not a JSON value",
		{`equals =`, `equal =`}:                              "equal",
	} {
		_, err := config.Parse("p.toml", []byte(strings.Replace(file, change[0], change[1], 1)))
		require.ErrorContains(t, err, want, change[1])
	}
}
