package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/security/policy"
)

// opaque is a step whose argument "to" is the result of an earlier one.
func opaque() approval.Facts {
	f := programOf("fs:write")[0]
	f.Args, f.Opaque = approval.Raw(`{"note":"hi"}`), []string{"to"}
	f.Declared = map[string]approval.Argument{"note": {}, "to": {Type: facts.TypeRecipients}}
	return f
}

// A value that is not known yet meets no condition of an allow, and may meet every one of a deny or an ask.
func TestOpaqueArgumentMeetsNoConditionOfAnAllow(t *testing.T) {
	for why, c := range map[string]policy.Condition{
		"patterns": {Field: "to", Is: []string{"bob@example.com"}},
		"optional": {Field: "to", Is: []string{"bob@example.com"}, Optional: true},
		"no value": {Field: "to", Is: []string{}},
		"null":     {Field: "to", Equals: approval.Raw("null")},
		"a member": {Field: "to.name", Equals: approval.Raw("1")},
		"any text": {Field: "to", Matches: "(?s).*"},
	} {
		r := rule(approval.Allow)
		r.Args = []policy.Condition{c}
		require.NoError(t, r.Check(), why)
		judged := engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(opaque())
		require.Equal(t, approval.Ask, judged.Outcome, why)
		require.Equal(t, "rule_unevaluated rule=r", judged.Reasons[1].String(), why)
		for _, o := range []approval.Outcome{approval.Deny, approval.Ask} {
			r.Outcome = o
			f := opaque()
			f.Autonomy = grant.Full
			require.Equal(t, approval.Ask, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome, "%s, %s", why, o)
		}
	}
}

// An argument is there, even if its value is not known yet.
func TestOpaqueArgumentCountsAsPresent(t *testing.T) {
	r := rule(approval.Allow)
	r.Args, r.OnlyArgs = []policy.Condition{{Field: "note", Is: []string{"hi"}}}, true
	f := opaque()
	require.Equal(t, approval.Ask, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome)
	f.Opaque = nil
	require.Equal(t, approval.Allow, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome)

	r.OnlyArgs = false // a capability that always asks needs a condition on every argument
	f = opaque()
	f.Capability = "mail:send"
	judged := engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f)
	require.Equal(t, approval.Ask, judged.Outcome)
	require.Equal(t, "note_always_asks", judged.Reasons[1].Args["note"])
	f.Opaque = nil
	require.Equal(t, approval.Allow, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome)
}

// A name with a dot is not taken for a member of another argument.
func TestOpaqueArgumentWithADot(t *testing.T) {
	f := opaque()
	f.Args, f.Opaque = approval.Raw(`{"a":{"b":"x"}}`), []string{"a.b"}
	f.Declared = map[string]approval.Argument{"a": {Type: facts.TypeJSON}, "a.b": {}}
	r := rule(approval.Allow)
	r.Args = []policy.Condition{{Field: "a.b", Is: []string{"x"}}}
	require.Equal(t, approval.Ask, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome)
	f.Opaque = nil
	require.Equal(t, approval.Allow, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome)
}

// A target that depends on such a value is not known either.
func TestOpaqueTargetIsNotKnown(t *testing.T) {
	f := opaque()
	f.Capability, f.Target = "", facts.Expand("mail/{to}", f.Args)
	r := rule(approval.Deny)
	r.Target = []string{"mail/bob"}
	require.False(t, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Reason("rule_deny_unsure").IsZero())
	r.Outcome, r.Target = approval.Allow, []string{"mail/*"}
	f.Trust.DangerousWrites = "true"
	require.Equal(t, approval.Ask, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome)
	f.Target = "mail/ann"
	require.Equal(t, approval.Allow, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome, "the target has no such value")
}

// No grant covers a value that no person has seen.
func TestGrantsDoNotCoverOpaqueArguments(t *testing.T) {
	known := opaque()
	known.Opaque = nil
	for _, g := range grants(known)[1:] {
		e := engine(t, policy.Config{})
		addGrants(t, e, g)
		require.Equal(t, approval.Allow, e.Judge(known).Outcome, g.Form)
		require.Equal(t, approval.Ask, e.Judge(opaque()).Outcome, g.Form)
	}
	known.Capability = "mail:send"
	e := engine(t, policy.Config{})
	r := e.Judge(known)
	g := grants(known)[1]
	g.Terms = e.Offers(known, r)[1].Terms
	require.Equal(t, grant.Again, g.Form)
	addGrants(t, e, g)
	require.Equal(t, approval.Allow, e.Judge(known).Outcome)
	f := opaque()
	f.Capability = "mail:send"
	r = e.Judge(f)
	require.Equal(t, approval.Ask, r.Outcome)
	require.True(t, r.Soft)
	require.Empty(t, r.Exact)
}
