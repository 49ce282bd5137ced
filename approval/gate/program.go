package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/move"
	"github.com/permesso-dev/permesso/approval/submit"
)

// # Programs
//
// A program's request has no tool. Its plan is made before policy rules on it: the program
// is evaluated, and each of its calls becomes a step that has not run. A read that policy
// allows now runs at once, unless a call that is no read comes before it; then it would not
// see that call's effect.
//
// Policy rules on the steps in their order, and on the program by the strictest of them. The
// claim of the program holds its plan, and its receipt names the plan's digest. To run it
// (see program_run.go) the program is evaluated again: each call must be the plan's next.
//
// Each step that runs has a claim and a record of its own, under Key.StepKey. They are
// written like those of a request, and no agent sees them: the program's response has the
// outcomes.

// planner evaluates a program. It calls call for each call of a tool, in their order, and
// ends with its error. An *approval.ProgramError says what is wrong with the program.
type planner interface {
	Evaluate(ctx context.Context, job approval.ProgramJob, call func(approval.Call) (approval.Answer, error)) (approval.Evaluation, error)
}

// planned is the plan of a request that is not taken in yet, or the planning of one.
type planned struct {
	requestSHA256 string
	done          bool
	plan          *approval.Plan
	why           approval.Reason // why there is none
	foreign       bool            // it would go on with another client's program
	err           error           // the step is retried
}

// intakeProgram is row 13 for a program: first its plan is made.
func (g *Gate) intakeProgram(ctx context.Context, s *state, ev evaluation, settings Settings) (waiting bool, err error) {
	if g.Planner == nil {
		return g.refuseUnfit(ctx, s, approval.Because("program_error", "detail", "programs cannot be evaluated on this host"))
	}
	ev.tool, ev.runs.Kind = approval.ProgramTool(), approval.HandlerProgram
	sha := approval.Digest(s.q)
	p, ok := g.plans.get(s.key)
	switch {
	case ok && !p.done:
		return true, nil
	case !ok || p.requestSHA256 != sha || p.err == nil && p.why.IsZero() && stepsState(settings, p.plan) != move.ToolSame:
		return g.startPlanning(ctx, s, ev, settings)
	}
	switch { // the plan stays until the request has ended: a refusal may have to wait for its turn
	case p.foreign && s.submission != nil: // no record: the id is for the client that goes on
		g.plans.remove(s.key)
		g.reject(s.submission, submit.ErrIDTaken)
		return true, nil
	case p.foreign:
		return g.rejectRequest(ctx, s)
	case p.err != nil:
		g.plans.remove(s.key)
		return false, p.err
	case !p.why.IsZero():
		return g.refuseUnfit(ctx, s, p.why)
	}
	return g.intakePlan(ctx, s, ev, settings, p.plan)
}

// startPlanning makes the plan beside the workers. It takes one of the workspace's handler slots.
func (g *Gate) startPlanning(ctx context.Context, s *state, ev evaluation, settings Settings) (waiting bool, err error) {
	if ok, err := g.reserveRun(ctx, s.key, len(s.q), ev.tool); err != nil {
		return false, err
	} else if !ok {
		return g.refuseDegraded(ctx, s)
	}
	if begun, waiting, err := g.beginAllowed(ctx, s, ev.tool); !begun {
		return waiting, err
	}
	if !g.limits(s.key.Workspace).plans.AllowN(s.now, 1) {
		g.releaseClaim(s.key, ev.tool)
		n := strconv.Itoa(ev.ws.Limits.WithDefaults().AskPerMinute)
		return g.refuseLimited(ctx, s, approval.StatusAutoRejected, submit.ErrLimitReached, approval.Because("limit_asks", "n", n))
	}
	g.leavePause(s.key.Workspace) // each read enters by itself
	m := g.newPlanning(s, ev, settings)
	p := planned{requestSHA256: m.run.requestSHA256}
	g.plans.set(s.key, p)
	work := func() {
		p.why, p.err = m.make(context.WithoutCancel(ctx))
		p.plan, p.foreign, p.done = m.plan, m.foreign, true
		g.plans.set(s.key, p)
		g.releaseReservation(s.key)
		g.releaseSlot(s.key, ev.tool)
	}
	if g.Inline {
		work()
		if p.err != nil {
			g.plans.remove(s.key)
		}
		return false, p.err
	}
	go func() {
		work()
		g.Wake(s.key)
	}()
	return true, nil
}

func (g *Gate) newPlanning(s *state, ev evaluation, settings Settings) *planning {
	return &planning{
		g: g, settings: settings, ws: ev.ws,
		run: programRun{
			key: s.key, requestSHA256: approval.Digest(s.q), from: s.origin(), sessionID: s.request.SessionID,
			principal: cmp.Or(ev.ws.Principal, s.origin().Principal), policy: ev.policy, program: &approval.ProgramFacts{},
		},
		plan: &approval.Plan{Source: s.request.Program, Steps: []approval.Step{}, Continues: s.request.Continues},
	}
}

// planning is one evaluation that makes a plan.
type planning struct {
	g        *Gate
	settings Settings
	ws       approval.Workspace
	run      programRun
	plan     *approval.Plan
	earlier  *approval.Plan // that the request continues; nil: none
	results  []approval.Raw // of its steps
	acted    bool           // a call that is no read has come
	preview  bool           // nothing runs, also no read
	foreign  bool           // the earlier part is another client's
}

// make evaluates the program.
func (m *planning) make(ctx context.Context) (why approval.Reason, err error) {
	if m.plan.Continues != "" {
		if why, err = m.loadEarlier(ctx); !why.IsZero() || err != nil {
			return why, err
		}
	}
	e, err := m.g.Planner.Evaluate(ctx, approval.ProgramJob{Source: m.plan.Source, Tools: programTools(m.settings, m.earlier)},
		func(c approval.Call) (approval.Answer, error) { return m.call(ctx, c) })
	if wrong := (*approval.ProgramError)(nil); errors.As(err, &wrong) {
		return approval.Because("program_error", "detail", wrong.Error()), nil
	}
	if err != nil {
		return approval.Reason{}, fmt.Errorf("plan program: %w", err)
	}
	m.plan.Guarantees, m.plan.Needs = e.Guarantees, e.Needs
	for _, x := range e.Guarantees {
		if x.State == approval.GuaranteeRefuted {
			return approval.Because("guarantee_refuted", "guarantee", x.String(), "step", fmt.Sprint(x.Step)), nil
		}
	}
	if m.earlier != nil && len(m.plan.Steps) < len(m.earlier.Steps) {
		return approval.Because("program_error", "detail", "the program does not make the calls again that it made before"), nil
	}
	return approval.Reason{}, nil
}

// programTools are the tools that a program can call, with their arguments: as they are now, or as they were when their
// steps were planned. What the agent executes, no program can call.
func programTools(settings Settings, plan *approval.Plan) map[string]map[string]approval.Argument {
	tools := map[string]map[string]approval.Argument{}
	for _, name := range settings.ToolNames() {
		if t, known := settings.Tool(name); known && !t.ByAgent() {
			tools[name] = facts.Arguments(t)
		}
	}
	if plan != nil {
		for i := range plan.Steps {
			tools[plan.Steps[i].Tool] = plan.Steps[i].Declared
		}
	}
	return tools
}

// loadEarlier finds the part that came before.
func (m *planning) loadEarlier(ctx context.Context) (why approval.Reason, err error) {
	k := approval.Key{Workspace: m.run.key.Workspace, ID: m.plan.Continues}
	rec, err := m.g.readRecord(ctx, k)
	if err != nil {
		return why, err
	}
	no := func(detail string) (approval.Reason, error) {
		return approval.Because("program_error", "detail", "the program cannot go on after "+k.ID+": "+detail), nil
	}
	if rec == nil {
		return no("there is no such request any more")
	}
	client := rec.ClientID
	m.earlier = rec.Plan
	if p := m.g.embeddedPending(k, rec.Pending); p != nil {
		client, m.earlier = p.ClientID, p.Plan
	} else {
		client = submit.Origin{ClientID: client}.Client(k.Workspace)
	}
	m.foreign = client != m.run.from.Client(k.Workspace)
	switch ran := rec.Status == approval.StatusApproved || rec.Status == approval.StatusAutoApproved; {
	case m.earlier == nil || !ran || m.foreign:
		return no("it is no program of this client that has run")
	case m.earlier.Needs == nil:
		return no("it has run to its end")
	case m.earlier.Source != m.plan.Source:
		return no("it is another program")
	}
	return why, nil
}

// call is one call of the program that is planned.
func (m *planning) call(ctx context.Context, c approval.Call) (approval.Answer, error) {
	g, n := m.g, len(m.plan.Steps)+1
	tool, known := m.settings.Tool(c.Tool)
	if !known || tool.ByAgent() || n > approval.MaxSteps {
		return approval.Answer{}, &approval.ProgramError{Line: c.Line, Text: "this tool cannot be called"}
	}
	step := approval.Step{
		Call: c, ToolSHA256: tool.SHA256(), Declared: facts.Arguments(tool), Capability: tool.Capability,
		Target: facts.Expand(tool.Target, c.Data), Reversibility: tool.Reversibility,
	}
	if _, why := facts.Fill(tool, withOpaque(c, func(approval.ResultRef) approval.Raw { return approval.Raw(`"?"`) })); !why.IsZero() {
		return approval.Answer{}, &approval.ProgramError{Line: c.Line, Text: say(g.Words, why)}
	}
	if why := cannotRun(g.Host, tool); !why.IsZero() {
		return approval.Answer{}, &approval.ProgramError{Line: c.Line, Text: say(g.Words, why)}
	}
	if m.earlier != nil && n <= len(m.earlier.Steps) {
		return m.repeat(ctx, step, &m.earlier.Steps[n-1], n)
	}
	answer, err := m.read(ctx, tool, &step, n)
	m.acted = m.acted || !tool.Reads
	m.plan.Steps = append(m.plan.Steps, step)
	return answer, err
}

// read runs a read now if policy allows it, or takes its result if it has run already. The result of any other call is opaque.
func (m *planning) read(ctx context.Context, tool approval.Tool, step *approval.Step, n int) (approval.Answer, error) {
	if m.preview || !tool.Reads || m.acted || len(step.Opaque) > 0 {
		return approval.Answer{}, nil
	}
	settings, policy := m.g.Config() // a reload counts from the next read on
	if t, known := settings.Tool(step.Tool); !known || t.SHA256() != step.ToolSHA256 {
		return approval.Answer{}, nil // the plan will be made again
	}
	m.run.policy = policy
	before, err := m.g.readRecord(ctx, m.run.key.StepKey(n))
	if err != nil {
		return approval.Answer{}, err
	}
	f := m.run.facts(m.ws, tool, step, n, m.g.Now())
	if step.Ruling = m.run.policy.Judge(f); before == nil && step.Ruling.Outcome != approval.Allow {
		return approval.Answer{}, nil
	}
	out, err := m.g.runStep(ctx, &m.run, tool, *step, f, n)
	if err != nil {
		return approval.Answer{}, err
	}
	return m.done(step, m.run.key.ID, out, n)
}

// repeat takes the result of a step of the part before.
func (m *planning) repeat(ctx context.Context, step approval.Step, before *approval.Step, n int) (approval.Answer, error) {
	then := before.Call // with the values that its opaque arguments had when it ran
	then.Data = withOpaque(before.Call, func(ref approval.ResultRef) approval.Raw {
		v, _ := codec.At(m.results[ref.Step-1], ref.At)
		return v
	})
	if then.Opaque = nil; !step.Equal(&then) {
		return approval.Answer{}, &approval.ProgramError{Line: step.Line, Text: fmt.Sprintf("step %d is not what it was before", n)}
	}
	of := cmp.Or(before.Of, m.plan.Continues)
	out, err := m.g.stepOutcome(ctx, approval.Key{Workspace: m.run.key.Workspace, ID: of}, n)
	if err != nil {
		return approval.Answer{}, err
	}
	m.results = append(m.results, out.result)
	step.Ruling, m.acted = before.Ruling, true
	answer, err := m.done(&step, of, out, n)
	m.plan.Steps = append(m.plan.Steps, step)
	return answer, err
}

// done notes what a step gave.
func (m *planning) done(step *approval.Step, of string, out stepOutcome, n int) (approval.Answer, error) {
	step.Of, step.ResultSHA256, step.Failed = of, approval.Digest(out.result), out.failed
	if out.failed != "" && !step.Try {
		return approval.Answer{}, &approval.ProgramError{Line: step.Line, Text: fmt.Sprintf("step %d (%s): %s", n, step.Tool, out.failed)}
	}
	return answer(out), nil
}

// PreviewProgram returns a program as people would see it, and its ruling if it came now: nil if it could not run. It runs
// nothing, asks no person and keeps nothing: where the program looks at a result, the plan ends.
func PreviewProgram(
	ctx context.Context, settings Settings, policy Policy, evaluator planner, workspace string, r *approval.Request, now time.Time, host Host, words Words,
) (*approval.Pending, approval.Ruling, error) {
	g := &Gate{Host: host, Planner: evaluator, Words: words, Now: func() time.Time { return now }}
	ev := evaluation{policy: policy, tool: approval.ProgramTool()}
	ev.ws, _ = settings.Workspace(workspace)
	ev.ws.Name, ev.runs.Kind = workspace, approval.HandlerProgram
	s := &state{key: approval.Key{Workspace: workspace, ID: r.RequestID}, now: now, request: r}
	m := g.newPlanning(s, ev, settings)
	m.preview = true
	why, err := m.make(ctx)
	if err != nil || !why.IsZero() {
		return nil, unfit(why), err
	}
	ev.judgePlan(settings, s, m.plan)
	return g.newPending(s, ev, approval.ShortID(r.RequestID)), ev.ruling, nil
}

// judgePlan rules on a program with its plan.
func (ev *evaluation) judgePlan(settings Settings, s *state, plan *approval.Plan) {
	run := programRun{key: s.key, from: s.origin(), sessionID: s.request.SessionID, principal: cmp.Or(ev.ws.Principal, s.origin().Principal)}
	ev.plan = plan
	ev.facts = ev.factsFrom(settings, s.origin(), s.request, s.now)
	ev.facts.Program = programFacts(plan)
	each := run.allFacts(ev.ws, settings, plan, s.now)
	if len(each) > 0 {
		each[0].Agent = ev.facts.Agent
		each[0].Agent.Preview += "\n" + plan.Source // searched for secrets
	}
	var rulings []approval.Ruling
	ev.ruling, rulings = ev.policy.JudgeProgram(each)
	if s.request.Preview == "" { // what was found there is in the program
		inProgram(&ev.ruling)
		for i := range rulings {
			inProgram(&rulings[i])
		}
	}
	ev.steps = each
	i := 0
	for n := range plan.Steps {
		if !plan.Steps[n].Done() {
			plan.Steps[n].Ruling = rulings[i]
			i++
		}
	}
	doubtLinks(plan)
}

// inProgram names the place of the secrets that were found in a program's text.
func inProgram(r *approval.Ruling) {
	const preview, program = "preview", "program"
	for i := range r.Secrets {
		if r.Secrets[i].Where == preview {
			r.Secrets[i].Where = program
		}
	}
	for i := range r.Reasons {
		if r.Reasons[i].Args["where"] == preview {
			r.Reasons[i].Args["where"] = program
		}
	}
}

// StepsOf are the steps of a pending program that have not run, as policy would see them now.
func StepsOf(settings Settings, p *approval.Pending, now time.Time) []approval.Facts {
	ws, _ := settings.Workspace(p.SourceGroup)
	x := programRun{
		key: approval.Key{Workspace: p.SourceGroup, ID: p.RequestID}, from: submit.Origin{ClientID: p.ClientID}, sessionID: p.SessionID, principal: p.Principal,
	}
	return x.allFacts(ws, settings, p.Plan, now)
}

// intakePlan takes in a program with its plan.
func (g *Gate) intakePlan(ctx context.Context, s *state, ev evaluation, settings Settings, plan *approval.Plan) (waiting bool, err error) {
	ev.judgePlan(settings, s, plan)
	s.evidence = &ev.facts.Evidence
	switch ev.ruling.Outcome {
	case approval.Allow:
		return g.allow(ctx, s, ev)
	case approval.Ask:
		return g.ask(ctx, s, ev)
	case approval.Deny:
	}
	text := "Denied by policy: "
	if step := ev.ruling.Reason("program_step"); !step.IsZero() {
		text += say(g.Words, step) + ": "
	}
	return g.refuseWith(ctx, s, ev.ruling, text+say(g.Words, mainReason(ev.ruling)))
}

// doubtLinks takes back that paths are proved to be below folders, where links of this host lead out of them.
func doubtLinks(plan *approval.Plan) {
	for i := range plan.Guarantees {
		x := &plan.Guarantees[i]
		below := func(leads string) bool {
			return slices.ContainsFunc(x.Values, func(folder string) bool {
				return leads == path.Clean(folder) || strings.HasPrefix(leads, strings.TrimSuffix(path.Clean(folder), "/")+"/")
			})
		}
		for n := range plan.Steps {
			for _, leads := range plan.Steps[n].Ruling.Links {
				if x.Kind == approval.GuaranteeOnlyUnder && x.State == approval.GuaranteeProved && !below(leads) {
					x.State, x.Step = approval.GuaranteeUnknown, n+1
				}
			}
		}
	}
}

// programFacts is what policy knows of a plan.
func programFacts(plan *approval.Plan) *approval.ProgramFacts {
	p := &approval.ProgramFacts{SHA256: plan.SHA256(), Whole: plan.Needs == nil, Calls: map[string]int{}}
	for i := range plan.Steps {
		if p.Tools = append(p.Tools, plan.Steps[i].Tool); !plan.Steps[i].Done() {
			p.Steps++
			p.Calls[plan.Steps[i].Tool]++
		}
	}
	slices.Sort(p.Tools)
	p.Tools = slices.Compact(p.Tools)
	return p
}

// allFacts are the steps that have not run, as policy sees them.
func (x *programRun) allFacts(ws approval.Workspace, settings Settings, plan *approval.Plan, now time.Time) (each []approval.Facts) {
	program, all := programFacts(plan), allEvidence(settings, plan)
	for i := range plan.Steps {
		if step := &plan.Steps[i]; !step.Done() {
			tool, _ := settings.Tool(step.Tool)
			f := x.facts(ws, tool, step, i+1, now)
			f.Program, f.Evidence = program, all
			each = append(each, f)
		}
	}
	return each
}

// allEvidence is what is known of all steps, those that have run included.
func allEvidence(settings Settings, plan *approval.Plan) approval.Evidence {
	each := make([]approval.Evidence, len(plan.Steps))
	for i := range plan.Steps {
		tool, _ := settings.Tool(plan.Steps[i].Tool)
		each[i] = facts.OfStep(tool, &plan.Steps[i].Call)
	}
	return facts.ProgramEvidence(each)
}

// facts are a step as policy sees it.
func (x *programRun) facts(ws approval.Workspace, tool approval.Tool, step *approval.Step, n int, now time.Time) approval.Facts {
	ws.Principal = x.principal
	f := approval.Facts{
		RequestID: x.key.StepKey(n).ID, Workspace: x.key.Workspace, Autonomy: autonomy(ws, x.sessionID),
		Tool: step.Tool, KnownTool: tool.Name != "", ActionType: actionType(&approval.Request{ToolName: step.Tool}, tool),
		Target: step.Target, SessionID: x.sessionID, ClientID: x.from.Client(x.key.Workspace), Principal: x.principal, Args: step.Data,
		Evidence: facts.OfStep(tool, &step.Call), Now: now,
		Program: x.program,
	}
	for _, ref := range step.Opaque {
		f.Opaque = append(f.Opaque, ref.Arg)
	}
	addConfigured(&f, ws, tool)
	return f
}

// withOpaque is the arguments of a call with values for the opaque ones, in the order of their names.
func withOpaque(c approval.Call, value func(approval.ResultRef) approval.Raw) approval.Raw {
	if len(c.Opaque) == 0 {
		return c.Data
	}
	fields := codec.FirstFields(c.Data)
	for _, ref := range c.Opaque {
		fields = append(fields, codec.Field{Name: ref.Arg, Value: value(ref)})
	}
	slices.SortFunc(fields, func(a, b codec.Field) int { return cmp.Compare(a.Name, b.Name) })
	return codec.Object(fields)
}

// readRecord reads a record; nil if there is none.
func (g *Gate) readRecord(ctx context.Context, k approval.Key) (*approval.Record, error) {
	b, ok, err := g.readIfExists(ctx, approval.DocRecord, k)
	if err != nil || !ok {
		return nil, err
	}
	return approval.OpenRecord(g.Seal, k, b)
}
