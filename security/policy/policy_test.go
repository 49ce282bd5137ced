package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/policy"
)

func known(tool string) approval.Facts {
	return approval.Facts{Workspace: "personal", Tool: tool, KnownTool: true}
}

func allow(tool string) policy.Rule { return policy.Rule{Tool: tool, Outcome: approval.Allow} }
func ask(tool string) policy.Rule   { return policy.Rule{Tool: tool, Outcome: approval.Ask} }
func deny(tool string) policy.Rule  { return policy.Rule{Tool: tool, Outcome: approval.Deny} }

func TestJudge(t *testing.T) {
	unknown := approval.Facts{Workspace: "personal", Tool: "x_post"}
	release := approval.Facts{Workspace: "personal", ActionType: "exec_cmd"}
	pretended := approval.Facts{Workspace: "personal", KnownTool: true}
	question := known("x_post")
	question.Question = true
	inWork := allow("x_post")
	inWork.Workspace = "work"
	inPersonal := allow("x_post")
	inPersonal.Workspace = "pers*"
	denyWork := deny("")
	denyWork.Workspace = "work"

	for _, c := range []struct {
		why   string
		rules []policy.Rule
		facts approval.Facts
		want  approval.Outcome
		rule  string
	}{
		{"no rules: ask", nil, known("x_post"), approval.Ask, "default"},
		{"a rule for another tool", []policy.Rule{allow("y_post")}, known("x_post"), approval.Ask, "default"},
		{"allowed by name", []policy.Rule{allow("x_post")}, known("x_post"), approval.Allow, "allow x_post"},
		{"allowed by a pattern", []policy.Rule{allow("x_*")}, known("x_post"), approval.Allow, "allow x_*"},
		{"allowed by the star", []policy.Rule{allow("*")}, known("x_post"), approval.Allow, "allow *"},
		{"allowed by the empty pattern", []policy.Rule{allow("")}, known("x_post"), approval.Allow, "allow *"},
		{"a name is no beginning of names", []policy.Rule{allow("x_")}, known("x_post"), approval.Ask, "default"},
		{"case counts", []policy.Rule{allow("X_POST")}, known("x_post"), approval.Ask, "default"},
		{"another workspace", []policy.Rule{inWork}, known("x_post"), approval.Ask, "default"},
		{"this workspace, by a pattern", []policy.Rule{inPersonal}, known("x_post"), approval.Allow, "allow x_post in pers*"},
		{"ask beats allow", []policy.Rule{allow("x_post"), ask("*")}, known("x_post"), approval.Ask, "ask *"},
		{"deny beats both", []policy.Rule{allow("x_post"), ask("x_post"), deny("*")}, known("x_post"), approval.Deny, "deny *"},
		{"deny elsewhere does not", []policy.Rule{allow("x_post"), denyWork}, known("x_post"), approval.Allow, "allow x_post"},
		{"the zero rule denies", []policy.Rule{{}, allow("x_post")}, known("x_post"), approval.Deny, "deny *"},
		{"an outcome that does not exist denies", []policy.Rule{{Outcome: 7}}, known("x_post"), approval.Deny, "deny *"},

		{"a question asks, whatever is allowed", []policy.Rule{allow("x_post")}, question, approval.Ask, "question"},
		{"a question without rules", nil, question, approval.Ask, "question"},
		{"a question under an ask rule", []policy.Rule{ask("*")}, question, approval.Ask, "question"},
		{"a question can be denied", []policy.Rule{deny("x_*")}, question, approval.Deny, "deny x_*"},

		{"unknown tool: the star is not enough", []policy.Rule{allow("*"), allow(""), allow("x_*")}, unknown, approval.Ask, "default"},
		{"unknown tool, by name", []policy.Rule{allow("x_post")}, unknown, approval.Allow, "allow x_post"},
		{"unknown tool, denied by the star", []policy.Rule{deny("*")}, unknown, approval.Deny, "deny *"},
		{"unknown tool that is called like a pattern", []policy.Rule{allow("x_*")}, approval.Facts{Tool: "x_*"}, approval.Ask, "default"},
		{"release-only: nothing to name", []policy.Rule{allow(""), allow("*"), allow("exec_cmd")}, release, approval.Ask, "default"},
		{"release-only that claims to be known", []policy.Rule{allow(""), allow("*")}, pretended, approval.Ask, "default"},
		{"release-only, denied by the star", []policy.Rule{deny("")}, release, approval.Deny, "deny *"},
		{"the zero facts", []policy.Rule{allow("*")}, approval.Facts{}, approval.Ask, "default"},

		{"a broken pattern allows nothing", []policy.Rule{allow("*_post")}, known("x_post"), approval.Ask, "default"},
		{"nor does one that would fit as a name", []policy.Rule{allow("a*b")}, known("a*b"), approval.Ask, "default"},
		{"a broken pattern denies everything", []policy.Rule{allow("x_post"), deny("y*z")}, known("x_post"), approval.Deny, "deny y*z"},
	} {
		got := (&policy.Policy{Rules: c.rules}).Judge(c.facts)
		require.Equal(t, c.want, got.Outcome, c.why)
		require.Equal(t, c.rule, got.Rule, c.why)
		require.NotEmpty(t, got.Reasons, c.why)
	}
	var none *policy.Policy
	require.Equal(t, approval.Ask, none.Judge(known("x_post")).Outcome, "no policy at all")
}

func TestEveryReasonIsTold(t *testing.T) {
	p := policy.Policy{Rules: []policy.Rule{
		{Name: "mine", Tool: "x_post", Outcome: approval.Allow, Reason: "my own account"},
		{Tool: "x_*", Outcome: approval.Ask},
		{Name: "lockdown", Outcome: approval.Deny, Reason: "until Monday"},
		{Name: "other", Tool: "y", Outcome: approval.Deny},
	}}
	require.Equal(t, approval.Ruling{Outcome: approval.Deny, Rule: "lockdown", Reasons: []string{
		`deny by rule "lockdown": until Monday`,
		`ask by rule "ask x_*"`,
		`allow by rule "mine": my own account`,
	}}, p.Judge(known("x_post")))

	p.Rules = p.Rules[:1]
	question := known("x_post")
	question.Question = true
	require.Equal(t, []string{
		`allow by rule "mine": my own account (but a question is for a person)`,
		"a question is for a person",
	}, p.Judge(question).Reasons)
	require.Equal(t, []string{"no rule allows it"}, p.Judge(known("z")).Reasons)

	p.Rules[0].Tool = "*"
	require.Equal(t, []string{
		`allow by rule "mine": my own account (but it does not name this tool, which is unknown here)`,
		"no rule allows it",
	}, p.Judge(approval.Facts{Tool: "z"}).Reasons)
}

func TestCheck(t *testing.T) {
	for _, ok := range []string{"", "*", "x", "x_*"} {
		require.NoError(t, (&policy.Policy{Rules: []policy.Rule{{Tool: ok, Workspace: ok}}}).Check(), ok)
	}
	for _, bad := range []string{"**", "*x", "a*b", "x**"} {
		require.ErrorContains(t, (&policy.Policy{Rules: []policy.Rule{{}, {Tool: bad}}}).Check(), "rule 2", bad)
		require.Error(t, (&policy.Policy{Rules: []policy.Rule{{Workspace: bad}}}).Check(), bad)
	}
}

// Few names, so that rules meet requests often.
var (
	names    = rapid.SampledFrom([]string{"", "x", "x_a", "x_b", "y"})
	patterns = rapid.SampledFrom([]string{"", "*", "x", "x_*", "x*", "x_a", "y", "*a", "a*b"})
	outcomes = rapid.SampledFrom([]approval.Outcome{approval.Deny, approval.Ask, approval.Allow, 9})
	rules    = rapid.Custom(func(t *rapid.T) policy.Rule {
		return policy.Rule{
			Name: rapid.SampledFrom([]string{"", "n", "m"}).Draw(t, "name"), Tool: patterns.Draw(t, "tool"),
			Workspace: patterns.Draw(t, "workspace"), Outcome: outcomes.Draw(t, "outcome"),
			Reason: rapid.SampledFrom([]string{"", "because"}).Draw(t, "reason"),
		}
	})
	lists = rapid.SliceOfN(rules, 0, 6)
	facts = rapid.Custom(func(t *rapid.T) approval.Facts {
		return approval.Facts{
			Workspace: names.Draw(t, "workspace"), Tool: names.Draw(t, "tool"),
			KnownTool: rapid.Bool().Draw(t, "known"), Question: rapid.Bool().Draw(t, "question"),
		}
	})
)

func judge(list []policy.Rule, f approval.Facts) approval.Ruling {
	return (&policy.Policy{Rules: list}).Judge(f)
}

func TestOrderIsIrrelevant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, f := lists.Draw(t, "rules"), facts.Draw(t, "facts")
		require.Equal(t, judge(list, f), judge(rapid.Permutation(list).Draw(t, "order"), f), "reasons included")
	})
}

func TestMoreRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, f, more := lists.Draw(t, "rules"), facts.Draw(t, "facts"), rules.Draw(t, "one more")
		before, after := judge(list, f), judge(append(list[:len(list):len(list)], more), f)
		if more.Outcome == approval.Allow {
			require.GreaterOrEqual(t, after.Outcome, before.Outcome, "an allow rule never makes stricter")
			require.False(t, before.Outcome == approval.Deny && after.Outcome != approval.Deny, "nor lifts a deny")
		} else {
			require.LessOrEqual(t, after.Outcome, before.Outcome, "another rule never makes milder")
		}
		require.GreaterOrEqual(t, len(after.Reasons)+1, len(before.Reasons), "no reason but the default goes away")
	})
}

func TestWhatIsAlwaysTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, f := lists.Draw(t, "rules"), facts.Draw(t, "facts")
		got := judge(list, f)
		require.NotEmpty(t, got.Rule)
		require.NotEmpty(t, got.Reasons)
		if got.Outcome != approval.Allow {
			return
		}
		require.False(t, f.Question)
		require.NotEmpty(t, f.Tool)
		named := false
		for _, r := range list {
			named = named || r.Outcome == approval.Allow && r.Tool == f.Tool
		}
		require.True(t, f.KnownTool || named && !strings.Contains(f.Tool, "*"))
	})
}
