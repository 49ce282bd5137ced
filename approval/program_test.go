package approval_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

func somePlan() *approval.Plan {
	return &approval.Plan{
		Source: "def main():\n    pass\n", Continues: someID, Needs: &approval.Needs{Step: 2, Line: 3},
		Guarantees: []approval.Guarantee{{Kind: approval.GuaranteeSum, Tool: "pay", Arg: "amount", Sum: "1.5", Currency: "EUR", Line: 2, State: approval.GuaranteeUnknown, Step: 1}},
		Steps: []approval.Step{
			{
				Call: approval.Call{Tool: "look", Data: approval.Raw(`{"at":"x"}`), Line: 2}, ToolSHA256: "aa", Declared: map[string]approval.Argument{"at": {}},
				Of: someID, ResultSHA256: "bb", Failed: "no", Ruling: approval.Ruling{Outcome: approval.Allow, Reasons: []approval.Reason{}},
			},
			{
				Call:       approval.Call{Tool: "save", Data: approval.Raw(`{}`), Opaque: []approval.ResultRef{{Arg: "content", Step: 1, At: "/a"}}, Line: 3, Try: true},
				ToolSHA256: "cc", Declared: map[string]approval.Argument{"content": {Type: "text"}}, Capability: "fs:write", Target: "t",
				Reversibility: approval.Partial, Ruling: approval.Ruling{Outcome: approval.Ask, Reasons: []approval.Reason{}},
			},
		},
	}
}

// TestPlanInDocuments: documents keep a plan as it is.
func TestPlanInDocuments(t *testing.T) {
	p := somePending()
	p.Plan = somePlan()
	b, err := p.Encode()
	require.NoError(t, err)
	back, err := approval.ParsePending(b, someKey())
	require.NoError(t, err)
	require.Equal(t, p.Plan, back.Plan)
	require.Equal(t, p.Plan.SHA256(), back.Plan.SHA256())
}

// TestPlanSHA256: a plan that does something else has another digest. The ids of requests and the rulings are not in it.
func TestPlanSHA256(t *testing.T) {
	digest := somePlan().SHA256()
	for name, change := range map[string]func(p *approval.Plan){
		"the program":         func(p *approval.Plan) { p.Source += "#" },
		"a step less":         func(p *approval.Plan) { p.Steps = p.Steps[:1] },
		"the order":           func(p *approval.Plan) { slices.Reverse(p.Steps) },
		"a tool":              func(p *approval.Plan) { p.Steps[1].Tool = "other" },
		"an argument":         func(p *approval.Plan) { p.Steps[0].Data = approval.Raw(`{"at":"y"}`) },
		"an opaque argument":  func(p *approval.Plan) { p.Steps[1].Opaque[0].At = "/b" },
		"try_":                func(p *approval.Plan) { p.Steps[1].Try = false },
		"the line":            func(p *approval.Plan) { p.Steps[1].Line++ },
		"a tool's definition": func(p *approval.Plan) { p.Steps[1].ToolSHA256 = "dd" },
		"a result":            func(p *approval.Plan) { p.Steps[0].ResultSHA256 = "dd" },
		"a failure":           func(p *approval.Plan) { p.Steps[0].Failed = "" },
		"what has run":        func(p *approval.Plan) { p.Steps[1].Of = someID },
		"its end":             func(p *approval.Plan) { p.Needs = nil },
		"where it ends":       func(p *approval.Plan) { p.Needs.Line++ },
	} {
		p := somePlan()
		change(p)
		require.NotEqual(t, digest, p.SHA256(), name)
	}
	p := somePlan()
	p.Continues, p.Steps[0].Of = "", "ffffffffffffffff"
	p.Steps[1].Ruling.Outcome = approval.Deny
	require.Equal(t, digest, p.SHA256())
}

func TestStepKeys(t *testing.T) {
	k := someKey()
	for _, n := range []int{1, 9, 10, approval.MaxSteps} {
		request, step := approval.CutStep(k.StepKey(n).ID)
		require.Equal(t, k.ID, request)
		require.Equal(t, n, step)
		require.True(t, approval.ValidDocument(k.StepKey(n).ID))
		require.False(t, approval.ValidName(k.StepKey(n).ID), "no agent can name a step")
		require.False(t, approval.ValidID(k.StepKey(n).ID))
	}
	for _, id := range []string{someID, someID + ".step-0", someID + ".step-01", someID + ".step-", someID + ".step-1.step-2", "x.step-1", someID + ".step-257", someID + ".step--1", ".step-1"} {
		_, n := approval.CutStep(id)
		require.Zero(t, n, id)
	}
	require.True(t, approval.ValidDocument(someID))
	require.False(t, approval.ValidDocument("../x"))
	require.True(t, approval.ValidID(approval.ContinuationID(someID)))
	require.NotEqual(t, approval.ContinuationID(someID), approval.ContinuationID(approval.ContinuationID(someID)))
}

func TestPlanReversibility(t *testing.T) {
	p := somePlan()
	require.Equal(t, approval.Partial, p.Reversibility(), "what has run does not count")
	p.Steps[1].Reversibility = ""
	require.Equal(t, approval.Irreversible, p.Reversibility())
	p.Steps[1].Reversibility = approval.Reversible
	require.Equal(t, approval.Reversible, p.Reversibility())
	require.Equal(t, approval.Reversible, (&approval.Plan{}).Reversibility())
}
