package policy_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/security/policy"
)

const runID = "aaaaaaaaaaaaaaaa"

// programOf returns the facts of a whole program whose steps have these capabilities.
func programOf(capabilities ...string) (steps []approval.Facts) {
	p := &approval.ProgramFacts{SHA256: strings.Repeat("5e", 32), Tools: []string{"t"}, Steps: len(capabilities), Calls: map[string]int{"t": len(capabilities)}, Whole: true}
	for i, c := range capabilities {
		f := factsFor(c)
		f.RequestID, f.Program = approval.Key{ID: runID}.StepKey(i+1).ID, p
		steps = append(steps, f)
	}
	return steps
}

func outcomes(each []approval.Ruling) (all []approval.Outcome) {
	for _, r := range each {
		all = append(all, r.Outcome)
	}
	return all
}

// A program is ruled on as its strictest step is, and the reasons say which one that is.
func TestProgramIsAsStrictAsItsStrictestStep(t *testing.T) {
	const d, a, y = approval.Deny, approval.Ask, approval.Allow
	for why, tc := range map[string]struct {
		steps   []string
		level   string
		each    []approval.Outcome
		rule    string
		soft    bool
		reasons []string
	}{
		"all allowed": {[]string{"time:read", "llm:local"}, grant.Supervised, []approval.Outcome{y, y}, "table", false, []string{
			"program_step step=1 tool=t", "table_allow capability=time:read level=supervised",
			"program_step step=2 tool=t", "table_allow capability=llm:local level=supervised",
		}},
		"one asks": {[]string{"time:read", "fs:write", "llm:local"}, grant.Supervised, []approval.Outcome{y, a, y}, "table", true, []string{
			"program_step step=2 tool=t", "table_ask capability=fs:write level=supervised",
		}},
		"two ask alike": {[]string{"fs:write", "fs:write"}, grant.Supervised, []approval.Outcome{a, a}, "table", true, []string{
			"program_step step=1 tool=t", "table_ask capability=fs:write level=supervised",
		}},
		"one is denied": {[]string{"fs:read", "fs:write"}, grant.ReadOnly, []approval.Outcome{a, d}, "table", false, []string{
			"program_step step=2 tool=t", "table_deny capability=fs:write level=readonly",
		}},
	} {
		steps := programOf(tc.steps...)
		for i := range steps {
			steps[i].Autonomy = tc.level
		}
		run, each := engine(t, policy.Config{}).JudgeProgram(steps)
		require.Equal(t, tc.each, outcomes(each), why)
		require.Equal(t, tc.rule, run.Rule, why)
		require.Equal(t, tc.soft, run.Soft, why)
		require.Equal(t, tc.reasons, forms(run.Reasons), why)
		require.Equal(t, run.Outcome != y, len(run.Change) > 0, why)
		requireKnown(t, run)
	}

	run, each := engine(t, policy.Config{}).JudgeProgram(nil)
	require.Empty(t, each)
	require.Equal(t, approval.Ruling{Outcome: y, Rule: "program", Reasons: []approval.Reason{approval.Because("program_empty")}}, run)
	requireKnown(t, run)

	steps := programOf("fs:write", "fs:write")
	steps[0].RequestID, steps[1].RequestID = steps[1].RequestID, runID+".step-7"
	run, _ = engine(t, policy.Config{}).JudgeProgram(steps)
	require.Equal(t, "program_step step=2 tool=t", run.Reasons[0].String(), "steps that have run are not there, and keep their numbers")
}

// An ask that no grant lifts is the stricter one.
func TestHardAskOfAStepIsNamed(t *testing.T) {
	steps := programOf("fs:write", "fs:write", "fs:write")
	e := engine(t, policy.Config{Rules: []policy.Rule{{Name: "careful", Session: policy.Names{"other"}, Outcome: approval.Ask, Always: true}}})
	steps[1].SessionID = "other"
	run, each := e.JudgeProgram(steps)
	require.Equal(t, []bool{true, false, true}, []bool{each[0].Soft, each[1].Soft, each[2].Soft})
	require.Equal(t, "careful", run.Rule)
	require.False(t, run.Soft)
	require.Equal(t, "program_step step=2 tool=t", run.Reasons[0].String())
}

// What the earlier steps consume counts for the later ones, and for no one else.
func TestStepsConsumeInOrder(t *testing.T) {
	limits := func(l policy.Limits) policy.Config { return policy.Config{Limits: map[string]policy.Limits{"w": l}} }
	twice := map[string]policy.Rate{"fs:write": {Burst: 2, Per: time.Hour}}
	const d, a, y = approval.Deny, approval.Ask, approval.Allow
	for why, tc := range map[string]struct {
		config policy.Config
		steps  []string
		cost   codec.Cost
		change func([]approval.Facts)
		want   []approval.Outcome
	}{
		"a rate":       {limits(policy.Limits{Deny: twice}), []string{"fs:write", "fs:write", "fs:write"}, 0, nil, []approval.Outcome{y, y, d}},
		"another rate": {limits(policy.Limits{Deny: twice}), []string{"fs:write", "fs:read", "fs:write"}, 0, nil, []approval.Outcome{y, y, y}},
		"a day":        {limits(policy.Limits{Day: policy.Budget{Soft: codec.Units(5), Hard: codec.Units(8)}}), []string{"fs:read", "fs:write", "fs:read"}, codec.Units(3), nil, []approval.Outcome{y, a, d}},
		"a session":    {limits(policy.Limits{Session: policy.Budget{Hard: codec.Units(5)}}), []string{"fs:read", "fs:write"}, codec.Units(3), nil, []approval.Outcome{y, d}},
		"taints": {policy.Config{}, []string{"network:http", "mail:read", "network:http"}, 0, func(steps []approval.Facts) {
			for i := range steps {
				steps[i].Trust = approval.Trust{}
			}
		}, []approval.Outcome{y, y, a}},
	} {
		steps := programOf(tc.steps...)
		for i := range steps {
			steps[i].Autonomy, steps[i].Cost = grant.Full, tc.cost
		}
		if tc.change != nil {
			tc.change(steps)
		}
		e := engine(t, tc.config)
		for range 2 { // nothing is left of the first time
			run, each := e.JudgeProgram(steps)
			require.Equal(t, tc.want, outcomes(each), why)
			require.Equal(t, tc.cost*codec.Cost(len(steps)), run.Cost, why)
		}
		require.Equal(t, y, e.Judge(steps[0]).Outcome, why)
	}

	steps := programOf("mail:read", "network:http")
	for i := range steps {
		steps[i].Trust = approval.Trust{}
	}
	run, _ := engine(t, policy.Config{}).JudgeProgram(steps)
	require.Equal(t, []string{grant.TaintCorruption, grant.TaintSecret}, run.Taints, "each once")
}

// A step that is being run is not counted twice.
func TestRunningStepIsReservedOnce(t *testing.T) {
	e := engine(t, policy.Config{Limits: map[string]policy.Limits{"w": {Deny: map[string]policy.Rate{"fs:write": {Burst: 2, Per: time.Hour}}}}})
	steps := programOf("fs:write", "fs:write")
	for i := range steps {
		steps[i].Autonomy = grant.Full
	}
	undo, refused := e.Reserve(steps[0], e.Judge(steps[0]), false)
	require.Nil(t, refused)
	_, each := e.JudgeProgram(steps)
	require.Equal(t, []approval.Outcome{approval.Allow, approval.Allow}, outcomes(each))
	other := factsFor("fs:write")
	other.Autonomy, other.RequestID = grant.Full, "bbbbbbbbbbbbbbbb"
	require.Equal(t, approval.Allow, e.Judge(other).Outcome)
	_, refused = e.Reserve(other, e.Judge(other), false)
	require.Nil(t, refused)
	_, each = e.JudgeProgram(steps)
	require.Equal(t, []approval.Outcome{approval.Allow, approval.Deny}, outcomes(each))
	other.RequestID = "cccccccccccccccc"
	require.Equal(t, approval.Deny, e.Judge(other).Outcome, "the first step's reservation is still there")
	undo()
	require.Equal(t, approval.Allow, e.Judge(other).Outcome)
}

// Grants are used up in the order of the steps.
func TestStepsUseUpGrants(t *testing.T) {
	e, steps := engine(t, policy.Config{}), programOf("fs:write", "fs:write", "fs:write")
	g := grants(steps[0])[1]
	g.MaxUses = 2
	addGrants(t, e, g)
	for range 2 {
		run, each := e.JudgeProgram(steps)
		require.Equal(t, []approval.Outcome{approval.Allow, approval.Allow, approval.Ask}, outcomes(each))
		require.Equal(t, []string{"program_step step=3 tool=t", "table_ask capability=fs:write level=supervised", "grant_used_up"}, forms(run.Reasons))
		require.Empty(t, run.Grant)
	}
}

// A step that is run uses up other grants as every request does.
func TestRunningStepsUseUpGrants(t *testing.T) {
	e, steps := engine(t, policy.Config{}), programOf("fs:write", "fs:write")
	g := grants(steps[0])[1]
	g.MaxUses = 1
	addGrants(t, e, g)
	_, refused := e.Reserve(steps[0], e.Judge(steps[0]), false)
	require.Nil(t, refused)
	_, refused = e.Reserve(steps[1], approval.Ruling{Outcome: approval.Allow}, false)
	require.Equal(t, "grant_used_up", refused.Reasons[1].Code)
}

// What is judged is a copy.
func TestJudgeProgramChangesNothing(t *testing.T) {
	steps := programOf("time:read", "fs:write")
	steps[0].Autonomy, steps[1].KnownTool = "", false
	_, each := engine(t, policy.Config{}).JudgeProgram(steps)
	require.Equal(t, []approval.Outcome{approval.Allow, approval.Ask}, outcomes(each))
	require.Empty(t, steps[0].Autonomy)
	require.Equal(t, "fs:write", steps[1].Capability)
}

// A program carries what its steps carry: secrets, and paths that lead elsewhere.
func TestProgramCarriesWhatItsStepsCarry(t *testing.T) {
	e := &policy.Engine{
		Resolve: func(name string) (string, error) {
			if name == "/data/gone" {
				return "", errors.New("gone")
			}
			return strings.Replace(name, "/data/", "/mnt/", 1), nil
		},
		Scan: func(f *approval.Facts) []approval.Finding {
			return []approval.Finding{{Kind: "k", Where: f.Target, Length: 9}}
		},
	}
	require.NoError(t, e.Load(policy.Config{}))
	steps := programOf("fs:write", "fs:write")
	steps[1].Target = "/data/gone"
	run, _ := e.JudgeProgram(steps)
	require.Equal(t, map[string]string{"/data/a.txt": "/mnt/a.txt", "/data/gone": ""}, run.Links)
	require.Len(t, run.Secrets, 2)
	require.Equal(t, "/data/gone", run.Secrets[1].Where)
	require.Equal(t, "secrets", run.Rule)
	require.Len(t, run.Reasons, 5)
}

// What a rule says of programs is compared with the whole plan.
func TestRulesOfPrograms(t *testing.T) {
	const a, y = approval.Ask, approval.Allow
	whole := approval.ProgramFacts{Tools: []string{"list", "t"}, Steps: 3, Calls: map[string]int{"list": 1, "t": 2}, Whole: true}
	part := whole
	part.Whole = false
	for why, tc := range map[string]struct {
		change  func(*policy.Rule)
		program *approval.ProgramFacts
		allow   approval.Outcome // of an allow, where the table asks
		deny    approval.Outcome // of a deny, where the table allows
	}{
		"outside of programs":       {func(r *policy.Rule) { r.Program = "true" }, nil, a, y},
		"only outside of programs":  {func(r *policy.Rule) { r.Program = "false" }, nil, y, approval.Deny},
		"a step, outside":           {func(r *policy.Rule) { r.Program = "false" }, &whole, a, y},
		"a step":                    {func(r *policy.Rule) { r.Program = "true" }, &whole, y, approval.Deny},
		"both":                      {func(*policy.Rule) {}, &whole, y, approval.Deny},
		"both, of a part":           {func(*policy.Rule) {}, &part, y, approval.Deny},
		"a part":                    {func(r *policy.Rule) { r.Program = "true" }, &part, a, approval.Deny},
		"its tools":                 {func(r *policy.Rule) { r.Program, r.Tools = "true", policy.Names{"t", "li*"} }, &whole, y, approval.Deny},
		"a tool more":               {func(r *policy.Rule) { r.Program, r.Tools = "true", policy.Names{"t", "lists"} }, &whole, a, y},
		"its tools, of a part":      {func(r *policy.Rule) { r.Program, r.Tools = "true", policy.Names{"t", "li*"} }, &part, a, a},
		"a tool more, of a part":    {func(r *policy.Rule) { r.Program, r.Tools = "true", policy.Names{"t"} }, &part, a, y},
		"few steps":                 {func(r *policy.Rule) { r.Program, r.MaxSteps = "true", 3 }, &whole, y, approval.Deny},
		"too many steps":            {func(r *policy.Rule) { r.Program, r.MaxSteps = "true", 2 }, &whole, a, y},
		"few steps, of a part":      {func(r *policy.Rule) { r.Program, r.MaxSteps = "true", 3 }, &part, a, a},
		"too many steps, of a part": {func(r *policy.Rule) { r.Program, r.MaxSteps = "true", 2 }, &part, a, y},
		"few calls":                 {func(r *policy.Rule) { r.Program, r.MaxCalls = "true", 2 }, &whole, y, approval.Deny},
		"too many calls":            {func(r *policy.Rule) { r.Program, r.MaxCalls = "true", 1 }, &whole, a, y},
		"few calls, of a part":      {func(r *policy.Rule) { r.Program, r.MaxCalls = "true", 2 }, &part, a, a},
		"too many calls, of a part": {func(r *policy.Rule) { r.Program, r.MaxCalls = "true", 1 }, &part, a, y},
	} {
		f := programOf("fs:write")[0]
		f.Program = tc.program
		r := rule(y)
		tc.change(&r)
		require.Equal(t, tc.allow, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome, why)
		r.Outcome, f.Autonomy = approval.Deny, grant.Full
		require.Equal(t, tc.deny, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome, why)
		r.Target = []string{"/elsewhere/**"}
		require.Equal(t, y, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome, "%s, and another part that does not match", why)
	}
}

func TestRulesOfProgramsThatContradictThemselves(t *testing.T) {
	for want, r := range map[string]policy.Rule{
		"add program = true":            {Tools: policy.Names{"t"}},
		"tools, max_steps and max_":     {Program: "false", MaxSteps: 3},
		"max_calls are of a program":    {Program: "false", MaxCalls: 3},
		"a number from 1 to 256":        {Program: "true", MaxSteps: 257},
		"max_calls is a number from 1":  {Program: "true", MaxCalls: 257},
		"max_calls is a number":         {Program: "true", MaxCalls: -1},
		"is a number from 1":            {Program: "true", MaxSteps: -1},
		"true or false, not":            {Program: "forbidden"},
		"only at the end of a name":     {Program: "true", Tools: policy.Names{"a*b"}},
		"never a star in the middle, a": {Program: "true", Tools: policy.Names{"*b"}},
	} {
		if err := r.Check(); strings.HasPrefix(want, "never") {
			require.Error(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	require.NoError(t, policy.Rule{Program: "true", Tools: policy.Names{"a*"}, MaxSteps: 256}.Check())
}

// A rule names a tool by its program's tools, too, but not by a star.
func TestToolsOfAProgramNameTheTool(t *testing.T) {
	f := programOf("fs:write")[0]
	f.KnownTool = false
	r := policy.Rule{Program: "true", Tools: policy.Names{"t"}, OnlyArgs: true, Outcome: approval.Allow}
	require.Equal(t, approval.Allow, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome, "not configured, but named")
	for name, want := range map[string]approval.Outcome{"t": approval.Allow, "t*": approval.Ask} {
		f := programOf("mail:send")[0]
		f.Args = approval.Raw(`{"to":"bob"}`)
		r := policy.Rule{Program: "true", Tools: policy.Names{name}, Args: []policy.Condition{{Field: "to", Is: []string{"bob"}}}, Outcome: approval.Allow}
		require.Equal(t, want, engine(t, policy.Config{Rules: []policy.Rule{r}}).Judge(f).Outcome, name)
	}
}

func TestRulesOfProgramsThatShadow(t *testing.T) {
	all := policy.Rule{Outcome: approval.Deny}
	programs := policy.Rule{Outcome: approval.Deny, Program: "true"}
	few := policy.Rule{Outcome: approval.Allow, Program: "true", Tools: policy.Names{"a"}, MaxSteps: 3}
	require.True(t, few.IsShadowedBy(all))
	require.True(t, few.IsShadowedBy(programs))
	require.False(t, policy.Rule{Outcome: approval.Allow}.IsShadowedBy(programs))
	require.False(t, few.IsShadowedBy(policy.Rule{Program: "false"}))
	require.False(t, few.IsShadowedBy(policy.Rule{Program: "true", MaxSteps: 2}))
	require.True(t, few.IsShadowedBy(policy.Rule{Program: "true", MaxSteps: 3}))
	require.False(t, policy.Rule{Outcome: approval.Allow, Program: "true"}.IsShadowedBy(policy.Rule{Program: "true", MaxSteps: 3}))
	require.False(t, few.IsShadowedBy(policy.Rule{Program: "true", Tools: policy.Names{"b"}}))
	require.True(t, few.IsShadowedBy(policy.Rule{Program: "true", MaxCalls: 3}), "no more calls than steps")
	require.False(t, few.IsShadowedBy(policy.Rule{Program: "true", MaxCalls: 2}))
	few.MaxCalls = 2
	require.True(t, few.IsShadowedBy(policy.Rule{Program: "true", MaxCalls: 2}))
	require.False(t, few.IsShadowedBy(policy.Rule{Program: "true", MaxCalls: 1}))
}

// runFacts are those of the request whose steps these are.
func runFacts(steps []approval.Facts) approval.Facts {
	f := steps[0]
	f.RequestID, f.Tool, f.KnownTool, f.ToolSHA256, f.ActionType = runID, "", false, "", approval.ActionProgram
	f.Capability, f.Target, f.Targeted, f.Trust = "", "", false, approval.Trust{}
	return f
}

// programGrant is what an approval of the program for always gives.
func programGrant(t *testing.T, e *policy.Engine, steps []approval.Facts) grant.Grant {
	t.Helper()
	run, _ := e.JudgeProgram(steps)
	offers := e.OffersProgram(runFacts(steps), steps, run)
	require.Len(t, offers, 2)
	require.Equal(t, []approval.Scope{approval.Session, approval.Always}, []approval.Scope{offers[0].Scope, offers[1].Scope})
	require.Empty(t, offers[1].WhyNot)
	require.Equal(t, []int{24, 90 * 24}, []int{offers[0].Hours, offers[1].Hours})
	want := approval.Terms{Form: grant.Program, Workspace: "w", ClientID: "ws:w", ActionType: "program", Digest: steps[0].Program.SHA256}
	require.Equal(t, want, offers[1].Terms)
	want.SessionID = "s1"
	require.Equal(t, want, offers[0].Terms)
	return grant.Grant{
		Version: grant.Version, ID: "0000000000000009", By: "ann", CreatedAt: noon.Add(-time.Hour), ExpiresAt: noon.Add(time.Hour), Terms: offers[1].Terms,
	}
}

// A grant for a program covers every step of exactly this program that a grant may cover.
func TestProgramGrant(t *testing.T) {
	e := engine(t, policy.Config{})
	steps := programOf("fs:write", "mail:send", "time:read")
	g := programGrant(t, e, steps)
	addGrants(t, e, g)
	run, each := e.JudgeProgram(steps)
	require.Equal(t, approval.Allow, run.Outcome)
	require.Equal(t, "consent", run.Rule)
	require.Equal(t, g.ID, run.Grant)
	for i := range each {
		require.Equal(t, approval.Allow, each[i].Outcome)
		require.Empty(t, each[i].Grant, "the program uses it, not its steps")
	}
	require.Equal(t, "program", each[1].Reason("grant").Args["kind"])

	for why, change := range map[string]func(f *approval.Facts){
		"another program":   func(f *approval.Facts) { p := *f.Program; p.SHA256 = strings.Repeat("6f", 32); f.Program = &p },
		"no program":        func(f *approval.Facts) { f.Program = nil },
		"another client":    func(f *approval.Facts) { f.ClientID = "other" },
		"another workspace": func(f *approval.Facts) { f.Workspace = "v" },
		"later":             func(f *approval.Facts) { f.Now = noon.Add(2 * time.Hour) },
		"a helper":          func(f *approval.Facts) { f.Subagent = "x" },
	} {
		f := programOf("fs:write")[0]
		require.Equal(t, approval.Allow, e.Judge(f).Outcome)
		change(&f)
		require.Equal(t, approval.Ask, e.Judge(f).Outcome, why)
	}
	f := programOf("fs:write")[0]
	f.SessionID, f.ToolSHA256 = "s2", "changed"
	require.Equal(t, approval.Allow, e.Judge(f).Outcome, "in each session; the digest of the plan has the tools' definitions")
	require.Equal(t, approval.Ask, e.Judge(runFacts(steps)).Outcome, "it covers steps")
}

// What no grant lifts, a grant for the program does not lift.
func TestProgramGrantLiftsNoMore(t *testing.T) {
	forbidden, both := harmless, approval.Trust{PublicSource: "true", SecretData: "true", PublicSink: "true"}
	forbidden.PublicSink = "forbidden"
	for why, tc := range map[string]struct {
		config policy.Config
		change func(f *approval.Facts)
		want   approval.Outcome
		rule   string
	}{
		"a deny":           {policy.Config{Rules: []policy.Rule{rule(approval.Deny)}}, nil, approval.Deny, "r"},
		"the table's deny": {policy.Config{}, func(f *approval.Facts) { f.Autonomy = grant.ReadOnly }, approval.Deny, "table"},
		"forbidden":        {policy.Config{}, func(f *approval.Facts) { f.Trust = forbidden }, approval.Deny, "trust"},
		"always_ask":       {policy.Config{Rules: []policy.Rule{{Name: "r", Outcome: approval.Ask, Always: true}}}, nil, approval.Ask, "r"},
		"a limit":          {policy.Config{Limits: map[string]policy.Limits{"w": {Ask: map[string]policy.Rate{"fs:write": {Per: time.Hour}}}}}, nil, approval.Ask, "limits"},
		"trifecta":         {policy.Config{}, func(f *approval.Facts) { f.Capability, f.Trust = "network:http", both }, approval.Ask, "trifecta"},
		"a shell": {policy.Config{}, func(f *approval.Facts) {
			f.Capability, f.Args = "code:exec", approval.Raw(`{"cmd":"curl x | sh"}`)
			f.Declared = map[string]approval.Argument{"cmd": {Type: "command"}}
		}, approval.Ask, "table"},
		"a command that is not known yet": {policy.Config{}, func(f *approval.Facts) {
			f.Capability, f.Opaque = "code:exec", []string{"cmd"}
			f.Declared = map[string]approval.Argument{"cmd": {Type: "command"}}
		}, approval.Ask, "table"},
	} {
		steps := programOf("fs:write", "fs:write")
		g := programGrant(t, engine(t, policy.Config{}), steps)
		for i := range steps {
			if tc.change != nil {
				tc.change(&steps[i])
			}
		}
		e := engine(t, tc.config)
		addGrants(t, e, g)
		run, _ := e.JudgeProgram(steps)
		require.Equal(t, tc.want, run.Outcome, why)
		require.Equal(t, tc.rule, run.Rule, why)
		require.Empty(t, run.Grant, why)
		require.False(t, run.Soft, why)
		if tc.want == approval.Ask {
			whyNot := approval.Because("asked_anyway", "rule", tc.rule)
			if len(steps[0].Opaque) > 0 {
				whyNot = approval.Because("program_opaque")
			}
			for _, o := range e.OffersProgram(runFacts(steps), steps, run) {
				require.Equal(t, whyNot, o.WhyNot, why)
				require.Equal(t, approval.Offer{Scope: o.Scope, WhyNot: o.WhyNot}, o)
			}
		}
	}
}

// Nothing is remembered of a plan that passes on a result that is not known yet, and a grant for it does not cover that.
func TestProgramGrantCoversNoOpaqueStep(t *testing.T) {
	e, steps := engine(t, policy.Config{}), programOf("time:read", "fs:write", "fs:write")
	g := programGrant(t, e, steps)
	addGrants(t, e, g)
	steps[2].Opaque = []string{"text"}
	run, each := e.JudgeProgram(steps)
	require.Equal(t, []approval.Outcome{approval.Allow, approval.Allow, approval.Ask}, outcomes(each))
	require.Equal(t, approval.Ask, run.Outcome)
	require.Empty(t, run.Grant)
	require.Equal(t, "program_step step=3 tool=t", run.Reasons[0].String())
	for _, o := range e.OffersProgram(runFacts(steps), steps, run) {
		require.Equal(t, approval.Offer{Scope: o.Scope, WhyNot: approval.Because("program_opaque")}, o)
	}

	steps[0].Opaque, steps[2].Opaque = steps[2].Opaque, nil
	run, _ = e.JudgeProgram(steps)
	require.Equal(t, approval.Allow, run.Outcome, "policy allows that step without a grant")
	run, _ = engine(t, policy.Config{}).JudgeProgram(steps)
	for _, o := range e.OffersProgram(runFacts(steps), steps, run) {
		require.Equal(t, "program_opaque", o.WhyNot.Code)
	}
}

// A grant is not offered where it would not work a second time.
func TestProgramGrantThatWouldNotWork(t *testing.T) {
	e, steps := engine(t, policy.Config{}), programOf("network:http", "mail:read")
	for i := range steps {
		steps[i].Trust = approval.Trust{}
	}
	run, _ := e.JudgeProgram(steps)
	require.True(t, run.Soft)
	require.Equal(t, approval.Because("asked_anyway", "rule", "trifecta"), e.OffersProgram(runFacts(steps), steps, run)[1].WhyNot, "its first step is asked about next time")

	e = engine(t, policy.Config{Limits: map[string]policy.Limits{"w": {Day: policy.Budget{Hard: codec.Units(5)}}}})
	steps = programOf("fs:write", "fs:write")
	for i := range steps {
		steps[i].Cost = codec.Units(2)
	}
	run, _ = e.JudgeProgram(steps)
	require.Equal(t, approval.Because("asked_anyway", "rule", "limits"), e.OffersProgram(runFacts(steps), steps, run)[1].WhyNot)

	steps = programOf("fs:write")
	steps[0].SessionID = ""
	run, _ = engine(t, policy.Config{}).JudgeProgram(steps)
	require.Equal(t, approval.Because("no_session"), engine(t, policy.Config{}).OffersProgram(runFacts(steps), steps, run)[0].WhyNot)
}

// One run of a program is one use of its grant, however many steps it has.
func TestProgramUsesItsGrantOnce(t *testing.T) {
	e, steps := engine(t, policy.Config{}), programOf("fs:write", "fs:write")
	g := programGrant(t, e, steps)
	g.MaxUses = 2
	addGrants(t, e, g)
	uses := func() int { return e.Grants()[0].Uses }
	for n := range 2 {
		run, _ := e.JudgeProgram(steps)
		require.Equal(t, g.ID, run.Grant)
		run.Cost, run.Taints = codec.Units(7), []string{grant.TaintCorruption}
		undo, refused := e.Reserve(runFacts(steps), run, false)
		require.Nil(t, refused)
		undo()
		_, refused = e.Reserve(runFacts(steps), run, false)
		require.Nil(t, refused)
		if n == 1 {
			again, _ := e.JudgeProgram(steps)
			require.Equal(t, approval.Ask, again.Outcome, "its last use is reserved")
			other := runFacts(steps)
			other.RequestID = "bbbbbbbbbbbbbbbb"
			_, refused := e.Reserve(other, run, false)
			require.Equal(t, []string{"grant_used_up"}, forms(refused.Reasons))
			require.Equal(t, approval.Ask, refused.Outcome)
		}
		e.Learn(event.Entry{
			Event: event.AutoApproved, Workspace: "w", RequestID: runID, ActionType: approval.ActionProgram, ClientID: "ws:w", SessionID: "s1", Time: noon,
			Grant: g.ID, Cost: run.Cost, Taints: run.Taints,
		})
		require.Equal(t, n+1, uses())
		for _, f := range steps {
			r := approval.Ruling{Outcome: approval.Allow}
			_, refused := e.Reserve(f, r, false)
			require.Nil(t, refused, "the run has used it already")
			e.Learn(event.Entry{Event: event.AutoApproved, Workspace: "w", RequestID: f.RequestID, Tool: "t", Capability: f.Capability, Time: noon})
		}
		require.Equal(t, n+1, uses())
		require.Empty(t, e.Taints("w"), "those of its steps count")
	}
	run, _ := e.JudgeProgram(steps)
	require.Equal(t, approval.Ask, run.Outcome)
	require.Equal(t, "grant_used_up", run.Reasons[len(run.Reasons)-1].Code)

	g.MaxUses, g.RevokedAt = 0, noon
	addGrants(t, e, g)
	_, refused := e.Reserve(runFacts(steps), approval.Ruling{Grant: g.ID}, false)
	require.Equal(t, []string{"grant_revoked"}, forms(refused.Reasons))
	_, refused = e.Reserve(steps[1], approval.Ruling{Outcome: approval.Allow}, false)
	require.Equal(t, approval.Ask, refused.Outcome, "a grant that was revoked stops the program")
	_, refused = e.Reserve(runFacts(steps), approval.Ruling{Grant: g.ID}, true)
	require.Nil(t, refused, "a person's approval needs no grant")
}

// Nothing of a program counts twice: neither its cost, nor the person's approval.
func TestProgramCountsOnce(t *testing.T) {
	limits := policy.Config{Limits: map[string]policy.Limits{"w": {
		Day: policy.Budget{Hard: codec.Units(4)}, Deny: map[string]policy.Rate{"": {Burst: 1, Per: time.Hour}},
	}}}
	e, steps := engine(t, limits), programOf("fs:write")
	steps[0].Cost = codec.Units(3)
	run, _ := e.JudgeProgram(steps)
	f := runFacts(steps)
	f.Cost = run.Cost
	_, refused := e.Reserve(f, run, true)
	require.Nil(t, refused)
	_, refused = e.Reserve(steps[0], run, true)
	require.Nil(t, refused)
	bare := factsFor("")
	bare.RequestID = "bbbbbbbbbbbbbbbb"
	require.Equal(t, approval.Allow, e.Judge(bare).Outcome, "a program takes nothing from the tools without a capability")
	entry := event.Entry{Event: event.Approved, Workspace: "w", RequestID: runID, ActionType: approval.ActionProgram, Human: true, Time: noon, Cost: run.Cost}
	e.Learn(entry)
	require.Equal(t, 1, e.Recurrence("w", approval.ActionProgram, ""))
	require.Equal(t, approval.Allow, e.Judge(bare).Outcome)
	entry.RequestID, entry.Tool, entry.Capability, entry.Cost = steps[0].RequestID, "t", "fs:write", 0
	e.Learn(entry)
	require.Zero(t, e.Recurrence("w", "t", "fs:write"), "a person has approved the program, not this call")
	_, each := e.JudgeProgram(steps)
	require.Equal(t, approval.Ask, each[0].Outcome, "3 of 4 are free")
}

// Clauses hold for all steps of a program together, and only where they are about the step.
func TestProofsOfPrograms(t *testing.T) {
	mail := approval.Tool{Name: "t", Capability: "mail:send", Args: map[string]approval.Argument{"to": {Type: facts.TypeRecipients}, "eur": {Type: facts.TypeAmount, Currency: "EUR"}}}
	file := approval.Tool{Name: "f", Capability: "fs:write", Args: map[string]approval.Argument{"path": {Type: facts.TypePath}}}
	call := func(tool approval.Tool, data string, opaque ...string) approval.Evidence {
		c := approval.Call{Tool: tool.Name, Data: approval.Raw(data)}
		for _, name := range opaque {
			c.Opaque = append(c.Opaque, approval.ResultRef{Arg: name, Step: 1})
		}
		return facts.OfStep(tool, &c)
	}
	bob, ann, both := call(mail, `{"to":"bob@x.org"}`), call(mail, `{"to":"ann@x.org"}`), call(mail, `{"to":["ann@x.org","cid@x.org"]}`)
	unknown, note := call(mail, `{}`, "to"), call(file, `{"path":"/data/a"}`)
	paid := func(sum string) approval.Evidence { return call(mail, `{"to":["a@x.org","b@x.org"],"eur":"`+sum+`"}`) }
	atMost := func(n int) policy.Clause { return policy.Clause{Domain: "mail", Kind: policy.AtMost, Max: n} }
	unique := policy.Clause{Domain: "mail", Kind: policy.Unique, Arg: "to"}
	sum := func(most string) policy.Clause {
		return policy.Clause{Domain: "money", Kind: policy.SumAtMost, Sum: most, Currency: "EUR"}
	}
	for why, tc := range map[string]struct {
		clause policy.Clause
		steps  []approval.Evidence
		want   string // the gap of the first step
	}{
		"only":                          {only("bob@x.org"), []approval.Evidence{bob, bob, note}, ""},
		"only, but another":             {only("bob@x.org"), []approval.Evidence{bob, ann}, "gap_other"},
		"only, but one is not known":    {only("bob@x.org"), []approval.Evidence{bob, unknown}, "gap_value"},
		"only, of the step":             {only("bob@x.org"), []approval.Evidence{note, bob}, "gap_unknown"},
		"under":                         {under("/data"), []approval.Evidence{note, note, bob}, ""},
		"under, but another":            {under("/data"), []approval.Evidence{note, call(file, `{"path":"/etc/x"}`)}, "gap_other_path"},
		"unique":                        {unique, []approval.Evidence{bob, ann}, ""},
		"twice":                         {unique, []approval.Evidence{bob, ann, bob}, "gap_twice"},
		"at most":                       {atMost(3), []approval.Evidence{bob, both, note}, ""},
		"more":                          {atMost(3), []approval.Evidence{bob, both, bob}, "gap_count"},
		"at most, one not known":        {atMost(9), []approval.Evidence{bob, unknown}, "gap_value"},
		"at most to one":                {policy.Clause{Domain: "mail", Kind: policy.AtMost, Arg: "to", Values: []string{"bob@x.org"}, Max: 1}, []approval.Evidence{bob, ann}, ""},
		"more to one":                   {policy.Clause{Domain: "mail", Kind: policy.AtMost, Arg: "to", Values: []string{"bob@x.org"}, Max: 1}, []approval.Evidence{bob, bob}, "gap_more"},
		"a sum, for each recipient":     {sum("14.00"), []approval.Evidence{paid("3.50"), paid("3.50")}, ""},
		"more than a sum":               {sum("13.99"), []approval.Evidence{paid("3.50"), paid("3.50")}, "gap_sum"},
		"a sum, other recipients":       {sum("14.00"), []approval.Evidence{paid("7"), both}, ""},
		"a sum that is not known":       {sum("99"), []approval.Evidence{paid("1"), call(mail, `{"to":"a@x.org"}`, "eur")}, "gap_value"},
		"a sum, others not known":       {sum("7"), []approval.Evidence{paid("3.50"), unknown}, ""},
		"payees that are not known":     {sum("99"), []approval.Evidence{paid("1"), call(mail, `{"eur":"1"}`, "to")}, "gap_value"},
		"what may touch anything":       {only("bob@x.org"), []approval.Evidence{bob, call(approval.Tool{Name: "x"}, `{}`)}, "gap_no_proof"},
		"a command":                     {only("bob@x.org"), []approval.Evidence{bob, call(approval.Tool{Name: "x", Capability: "code:exec"}, `{}`)}, "gap_no_proof"},
		"mail to those it does not say": {only("bob@x.org"), []approval.Evidence{bob, call(approval.Tool{Name: "x", Capability: "mail:send"}, `{}`)}, "gap_value"},
		"the clock":                     {only("bob@x.org"), []approval.Evidence{bob, call(approval.Tool{Name: "x", Capability: "time:read"}, `{}`)}, ""},
	} {
		require.NoError(t, tc.clause.Check(), why)
		e := engine(t, policy.Config{Rules: []policy.Rule{allowWhen(tc.clause)}})
		steps := programOf(make([]string, len(tc.steps))...)
		all := facts.ProgramEvidence(tc.steps)
		for i := range steps {
			steps[i].Capability, steps[i].Evidence = "fs:write", all
		}
		for range 2 {
			_, each := e.JudgeProgram(steps)
			require.Equal(t, tc.want, each[0].Reason("rule_unproven").Args["gap"], why)
			require.Equal(t, tc.want == "", each[0].Outcome == approval.Allow, why)
			require.Equal(t, each[0].Outcome, e.Judge(steps[0]).Outcome, why)
		}
	}

	e := engine(t, policy.Config{Rules: []policy.Rule{allowWhen(only("bob@x.org"))}})
	steps := programOf("fs:write", "fs:write", "fs:write")
	for i := range steps {
		steps[i].Evidence = facts.ProgramEvidence([]approval.Evidence{bob, note, bob})
	}
	_, each := e.JudgeProgram(steps)
	require.Equal(t, []approval.Outcome{approval.Allow, approval.Ask, approval.Allow}, outcomes(each), "nothing is proven of the file")

	run, _ := e.JudgeProgram(steps[:1])
	require.Equal(t, "source_arguments", run.Proven.Args["source"])
	steps[0].Evidence = bob
	require.Equal(t, approval.Allow, e.Judge(steps[0]).Outcome, "the facts of a step alone are its own")

	all := facts.ProgramEvidence([]approval.Evidence{bob, bob, ann})
	for i := range steps {
		steps[i].Evidence.Host = all.Host[:2*(i+1)] // each call has two: its recipient, and its digest
	}
	_, each = e.JudgeProgram(steps)
	require.Equal(t, []approval.Outcome{approval.Allow, approval.Allow, approval.Ask}, outcomes(each), "other evidence is read anew")
}

// The evidence of a program is read once, not once for each step.
func TestProgramResolvesEachPathOnce(t *testing.T) {
	n := 0
	e := &policy.Engine{Resolve: func(name string) (string, error) { n++; return name, nil }}
	require.NoError(t, e.Load(policy.Config{Rules: []policy.Rule{allowWhen(under("/data"))}}))
	steps := programOf(make([]string, 50)...)
	var each []approval.Evidence
	for range steps {
		each = append(each, approval.Evidence{Host: []approval.HostFact{{Domain: "file", Name: "path", Values: []string{"/data/a"}, From: facts.FromArgument}}})
	}
	all := facts.ProgramEvidence(each)
	for i := range steps {
		steps[i].Capability, steps[i].Target, steps[i].Evidence = "calendar:read", "", all
	}
	run, _ := e.JudgeProgram(steps)
	require.Equal(t, approval.Allow, run.Outcome)
	require.LessOrEqual(t, n, 4)
}
