package policy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/security/policy"
)

// cases reads the behavior of public predecessors. The shared folder may be absent,
// except in CI.
func cases(t *testing.T, name string, into any) bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../shared/cases", name))
	if err != nil {
		require.Empty(t, os.Getenv("CI"), "CI needs the cases: %v", err)
		return false
	}
	require.NoError(t, json.Unmarshal(b, into))
	return true
}

// trustCase is a case of the file-backed gate.
type trustCase struct {
	Suite string `json:"suite"`
	Name  string `json:"name"`
	Input struct {
		Defaults        map[string]any            `json:"defaults"`
		Services        map[string]map[string]any `json:"services"`
		ContainsSecrets bool                      `json:"contains_secrets"`
		Ops             []string                  `json:"ops"`
	} `json:"input"`
	Expected struct {
		Allowed    *bool  `json:"allowed"`
		Reason     string `json:"reason"`
		NeedsCop   *bool  `json:"needs_cop"`
		NeedsHuman *bool  `json:"needs_human"`
		Corruption *bool  `json:"corruption"`
		Secret     *bool  `json:"secret"`
	} `json:"expected"`
}

func property(v any) approval.Property {
	switch v := v.(type) {
	case bool:
		if v {
			return "true"
		}
		return "false"
	case string:
		return approval.Property(v)
	}
	return ""
}

func (c *trustCase) trust(service string) approval.Trust {
	get := func(key string) approval.Property {
		if v, ok := c.Input.Services[service][key]; ok {
			return property(v)
		}
		return property(c.Input.Defaults[key])
	}
	return approval.Trust{
		PublicSource: get("public_source"), SecretData: get("secret_data"),
		PublicSink: get("public_sink"), DangerousWrites: get("dangerous_writes"),
	}
}

// op runs one operation: a read is a mail:read, a write a channel:out, at full
// autonomy, where the table allows both and only trust decides.
func (c *trustCase) op(t *testing.T, e *policy.Engine, op string) approval.Ruling {
	t.Helper()
	verb, rest, _ := strings.Cut(op, " ")
	if verb == "file" {
		return approval.Ruling{}
	}
	service, payload, _ := strings.Cut(rest, " ")
	f := factsFor(map[string]string{"read": "mail:read", "write": "channel:out"}[verb])
	f.Autonomy, f.Tool, f.Trust = grant.Full, service, c.trust(service)
	if strings.Contains(payload, "AKIA") {
		e.Scan = func(*approval.Facts) []approval.Finding {
			return []approval.Finding{{Kind: "aws-access-token", Where: "body", Length: 20}}
		}
	}
	r := e.Judge(f)
	if r.Outcome != approval.Deny {
		e.Learn(event.Entry{Event: event.Approved, Workspace: "w", Time: noon, Taints: r.Taints})
	}
	return r
}

// needs_cop, a call of an LLM judge, has no counterpart: here such a read adds a
// taint, and the trifecta asks a person.
func TestPredecessorTrustCases(t *testing.T) {
	var all struct{ Cases []json.RawMessage }
	if !cases(t, "files-chat-trust.json", &all) {
		return
	}
	played := 0
	for _, raw := range all.Cases {
		var head struct{ Suite string }
		require.NoError(t, json.Unmarshal(raw, &head))
		if head.Suite != "policy" {
			continue
		}
		var c trustCase
		require.NoError(t, json.Unmarshal(raw, &c))
		played++
		t.Run(c.Name, func(t *testing.T) {
			cfg := policy.Config{}
			if c.Input.ContainsSecrets {
				cfg.Secrets = []string{"w"}
			}
			e := engine(t, cfg)
			var last approval.Ruling
			for _, op := range c.Input.Ops {
				last = c.op(t, e, op)
			}
			want := c.Expected
			if want.Allowed != nil {
				require.Equal(t, *want.Allowed, last.Outcome != approval.Deny, last.Reasons)
			}
			if want.NeedsHuman != nil {
				require.Equal(t, *want.NeedsHuman, last.Outcome == approval.Ask, last.Reasons)
			}
			if want.Reason != "" {
				require.Contains(t, texts(last.Reasons), commonReason(want.Reason))
			}
			taints := e.Taints("w")[""]
			if want.Corruption != nil {
				require.Equal(t, *want.Corruption, slices.Contains(taints, grant.TaintCorruption))
			}
			if want.Secret != nil {
				require.Equal(t, *want.Secret, slices.Contains(taints, grant.TaintSecret))
			}
		})
	}
	require.GreaterOrEqual(t, played, 16)
}

// commonReason is our reason for the predecessor's "Reading from 'email' is forbidden (…)",
// without the property.
func commonReason(reason string) string {
	s, _, _ := strings.Cut(strings.ToLower(reason), " (")
	return strings.NewReplacer("reading from '", "forbidden_read ", "writing to '", "forbidden_write ", "' is forbidden", "").Replace(s)
}

func texts(reasons []approval.Reason) (all []string) {
	for _, r := range reasons {
		all = append(all, r.Code+" "+r.Args["tool"])
	}
	return all
}

// The predecessor's capability policy, by case name. Its other cases are about its
// cards, dialogs and callbacks.
func TestPredecessorGrantCases(t *testing.T) {
	played := map[string]func(t *testing.T){
		"policy.registry_size": func(t *testing.T) { require.Len(t, facts.Capabilities(), 13) },
		"grant.unknown_capability": func(t *testing.T) {
			g := grants(factsFor("fs:write"))[2]
			g.TargetKind = "fs:delete"
			require.Error(t, engine(t, policy.Config{}).AddGrant(g))
		},
		"grant.revoke": func(t *testing.T) {
			f := factsFor("fs:write")
			g := grants(f)[2]
			e := engine(t, policy.Config{})
			addGrants(t, e, g)
			g.RevokedAt = noon.Add(-time.Second)
			addGrants(t, e, g)
			require.Equal(t, approval.Ask, e.Judge(f).Outcome)
			require.Len(t, e.Grants(), 1, "a revoked grant stays in the list")
		},
		"grant.lifts": func(t *testing.T) {
			f := factsFor("fs:write")
			e := engine(t, policy.Config{})
			addGrants(t, e, grants(f)[2])
			require.Equal(t, approval.Allow, e.Judge(f).Outcome)
		},
	}
	reasons := map[string]string{
		"policy.new_caps":               "the set is closed: 13",
		"policy.conditional_capability": "a tool has one capability; [[rules]] have conditions on arguments",
		"grant.glob_is_exact":           "a defect: a path grant covers the files under it (TestPathGrantCoversFilesBelow)",
		"grant.bad_expiry":              "a defect: an unparsable date is expired (TestUnparsableDateIsExpiredNotEternal)",
		"grant.list_filters":            "permesso grants filters",
	}
	// The other cases are not about policy, or about parts outside the design.
	elsewhere := map[string]string{
		"registry.":      "approvals are files; approval/gate tests the slot",
		"callback.":      "buttons belong to channels that have them",
		"card.":          "chat tests the card strings",
		"yesno":          "no free yes or no: the grammar is commands and codes (chat)",
		"start_consent.": "here a grant or an exact command line allows programs",
		"cap.":           "its buttons and files",
		"inline.":        "its keyboards",
		"dialog.":        "its dialogs",
		"gate.":          "its plans with placeholders; here the complete request is judged and shown",
		"admin.":         "lists of shell commands: never judged safe by pattern (DESIGN, Not here)",
	}
	var all struct {
		Cases []struct{ Name string }
	}
	if cases(t, "policy-grants-cards.json", &all) {
		for _, c := range all.Cases {
			_, plays := played[c.Name]
			for prefix := range elsewhere {
				plays = plays || strings.HasPrefix(c.Name, prefix)
			}
			require.True(t, plays || reasons[c.Name] != "", "%s has neither a test nor a reason", c.Name)
		}
	}
	for name, f := range played {
		t.Run(name, f)
	}
}

// The predecessor with proofs, by case name. There a program's facts entail a rule's
// clauses, here the effects of a verified proof do.
func TestPredecessorProofCases(t *testing.T) {
	blocked, internal := denyUnless(neverTo("ceo@example.com")), allowWhen(
		only("bob@example.com", "ann@example.com"),
		policy.Clause{Domain: "email", Op: "send", Kind: policy.Unique, Arg: "recipients"},
		policy.Clause{Domain: "email", Op: "send", Kind: policy.AtMost, Max: 10},
	)
	blocked.Name, internal.Name = "deny-blocked-recipients", "auto-pass-internal"
	judge := func(e approval.Evidence) approval.Ruling {
		f := factsFor("channel:out")
		f.Evidence = e
		return engine(t, policy.Config{Rules: []policy.Rule{blocked, internal}}).Judge(f)
	}
	is := func(e approval.Evidence, o approval.Outcome, rule string) func(*testing.T) {
		return func(t *testing.T) {
			r := judge(e)
			require.Equal(t, []any{o, rule}, []any{r.Outcome, r.Rule}, r.Reasons)
		}
	}
	bad := func(r policy.Rule, why string) func(*testing.T) {
		return func(t *testing.T) {
			require.ErrorContains(t, (&policy.Engine{}).Load(policy.Config{Rules: []policy.Rule{r}}), why)
		}
	}
	gap := func(statuses ...string) *facts.Domain {
		e := runs(mailTo("bob@example.com"))
		for _, s := range statuses {
			e.Proof.Coverage = append(e.Proof.Coverage, approval.ProofCoverage{Domain: "email", Status: s, Missing: []string{"unique_recipients"}})
		}
		for _, d := range facts.ByDomain(e) {
			if d.Domain == "mail" {
				return &d
			}
		}
		return nil
	}
	played := map[string]func(t *testing.T){
		"policy.auto_pass_on_entailment":      is(runs(mailTo("bob@example.com")), approval.Allow, "auto-pass-internal"),
		"policy.entailment_not_text":          is(coverage(runs(mailTo("ann@example.com")), "email", "silent_gap"), approval.Allow, "auto-pass-internal"),
		"policy.outside_allowlist":            is(runs(mailTo("stranger@example.net")), approval.Ask, "table"),
		"policy.deny_when_avoidance_unproven": is(runs(mailTo("ceo@example.com")), approval.Deny, "deny-blocked-recipients"),
		"policy.wrong_clause_key":             bad(policy.Rule{Outcome: approval.Deny, WhenProven: []policy.Clause{only("a@x")}}, "when_proven belongs to an allow"),
		"policy.bad_clause_syntax":            bad(allowWhen(only()), "only needs a value"),
		"policy.load_file": func(t *testing.T) {
			r := engine(t, policy.Config{Rules: []policy.Rule{internal, blocked}}).Judge(factsFor("channel:out"))
			require.Equal(t, "deny-blocked-recipients", r.Rule, "a deny wins in any order")
		},
		"policy.bad_decision": func(t *testing.T) {
			var o approval.Outcome
			require.Error(t, o.UnmarshalText([]byte("approved_once")))
		},
		"coverage.recommended_gap": func(t *testing.T) {
			require.Equal(t, []string{"unique_recipients"}, gap("recommended_gap").Gaps[0].Missing)
			require.True(t, gap("recommended_gap").Known())
		},
		"coverage.silent_gap":          func(t *testing.T) { require.True(t, gap("silent_gap").Known(), "its effects are still proven") },
		"coverage.required_precedence": func(t *testing.T) { require.False(t, gap("recommended_gap", "required_gap").Known()) },
		"coverage.unused": func(t *testing.T) {
			for _, d := range facts.ByDomain(runs(mailTo("bob@example.com"))) {
				require.Contains(t, []string{"mail", "program"}, d.Domain, "a domain that is not mentioned is unknown")
			}
		},
	}
	// Why the other cases have no test here.
	elsewhere := map[string]string{
		"policy.service_":  "approval/gate: TestEvidenceIsKept has all three",
		"service.":         "its server and pages: chat and chat/web test them",
		"run.":             "whole programs approved by their trace come with permesso run (DESIGN, Not here)",
		"coverage.load":    "packages of trusted functions are the prover's, with permesso run",
		"required.":        "the prover proves, with permesso run; here its result is read",
		"cli.policy_check": "permesso policy test: testdata/script/proof.txtar, the mismatch too",
		"cli.":             "its prover",
		"dry_run.":         "its prover",
		"fluents.":         "its prover; here args.times says how often, and what is unknown is not proven",
		"loops.":           "its prover",
		"lambda.":          "its prover",
		"chained.":         "its prover",
		"config.claude_":   "permesso hook install writes settings of agents",
		"install.":         "its packages",
	}
	var all struct {
		Cases []struct{ Name string }
	}
	if cases(t, "dialog-receipts.json", &all) {
		known := map[string]bool{}
		for _, c := range all.Cases {
			known[c.Name] = true
			_, plays := played[c.Name]
			for prefix := range elsewhere {
				plays = plays || strings.HasPrefix(c.Name, prefix)
			}
			require.True(t, plays, "%s has neither a test nor a reason", c.Name)
		}
		for name := range played {
			require.True(t, known[name], "%s is no longer a case", name)
		}
	}
	for name, f := range played {
		t.Run(name, f)
	}
}
