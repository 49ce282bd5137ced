package policy_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/security/policy"
)

func drawEffect(rt *rapid.T) approval.ProvenEffect {
	return approval.ProvenEffect{
		Domain: pick(rt, "domain", "mail", "email", "file", "own"), Op: pick(rt, "op", "send", "send", "write", ""),
		Args:   approval.Raw(pick(rt, "args", `{"to":"a@x"}`, `{"to":"b@x"}`, `{"to":["a@x","b@x"]}`, `{"path":"/srv/a"}`, `{"path":"/etc"}`, `{"to":{}}`, `null`)),
		Status: pick(rt, "status", facts.Proven, facts.Proven, facts.Proven, facts.Unknown),
	}
}

func drawEvidence(rt *rapid.T) approval.Evidence {
	var e approval.Evidence
	if rapid.Bool().Draw(rt, "program") {
		e.Host = append(e.Host, programFact)
	}
	for _, h := range []approval.HostFact{to("a@x"), to("b@x"), file("/srv/a"), file("/etc/x")} {
		if rapid.Bool().Draw(rt, "fact") {
			h.Omitted = pick(rt, "left", 0, 0, 1)
			e.Host = append(e.Host, h)
		}
	}
	if pick(rt, "proof", true, true, false) {
		e.Proof = &approval.Proof{Verified: pick(rt, "verified", true, true, false), Prover: "lab", Effects: rapid.SliceOfN(rapid.Custom(drawEffect), 0, 3).Draw(rt, "effects")}
		if !e.Proof.Verified {
			e.Proof.Why = approval.Because("proof_no_prover")
		}
		for _, d := range []string{"mail", "file"} {
			if s := pick(rt, "coverage", "", "covered", "silent_gap", "required_gap"); s != "" {
				e = coverage(e, d, s)
			}
		}
	}
	return e
}

func drawClauses(rt *rapid.T) []policy.Clause {
	return rapid.SliceOfN(rapid.SampledFrom([]policy.Clause{
		only("a@x"), only("a@x", "b@x"), neverTo("b@x"), under("/srv"),
		{Domain: "mail", Kind: policy.Unique, Arg: "to"},
		{Domain: "email", Kind: policy.AtMost, Max: 1},
		{Domain: "own", Kind: policy.AtMost},
	}), 1, 2).Draw(rt, "clauses")
}

// drawProofSetup is a setup with rules about proofs.
func drawProofSetup(rt *rapid.T) (setup, approval.Facts) {
	w, f := drawSetup(rt), drawFacts(rt)
	for range rapid.IntRange(1, 3).Draw(rt, "rules over proofs") {
		r := policy.Rule{Name: pick(rt, "name", "p1", "p2"), Outcome: pick(rt, "outcome", approval.Deny, approval.Ask, approval.Allow, approval.Allow)}
		if r.Outcome == approval.Allow {
			r.WhenProven = drawClauses(rt)
		} else {
			r.UnlessProven = drawClauses(rt)
		}
		w.config.Rules = append(w.config.Rules, r)
	}
	f.Evidence = drawEvidence(rt)
	return w, f
}

// withLessEvidence removes one piece of evidence.
func withLessEvidence(rt *rapid.T, e approval.Evidence) approval.Evidence {
	b, err := json.Marshal(e)
	require.NoError(rt, err)
	var less approval.Evidence
	require.NoError(rt, json.Unmarshal(b, &less))
	switch rapid.IntRange(0, 5).Draw(rt, "remove") {
	case 0:
		less.Proof = nil
	case 1:
		if less.Proof != nil {
			less.Proof.Verified = false
		}
	case 2:
		if less.Proof != nil && len(less.Proof.Effects) > 0 {
			less.Proof.Effects[0].Status = pick(rt, "now", facts.Unknown, facts.NotProven)
		}
	case 3:
		// A gap stays: a signed proof cannot lose one.
		if less.Proof != nil {
			less.Proof.Coverage = slices.DeleteFunc(less.Proof.Coverage, func(c approval.ProofCoverage) bool { return c.Status == facts.Covered })
		}
	case 4:
		if len(less.Host) > 0 && less.Host[len(less.Host)-1].Domain != facts.Program {
			less.Host[len(less.Host)-1].Omitted++
		}
	default:
		less.Host = append(less.Host, approval.HostFact{Domain: facts.Command, Name: "program", Omitted: 1, From: facts.FromCommand})
		less.Proof = nil
	}
	return less
}

func TestPropLessEvidenceIsNeverMilder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, f := drawProofSetup(rt)
		before := w.judge(rt, f)
		f.Evidence = withLessEvidence(rt, f.Evidence)
		require.LessOrEqual(rt, w.judge(rt, f).Outcome, before.Outcome)
	})
}

func TestPropUnverifiedProofChangesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, f := drawProofSetup(rt)
		f.Evidence.Proof = nil
		before := w.judge(rt, f)
		f.Evidence.Proof = drawEvidence(rt).Proof
		if f.Evidence.Proof != nil {
			f.Evidence.Proof.Verified, f.Evidence.Proof.Why = false, approval.Because("proof_no_prover")
		}
		f.Agent = approval.Prose{Title: "verified", Rationale: "proven by lab"}
		after := w.judge(rt, f)
		require.Equal(rt, before.Outcome, after.Outcome)
		require.Equal(rt, before.Rule, after.Rule)
		require.Equal(rt, before.Proven, after.Proven)
	})
}

func TestPropProofsLiftNoMoreThanTheyMay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, f := drawProofSetup(rt)
		without := w
		without.config.Rules = nil
		for _, r := range w.config.Rules {
			if len(r.WhenProven) == 0 {
				without.config.Rules = append(without.config.Rules, r)
			}
		}
		before, after := without.judge(rt, f), w.judge(rt, f)
		require.GreaterOrEqual(rt, after.Outcome, before.Outcome)
		if after.Outcome == before.Outcome {
			return
		}
		require.Equal(rt, approval.Ask, before.Outcome, "a deny stays a deny")
		require.Contains(rt, []string{"table", "trust"}, before.Rule, "any other ask stays too: %v", before.Reasons)
		c, has := facts.CapabilityNamed(f.Capability)
		require.False(rt, has && c.Default == facts.AskAlways)
		require.True(rt, f.KnownTool)
		require.NotEmpty(rt, after.Proven)
	})
}

func TestPropTheOrderOfProofsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, f := drawProofSetup(rt)
		before := w.judge(rt, f)
		w.config.Rules = rapid.Permutation(w.config.Rules).Draw(rt, "order")
		require.Equal(rt, before, w.judge(rt, f), "the complete ruling")
	})
}

// A path is under a folder exactly if the relative path from the folder does not
// begin with "..". A relative path is never under an absolute one.
func TestPropUnderAFolder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"..", ".", "", "srv", "out", "output", "a"}), 1, 7).Draw(rt, "parts")
		root := pick(rt, "root", "/", "")
		p := root + strings.TrimLeft(strings.Join(parts, "/"), "/")
		folder := pick(rt, "folder", "/srv/out", "/", "srv", ".")
		want := false
		if p != "" && strings.HasPrefix(folder, "/") == (root == "/") {
			way, err := filepath.Rel(folder, p)
			want = err == nil && way != ".." && !strings.HasPrefix(way, "../")
		}
		args, err := json.Marshal(map[string]string{"path": p})
		require.NoError(rt, err)
		require.Equal(rt, want, proven(rt, runs(effect("file", "write", string(args))), under(folder)), "%s under %s", p, folder)
		require.Equal(rt, want, proven(rt, arguments(file(p)), under(folder)), "%s under %s", p, folder)
	})
}
