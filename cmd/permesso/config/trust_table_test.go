package config_test

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/security/policy"
)

// trustTable is what the trust keys mean, written by hand, at autonomy full. The columns:
// what the request adds to its client's taints (c: corruption, s: secret), then the ruling
// of a client without both taints, and of one that has both. ask trust and ask table offer
// a grant of the form in brackets, but none if the next request would fall under the
// trifecta because of what this one reads; ask trifecta offers none.
const trustTable = `
fs:read                                        | s  | allow             | allow
fs:read trust=false                            | -  | allow             | allow
fs:read public_source=true                     | cs | allow             | allow
fs:read secret_data="forbidden"                | -  | deny              | deny
fs:write                                       | -  | allow             | allow
fs:write dangerous_writes=true                 | -  | ask trust(target) | ask trust(target)
fs:write dangerous_writes="forbidden"          | -  | deny              | deny
fs:write public_sink=true                      | -  | allow             | ask trifecta
fs:write trust=false                           | -  | allow             | allow
code:exec                                      | cs | ask table(again)  | ask trifecta
code:exec trust=false                          | -  | ask table(again)  | ask table(again)
code:exec public_source=false secret_data=false | - | ask table(again)  | ask trifecta
network:http                                   | c  | allow             | ask trifecta
network:http trust=false                       | -  | allow             | allow
network:http public_sink="forbidden"           | c  | deny              | deny
network:http dangerous_writes=true             | c  | ask trust(target) | ask trifecta
llm:online                                     | -  | allow             | ask trifecta
llm:online public_sink=false                   | -  | allow             | allow
mail:read                                      | cs | allow             | allow
mail:read secret_data=false                    | c  | allow             | allow
mail:send                                      | -  | ask table(again)  | ask trifecta
mail:send trust=false                          | -  | ask table(again)  | ask table(again)
mail:send dangerous_writes=true                | -  | ask table(again)  | ask trifecta
channel:in                                     | c  | allow             | allow
channel:out                                    | -  | allow             | ask trifecta
channel:out public_sink=false                  | -  | allow             | allow
channel:out dangerous_writes=true              | -  | ask trust(target) | ask trifecta
calendar:read                                  | cs | allow             | allow
time:read                                      | -  | allow             | allow
llm:local                                      | -  | allow             | allow
parse:local                                    | -  | allow             | allow
none trust=false                               | -  | allow             | allow
none public_source=true secret_data=true public_sink=true dangerous_writes=true    | cs | ask trust(target) | ask trifecta
none public_source=false secret_data=false public_sink=false dangerous_writes=true | -  | ask trust(target) | ask trust(target)
none public_source=true secret_data=false public_sink=true dangerous_writes=false  | c  | allow             | ask trifecta
none public_source="forbidden" secret_data=false public_sink=false dangerous_writes=false | - | deny         | deny
release                                        | -  | ask trust(action) | ask trust(action)
release public_source=true                     | c  | ask trust(action) | ask trust(action)
release secret_data=true                       | s  | ask trust(action) | ask trust(action)
release public_sink=true                       | -  | ask trust(action) | ask trifecta
release public_source=true secret_data=true public_sink=true | cs | ask trust(action) | ask trifecta
release secret_data="forbidden"                | -  | deny              | deny
`

func TestTrustTable(t *testing.T) {
	n := 0
	for row := range strings.Lines(strings.TrimSpace(trustTable)) {
		cells := strings.Split(row, "|")
		what, adds := strings.Fields(cells[0]), strings.TrimSpace(cells[1])
		for _, before := range []string{"-", "c", "s", "cs"} {
			want := strings.TrimSpace(cells[2])
			if before == "cs" {
				want = strings.TrimSpace(cells[3])
			}
			both := strings.Contains(before+adds, "c") && strings.Contains(before+adds, "s")
			if form := strings.Index(want, "("); form > 0 && both && strings.TrimSpace(cells[3]) == "ask trifecta" {
				want = want[:form] + "(but trifecta)"
			}
			e, f := trustCase(t, what[0], what[1:], before)
			r := e.Judge(f)
			require.Equal(t, want, said(t, e, f, r), "%v after %s: %v", what, before, r.Reasons)
			if r.Outcome != approval.Deny {
				require.Equal(t, adds, short(r.Taints), "%v", what)
			}
			n++
		}
	}
	require.GreaterOrEqual(t, n, 100)
}

// trustCase configures a tool, or what release-only requests do, and a client that has
// read before.
func trustCase(t *testing.T, name string, keys []string, before string) (*policy.Engine, approval.Facts) {
	t.Helper()
	workspace, tool := "", strings.Join(keys, "\n")
	switch name {
	case "release":
		workspace, tool = "release_trust = { "+strings.Join(keys, ", ")+" }\n", "trust = false"
	case "none":
	default:
		tool = "capability = \"" + name + "\"\n" + tool
	}
	c, err := config.Parse("p.toml", []byte("[workspaces.w]\nautonomy = \"full\"\n"+workspace+"[tools.t]\ntarget = \"x\"\n"+tool))
	require.NoError(t, err)
	e := &policy.Engine{}
	require.NoError(t, e.Load(c.PolicyConfig()))
	for kind, taint := range map[string]string{"c": "corruption", "s": "secret"} {
		if strings.Contains(before, kind) {
			e.Learn(event.Entry{Event: event.AutoApproved, Workspace: "w", RequestID: "0000000000000001", Tool: "t", Taints: []string{taint}})
		}
	}
	f := approval.Facts{
		RequestID: "0000000000000002", Workspace: "w", Autonomy: "full", ClientID: "ws:w", SessionID: "s1", Now: time.Unix(1e9, 0),
		ActionType: "send_message", Trust: c.Workspaces["w"].ReleaseTrust, Args: approval.Raw(`{}`),
	}
	if name == "release" {
		return e, f
	}
	f.Tool, f.KnownTool, f.Targeted, f.Target = "t", true, true, targetOf(name)
	f.Capability, f.Trust, f.ToolSHA256 = c.Tools["t"].Capability, c.Tools["t"].Trust, c.Tools["t"].SHA256()
	return e, f
}

func targetOf(capability string) string {
	c, _ := facts.CapabilityNamed(capability)
	return cmp.Or(map[string]string{"host": "https://x.com/y", "path_glob": "/srv/y"}[c.TargetKind], "x.com")
}

// said is a ruling with what the card offers, in the words of the table.
func said(t *testing.T, e *policy.Engine, f approval.Facts, r approval.Ruling) string {
	t.Helper()
	if r.Outcome != approval.Ask {
		return r.Outcome.String()
	}
	text := "ask " + r.Rule
	for i, o := range e.Offers(f, r) {
		form := "(" + o.Terms.Form + ")"
		if !o.WhyNot.IsZero() {
			require.Equal(t, "asked_anyway", o.WhyNot.Code)
			form = "(but " + o.WhyNot.Args["rule"] + ")"
			if o.WhyNot.Args["rule"] == r.Rule {
				form = ""
			}
		}
		if i == 0 {
			text += form
		} else {
			require.True(t, strings.HasSuffix(text, form), "2 and 6 offer the same")
		}
	}
	return text
}

func short(taints []string) string {
	text := ""
	for _, taint := range taints {
		text += taint[:1]
	}
	if text == "" {
		return "-"
	}
	return text
}

// A new installation: the first hello is asked, "always" is offered, and the next one runs.
func TestExamplesHelloIsRemembered(t *testing.T) {
	c, err := config.Parse("p.toml", []byte(config.Example()))
	require.NoError(t, err)
	e := &policy.Engine{}
	require.NoError(t, e.Load(c.PolicyConfig()))
	tool := c.Tools["hello"]
	f := approval.Facts{
		RequestID: "0000000000000001", Workspace: "default", Autonomy: "supervised", ClientID: "ws:default", Now: time.Unix(1e9, 0),
		Tool: "hello", KnownTool: true, Targeted: true, Target: tool.Target, Capability: tool.Capability, Trust: tool.Trust,
		ActionType: tool.ActionType, ToolSHA256: tool.SHA256(), Args: approval.Raw(`{"name":"you"}`),
	}
	r := e.Judge(f)
	require.Equal(t, approval.Ask, r.Outcome)
	require.Empty(t, r.Taints)
	p := &approval.Pending{RequestID: f.RequestID, Offers: e.Offers(f, r)}
	g := grant.From(p, &approval.Decision{Verdict: approval.Approved, Scope: approval.Always, DecidedBy: "ann", DecidedAt: f.Now})
	require.NotNil(t, g, "%v", p.Offers)
	require.NoError(t, e.AddGrant(*g))
	f.RequestID, f.Args = "0000000000000002", approval.Raw(`{"name":"again"}`)
	require.Equal(t, approval.Allow, e.Judge(f).Outcome)
}
