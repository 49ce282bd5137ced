package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/permesso-dev/permesso/approval/codec"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/security/policy"
)

// Each of the five questions gives its reasons, in the questions' order.
func TestReasonsOfTheFiveQuestions(t *testing.T) {
	sink, dangerous, forbidden, noSource := harmless, harmless, harmless, harmless
	sink.PublicSink, dangerous.DangerousWrites, forbidden.PublicSink, noSource.PublicSource = "true", "true", "forbidden", "forbidden"
	limits := func(l policy.Limits) policy.Config { return policy.Config{Limits: map[string]policy.Limits{"w": l}} }
	rules := func(r ...policy.Rule) policy.Config { return policy.Config{Rules: r} }
	gone := []policy.Condition{{Field: "gone", Is: []string{"x"}}}
	none := policy.Rate{Per: time.Hour}
	const ask = "table_ask capability=fs:write level=supervised"
	for _, tc := range []struct {
		why     string
		config  policy.Config
		change  func(*approval.Facts)
		outcome approval.Outcome
		reasons []string
		changes []string
	}{
		{"1 a deny rule", rules(policy.Rule{Name: "never", Outcome: approval.Deny, Reason: "no"}), nil, approval.Deny, []string{ask, "rule_deny rule=never words=no"}, nil},
		{"1 a deny rule that cannot be evaluated", rules(policy.Rule{Name: "never", Outcome: approval.Deny, Args: gone}), nil, approval.Ask, []string{ask, "rule_deny_unsure rule=never"}, nil},
		{"1 a forbidden write", policy.Config{}, func(f *approval.Facts) { f.Trust = forbidden }, approval.Deny, []string{ask, "forbidden_write property=public_sink tool=t"}, nil},
		{"1 a forbidden read", policy.Config{}, func(f *approval.Facts) { f.Trust, f.Capability = noSource, "fs:read" }, approval.Deny, []string{"table_ask capability=fs:read level=supervised", "forbidden_read property=public_source tool=t"}, nil},
		{"1 a hard rate", limits(policy.Limits{Deny: map[string]policy.Rate{"fs:write": none}}), nil, approval.Deny, []string{ask, "rate_deny capability=fs:write n=0 per=1h0m0s"}, nil},
		{"1 a hard budget", limits(policy.Limits{Day: policy.Budget{Hard: codec.Units(4)}}), func(f *approval.Facts) { f.Cost = codec.Units(5) }, approval.Deny, []string{ask, "cost_day_deny max=4 n=5"}, nil},
		{"2 the table allows", policy.Config{}, func(f *approval.Facts) { f.Autonomy = grant.Full }, approval.Allow, []string{"table_allow capability=fs:write level=full"}, nil},
		{"2 the table asks", policy.Config{}, nil, approval.Ask, []string{ask}, []string{"raise_autonomy capability=fs:write level=full"}},
		{"2 the table denies", policy.Config{}, func(f *approval.Facts) { f.Autonomy = grant.ReadOnly }, approval.Deny, []string{"table_deny capability=fs:write level=readonly"}, []string{"raise_autonomy capability=fs:write level=supervised"}},
		{"2 no capability of ours", policy.Config{}, func(f *approval.Facts) { f.Capability = "fs:delete" }, approval.Deny, []string{"unknown_capability capability=fs:delete"}, nil},
		{"2 an ask rule", rules(policy.Rule{Name: "careful", Outcome: approval.Ask}), nil, approval.Ask, []string{ask, "rule_ask rule=careful"}, nil},
		{"2 an allow rule", rules(policy.Rule{Name: "mine", Outcome: approval.Allow, Reason: "my wall"}), nil, approval.Allow, []string{ask, `rule_allow rule=mine words="my wall"`}, nil},
		{"2 an allow rule that cannot be evaluated", rules(policy.Rule{Name: "mine", Outcome: approval.Allow, Args: gone}), nil, approval.Ask, []string{ask, "rule_unevaluated rule=mine"}, nil},
		{"2 another rule asks", rules(policy.Rule{Name: "a", Outcome: approval.Ask}, policy.Rule{Name: "b", Outcome: approval.Allow}), nil, approval.Ask, []string{ask, "rule_ask rule=a", "rule_allow note=note_other_rule rule=b"}, nil},
		{"2 no rule lifts the table's deny", rules(rule(approval.Allow)), func(f *approval.Facts) { f.Autonomy = grant.ReadOnly }, approval.Deny, []string{"table_deny capability=fs:write level=readonly", "rule_allow note=note_table_deny rule=r"}, nil},
		{"2 no rule answers a question", rules(rule(approval.Allow)), func(f *approval.Facts) { f.Question = true }, approval.Ask, []string{ask, "rule_allow note=note_question rule=r", "question"}, nil},
		{"2 an unknown tool must be named", rules(policy.Rule{Name: "b", Outcome: approval.Allow}), func(f *approval.Facts) { f.KnownTool = false }, approval.Ask, []string{"rule_allow note=note_unknown_tool rule=b", "dangerous_writes tool=t"}, nil},
		{"2 what is always asked", rules(rule(approval.Allow)), func(f *approval.Facts) { f.Capability = "mail:send" }, approval.Ask, []string{"table_ask capability=mail:send level=supervised", "rule_allow capability=mail:send note=note_always_asks rule=r"}, nil},
		{"2 no proof lifts that either", rules(allowWhen(only("a@example.com"))), func(f *approval.Facts) { f.Capability, f.Evidence = "mail:send", runs(mailTo("a@example.com")) }, approval.Ask, []string{"table_ask capability=mail:send level=supervised", "rule_allow note=note_no_proof rule=auto"}, nil},
		{"2 proven", rules(allowWhen(only("a@example.com"))), func(f *approval.Facts) { f.Evidence = runs(mailTo("a@example.com")) }, approval.Allow, []string{ask, "rule_allow rule=auto", `proven clauses="mail send: every recipient is a@example.com" prover=lab source=source_proof`}, nil},
		{"2 not proven", rules(allowWhen(only("a@example.com"))), func(f *approval.Facts) { f.Evidence = runs(mailTo("b@example.com")) }, approval.Ask, []string{ask, `rule_unproven clause="mail send: every recipient is a@example.com" gap=gap_other rule=auto`}, nil},
		{"2 not proven, for the proof is a claim", rules(denyUnless(only("a@example.com"))), func(f *approval.Facts) {
			f.Evidence = runs(mailTo("a@example.com"))
			f.Evidence.Proof.Verified, f.Evidence.Proof.Why = false, approval.Because("proof_no_field", "field", "code")
		}, approval.Deny, []string{ask, `rule_deny clause="mail send: every recipient is a@example.com" field=code gap=gap_claim rule=blocked why=proof_no_field`}, nil},
		{"2 an avoidance is proven", rules(denyUnless(only("a@example.com"))), func(f *approval.Facts) { f.Evidence = runs(mailTo("a@example.com")) }, approval.Ask, []string{ask, `rule_proven clauses="mail send: every recipient is a@example.com" prover=lab rule=blocked source=source_proof`}, nil},
		{"3 dangerous writes", policy.Config{}, func(f *approval.Facts) { f.Trust, f.Autonomy = dangerous, grant.Full }, approval.Ask, []string{"table_allow capability=fs:write level=full", "dangerous_writes tool=t"}, nil},
		{"3 nothing is dangerous", policy.Config{}, func(f *approval.Facts) { f.Capability = "" }, approval.Allow, []string{"not_dangerous tool=t"}, nil},
		{"4 a soft rate", limits(policy.Limits{Ask: map[string]policy.Rate{"": none}}), func(f *approval.Facts) { f.Capability = "" }, approval.Ask, []string{"not_dangerous tool=t", "rate_ask_bare n=0 per=1h0m0s"}, nil},
		{"4 a soft budget", limits(policy.Limits{Session: policy.Budget{Soft: codec.Units(4)}}), func(f *approval.Facts) { f.Cost = codec.Units(5) }, approval.Ask, []string{ask, "cost_session_ask max=4 n=5"}, nil},
	} {
		f := factsFor("fs:write")
		if tc.change != nil {
			tc.change(&f)
		}
		r := engine(t, tc.config).Judge(f)
		require.Equal(t, tc.outcome, r.Outcome, tc.why)
		require.Equal(t, tc.reasons, forms(r.Reasons), tc.why)
		if tc.changes != nil {
			require.Equal(t, tc.changes, forms(r.Change), tc.why)
		}
		requireKnown(t, r)
	}

	f := factsFor("fs:write")
	f.Trust, f.Autonomy = sink, grant.Full
	r := tainted(t, policy.Config{}).Judge(f)
	require.Equal(t, []string{"table_allow capability=fs:write level=full", "trifecta target=/data/a.txt tool=t"}, forms(r.Reasons), "3 the trifecta")
	require.Equal(t, []string{"clear_taints workspace=w", "rule_despite tool=t what=trifecta"}, forms(r.Change))

	e := engine(t, policy.Config{})
	e.Scan = func(*approval.Facts) []approval.Finding {
		return []approval.Finding{{Kind: "k", Where: "request_data.a", Length: 9}}
	}
	require.Equal(t, []string{ask, "secret kind=k n=9 where=request_data.a"}, forms(e.Judge(factsFor("fs:write")).Reasons), "4 a secret")

	g := grants(factsFor("fs:write"))[1]
	for why, tc := range map[string]struct {
		change func(*grant.Grant)
		want   string
	}{
		"5 a grant": {func(*grant.Grant) {}, "grant by=ann date=2026-11-21 grant=0000000000000002 kind=target"},
		"5 expired": {func(g *grant.Grant) { g.ExpiresAt = noon }, "grant_expired"},
		"5 revoked": {func(g *grant.Grant) { g.RevokedAt = noon }, "grant_revoked"},
	} {
		e, g := engine(t, policy.Config{}), g
		tc.change(&g)
		addGrants(t, e, g)
		require.Equal(t, []string{ask, tc.want}, forms(e.Judge(factsFor("fs:write")).Reasons), why)
	}
}

func forms(reasons []approval.Reason) (all []string) {
	for _, r := range reasons {
		all = append(all, r.String())
	}
	return all
}

// requireKnown requires that each code is in the closed list and has the args that are
// listed there.
func requireKnown(t *testing.T, r approval.Ruling) {
	t.Helper()
	for _, x := range append(r.Reasons, r.Change...) {
		args, known := approval.ReasonCodes()[x.Code]
		require.True(t, known, x)
		for name := range x.Args {
			require.True(t, slices.Contains(args, name) || slices.Contains(args, name+"?"), "%s: %s", x, name)
		}
		for _, name := range args {
			require.True(t, name[len(name)-1] == '?' || x.Args[name] != "", "%s lacks %s", x, name)
		}
	}
}
