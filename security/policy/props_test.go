package policy_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/permesso-dev/permesso/approval/codec"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/security/policy"
)

func pick[T any](rt *rapid.T, what string, of ...T) T { return rapid.SampledFrom(of).Draw(rt, what) }

func capabilityNames() []string {
	names := []string{""}
	for _, c := range facts.Capabilities() {
		names = append(names, c.Name)
	}
	return names
}

func drawProperty(rt *rapid.T, name string) approval.Property {
	return pick[approval.Property](rt, name, "", "true", "false", "false", "forbidden")
}

func drawFacts(rt *rapid.T) approval.Facts {
	f := factsFor(pick(rt, "capability", capabilityNames()...))
	f.Autonomy = pick(rt, "autonomy", "readonly", "supervised", "full", "")
	f.Trust = approval.Trust{
		PublicSource: drawProperty(rt, "source"), SecretData: drawProperty(rt, "secret"),
		PublicSink: drawProperty(rt, "sink"), DangerousWrites: drawProperty(rt, "dangerous"),
	}
	f.KnownTool = rapid.Bool().Draw(rt, "known")
	if pick(rt, "release only", false, false, true) {
		f.Tool, f.KnownTool, f.Capability = "", false, ""
		f.ActionType = pick(rt, "action", "exec_cmd", "send_message")
	}
	f.Target = pick(rt, "target", "/data/a.txt", "/data/b/c.txt", "example.org", "")
	f.SessionID = pick(rt, "session", "", "s1", "s2")
	f.Question = pick(rt, "question", false, false, false, true)
	f.Cost = codec.Units(rapid.Int64Range(0, 5).Draw(rt, "cost"))
	f.Args = pick(rt, "args", approval.Raw(`{}`), approval.Raw(`{"a":"x","b":1}`), approval.Raw(`{"command":"uname -a"}`))
	return f
}

// pickNames draws one name, or none for "".
func pickNames(rt *rapid.T, label string, from ...string) policy.Names {
	if name := pick(rt, label, from...); name != "" {
		return policy.Names{name}
	}
	return nil
}

func drawRule(rt *rapid.T) policy.Rule {
	r := policy.Rule{
		Name: pick(rt, "name", "r1", "r2", "r3"), Tool: pickNames(rt, "tool", "", "t", "t*", "other"),
		Capability: pickNames(rt, "rule capability", "", "", "fs:write", "code:exec"), Workspace: pickNames(rt, "ws", "", "w", "v"),
		Session: pickNames(rt, "rule session", "", "", "s1"), Target: pickNames(rt, "glob", "", "", "/data/**", "*.org"),
		Outcome: pick(rt, "outcome", approval.Deny, approval.Ask, approval.Allow, approval.Allow),
	}
	switch rapid.IntRange(0, 4).Draw(rt, "condition") {
	case 0:
		r.Args = []policy.Condition{{Field: "a", Is: []string{"x"}}, {Field: "b", Equals: approval.Raw("1")}}
	case 1:
		r.Args = []policy.Condition{{Field: "gone", Is: []string{"x"}}}
	}
	return r
}

func drawConfig(rt *rapid.T) policy.Config {
	c := policy.Config{Rules: rapid.SliceOfN(rapid.Custom(drawRule), 0, 5).Draw(rt, "rules")}
	if rapid.Bool().Draw(rt, "limits") {
		c.Limits = map[string]policy.Limits{"w": {
			Ask: map[string]policy.Rate{"fs:write": {Burst: 1, Per: time.Hour}}, Day: policy.Budget{Soft: codec.Units(4), Hard: codec.Units(9)},
		}}
	}
	if rapid.Bool().Draw(rt, "secrets") {
		c.Secrets = []string{"w"}
	}
	if rapid.Bool().Draw(rt, "bound") {
		c.Bound = []string{"w"}
	}
	return c
}

func drawClaim(rt *rapid.T) event.Entry {
	return event.Entry{
		Event: event.AutoApproved, Workspace: pick(rt, "in", "w", "w", "v"), Time: noon, RequestID: "bbbbbbbbbbbbbbbb",
		SessionID: pick(rt, "by session", "", "s1"), Cost: codec.Units(rapid.Int64Range(0, 3).Draw(rt, "cost")), Capability: "fs:write",
		Taints: pick(rt, "taints", nil, []string{"corruption"}, []string{"secret"}, []string{"corruption", "secret"}),
	}
}

func drawGrant(rt *rapid.T) grant.Grant {
	f := factsFor(pick(rt, "of", capabilityNames()...))
	f.Target = pick(rt, "grant target", "/data/a.txt", "/data/**", "example.org")
	f.ActionType = pick(rt, "grant action", "custom:t", "exec_cmd", "send_message")
	f.SessionID = pick(rt, "grant session", "s1", "s2")
	g := pick(rt, "grant", grants(f)...)
	g.MaxUses = pick(rt, "max", 0, 0, 1)
	return g
}

// setup holds what an engine is built from.
type setup struct {
	config  policy.Config
	history []event.Entry
	grants  []grant.Grant
	secrets []approval.Finding
}

func drawSetup(rt *rapid.T) setup {
	return setup{
		config: drawConfig(rt), history: rapid.SliceOfN(rapid.Custom(drawClaim), 0, 3).Draw(rt, "history"),
		grants: rapid.SliceOfN(rapid.Custom(drawGrant), 0, 4).Draw(rt, "grants"),
	}
}

func (w setup) judge(t require.TestingT, f approval.Facts) approval.Ruling {
	e := &policy.Engine{Resolve: resolve, Scan: func(*approval.Facts) []approval.Finding { return w.secrets }}
	require.NoError(t, e.Load(w.config))
	for _, x := range w.history {
		e.Learn(x)
	}
	for i, g := range w.grants {
		g.ID = fmt.Sprintf("%016x", i+1) // one of the same id would replace the first
		require.NoError(t, e.AddGrant(g))
	}
	return e.Judge(f)
}

func TestPropAddingAGrantNeverLiftsADeny(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, f := drawSetup(rt), drawFacts(rt)
		before := w.judge(rt, f)
		w.grants = append(w.grants, drawGrant(rt))
		after := w.judge(rt, f)
		if before.Outcome == approval.Deny {
			require.Equal(rt, approval.Deny, after.Outcome)
		}
		c, has := facts.CapabilityNamed(f.Capability)
		if has && c.Default == facts.AskAlways {
			require.Equal(rt, before.Outcome, after.Outcome, "a grant lifts no capability with the default always")
		}
		require.GreaterOrEqual(rt, after.Outcome, before.Outcome, "a grant makes nothing stricter")
	})
}

func TestPropTaintsSecretsAndDenyRulesNeverMakeItMilder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, f := drawSetup(rt), drawFacts(rt)
		before := w.judge(rt, f)
		switch rapid.IntRange(0, 3).Draw(rt, "add") {
		case 0:
			w.history = append(w.history, drawClaim(rt))
		case 1:
			w.secrets = append(w.secrets, approval.Finding{Kind: "k", Where: "x", Length: 1})
		case 2:
			r := drawRule(rt)
			r.Outcome = approval.Deny
			w.config.Rules = append(w.config.Rules, r)
		default:
			w.config.Secrets = []string{"w"}
		}
		require.LessOrEqual(rt, w.judge(rt, f).Outcome, before.Outcome)
	})
}

func TestPropTheOrderOfRulesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, f := drawSetup(rt), drawFacts(rt)
		before := w.judge(rt, f)
		w.config.Rules = rapid.Permutation(w.config.Rules).Draw(rt, "order")
		require.Equal(rt, before, w.judge(rt, f), "the complete ruling")
	})
}

func TestPropUnknownToolsAreAllowedOnlyByName(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, f := drawSetup(rt), drawFacts(rt)
		w.grants = nil
		r := w.judge(rt, f)
		if r.Outcome == approval.Allow && !f.KnownTool {
			require.NotEmpty(rt, f.Tool, "no rule names a release-only request")
			named := false
			for _, rule := range w.config.Rules {
				named = named || slices.Contains(rule.Tool, f.Tool) && rule.Outcome == approval.Allow
			}
			require.True(rt, named)
		}
		require.NotEmpty(rt, r.Reasons, "every ruling has a reason")
		require.NotEmpty(rt, r.Rule)
	})
}

// The rulings for all taints of a client and all properties of a tool. UPDATE=1
// rewrites the table.
func TestTrifectaTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("# taints of the client, then public_source secret_data public_sink dangerous_writes: ruling on a read and on a write, and why\n")
	values := []approval.Property{"false", "true", "forbidden"}
	for _, have := range [][]string{nil, {"corruption"}, {"secret"}, {"corruption", "secret"}} {
		for i := range 81 {
			trust := approval.Trust{
				PublicSource: values[i/27%3], SecretData: values[i/9%3], PublicSink: values[i/3%3], DangerousWrites: values[i%3],
			}
			w := setup{history: []event.Entry{{Event: event.Approved, Workspace: "w", Time: noon, Taints: have}}}
			fmt.Fprintf(&b, "%-18s %-9s %-9s %-9s %-9s:", strings.Join(have, "+"), trust.PublicSource, trust.SecretData, trust.PublicSink, trust.DangerousWrites)
			for _, capability := range []string{"mail:read", "channel:out"} {
				f := factsFor(capability)
				f.Autonomy, f.Trust = grant.Full, trust
				r := w.judge(t, f)
				fmt.Fprintf(&b, " %-5s %-8s %-17s", r.Outcome, r.Rule, strings.Join(r.Taints, "+"))
			}
			b.WriteString("\n")
		}
	}
	got := trimLines(b.String())
	const golden = "../../testdata/policy/trifecta.golden"
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}
