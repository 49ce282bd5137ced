package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// programLife is how long after its claim a program may start steps. Its receipt expires then.
const programLife = time.Hour

// programRun is what the steps of one program share.
type programRun struct {
	key                          approval.Key
	requestSHA256, pendingSHA256 string
	from                         submit.Origin
	sessionID, principal         string
	policy                       Policy
	program                      *approval.ProgramFacts
	evidence                     approval.Evidence  // of all steps of the plan
	decision                     *approval.Decision // nil: policy allowed it
	receipt, planSHA256          string             // of the claimed program; "": it is being planned
	until                        time.Time          // no step begins later; zero: no bound
}

// planOf is the plan of a claimed program; nil if it is none.
func (g *Gate) planOf(c *approval.Claim) *approval.Plan {
	if c.ActionType != approval.ActionProgram || c.ToolName != "" {
		return nil
	}
	if p := g.embeddedPending(approval.Key{Workspace: c.Workspace, ID: c.RequestID}, c.Pending); p != nil {
		return p.Plan
	}
	return c.Plan
}

// replay is one evaluation that carries a plan out.
type replay struct {
	g        *Gate
	run      *programRun
	ws       approval.Workspace
	settings Settings
	plan     *approval.Plan
	outcomes []stepOutcome // of the steps so far
	stop     *runStop      // why the run ends before its plan; nil: it has not
	err      error         // the run goes on later
}

// runStop is where and why a run ends before its plan.
type runStop struct {
	step        int
	why         string
	interrupted bool
}

// errReplayEnds ends an evaluation: replay says why.
var errReplayEnds = errors.New("the run ends here")

// runProgram carries a claimed program out, from its first step that has no outcome. err says that it goes on later.
func (g *Gate) runProgram(ctx context.Context, r run) (approval.Effect, error) {
	settings, policy := g.Config()
	ws, _ := settings.Workspace(r.key.Workspace)
	principal := ws.Principal
	if asked := g.embeddedPending(r.key, r.claim.Pending); asked != nil {
		principal = asked.Principal
	}
	x := &programRun{
		key: r.key, requestSHA256: r.claim.RequestSHA256, pendingSHA256: r.claim.PendingSHA256, from: submit.Origin{ClientID: r.info.clientID},
		sessionID: r.info.sessionID, principal: principal, policy: policy, program: programFacts(r.plan), decision: r.decision,
		receipt: r.claim.Receipt, planSHA256: r.plan.SHA256(), until: r.claim.ClaimedAt.Add(programLife),
	}
	x.evidence = allEvidence(settings, r.plan)
	p := &replay{g: g, run: x, ws: ws, settings: settings, plan: r.plan}
	e, err := g.Planner.Evaluate(ctx, approval.ProgramJob{Source: r.plan.Source, Tools: programTools(settings, r.plan)}, p.call(ctx))
	next := len(p.outcomes) + 1
	switch wrong := (*approval.ProgramError)(nil); {
	case p.err != nil:
		return approval.Effect{}, p.err
	case p.stop != nil:
	case errors.As(err, &wrong):
		p.stop = &runStop{step: next, why: diverged(next) + " (" + wrong.Error() + ")"}
	case err == nil && (len(p.outcomes) != len(p.plan.Steps) || !sameNeeds(e.Needs, p.plan.Needs)):
		p.stop = &runStop{step: next, why: diverged(next)}
	case err != nil:
		return approval.Effect{}, fmt.Errorf("run program: %w", err)
	}
	return p.effect(), nil
}

func sameNeeds(a, b *approval.Needs) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func diverged(n int) string {
	return "diverged at step " + strconv.Itoa(n) + ": the program does something else than was approved; it has not run"
}

// call is what a program that runs gets for its calls.
func (p *replay) call(ctx context.Context) func(approval.Call) (approval.Answer, error) {
	return func(c approval.Call) (approval.Answer, error) {
		n := len(p.outcomes) + 1
		if n > len(p.plan.Steps) || !c.Equal(&p.plan.Steps[n-1].Call) {
			return p.end(n, diverged(n), false)
		}
		step := &p.plan.Steps[n-1]
		var out stepOutcome
		var err error
		if step.Done() {
			out, err = p.pinned(ctx, step, n)
		} else {
			out, err = p.step(ctx, step, n)
		}
		refused, wrong := (*stepRefused)(nil), (*approval.ProgramError)(nil)
		switch {
		case errors.As(err, &refused):
			return p.end(n, refused.why, false)
		case errors.As(err, &wrong):
			return p.end(n, wrong.Text, false)
		case err != nil:
			p.err = err
			return approval.Answer{}, errReplayEnds
		case out.status == approval.StatusInterrupted:
			p.outcomes = append(p.outcomes, out)
			return p.end(n, "interrupted at step "+strconv.Itoa(n)+": it was started and its outcome is unknown; check before retrying", true)
		}
		p.outcomes = append(p.outcomes, out)
		if out.failed != "" && !step.Try {
			return p.end(n, out.failed, false)
		}
		if step.Done() {
			return answer(out), nil
		}
		return approval.Answer{}, nil
	}
}

func (p *replay) end(n int, why string, interrupted bool) (approval.Answer, error) {
	p.stop = &runStop{n, why, interrupted}
	return approval.Answer{}, errReplayEnds
}

// answer is what a program learns of a step whose result it may look at.
func answer(out stepOutcome) approval.Answer {
	return approval.Answer{Known: true, Result: out.result, Failed: out.failed}
}

// pinned is the result of a step that had run when the plan was made.
func (p *replay) pinned(ctx context.Context, step *approval.Step, n int) (stepOutcome, error) {
	out, err := p.g.stepOutcome(ctx, approval.Key{Workspace: p.run.key.Workspace, ID: step.Of}, n)
	if err == nil && (approval.Digest(out.result) != step.ResultSHA256 || out.failed != step.Failed) {
		err = &stepRefused{diverged(n)}
	}
	return out, err
}

// step runs a step with the values that its opaque arguments have by now.
func (p *replay) step(ctx context.Context, planned *approval.Step, n int) (out stepOutcome, err error) {
	p.settings, p.run.policy = p.g.Config() // a reload counts from the next step on
	p.ws, _ = p.settings.Workspace(p.run.key.Workspace)
	tool, known := p.settings.Tool(planned.Tool)
	step := *planned
	step.Data = withOpaque(step.Call, func(ref approval.ResultRef) (v approval.Raw) {
		v, e := p.value(ref)
		err = cmp.Or(err, e)
		return v
	})
	if err != nil {
		return out, err
	}
	f := p.run.facts(p.ws, tool, &step, n, p.g.Now())
	f.Opaque, f.Evidence = nil, p.run.evidence
	if begun, err := p.g.stepBegun(ctx, p.run.key.StepKey(n)); err != nil {
		return out, err
	} else if !begun { // else how it ended counts, whatever has changed since
		if err := p.mayBegin(ctx, tool, known, planned, step.Data, f); err != nil {
			return out, err
		}
	}
	return p.g.runStep(ctx, p.run, tool, step, f, n)
}

// mayBegin says why a step does not begin.
func (p *replay) mayBegin(ctx context.Context, tool approval.Tool, known bool, planned *approval.Step, data approval.Raw, f approval.Facts) error {
	if !known || tool.SHA256() != planned.ToolSHA256 {
		return &stepRefused{"the tool changed, ask again"}
	}
	if _, why := facts.Fill(tool, data); !why.IsZero() {
		return &stepRefused{say(p.g.Words, why)}
	}
	if r := p.run.policy.Judge(f); r.Outcome == approval.Deny {
		return &stepRefused{say(p.g.Words, mainReason(r))}
	}
	_, cancelled, err := p.g.readIfExists(ctx, approval.DocCancel, p.run.key)
	if err == nil && cancelled {
		err = &stepRefused{"cancelled by the agent"}
	}
	return err
}

// value is the value of an opaque argument: a text.
func (p *replay) value(ref approval.ResultRef) (approval.Raw, error) {
	no := func(why string) (approval.Raw, error) {
		return nil, &stepRefused{fmt.Sprintf("%s: it needs %q of the result of step %d, %s", ref.Arg, ref.At, ref.Step, why)}
	}
	if ref.Step < 1 || ref.Step > len(p.outcomes) {
		return no("which has not run")
	}
	out := p.outcomes[ref.Step-1]
	if out.failed != "" {
		return no("which failed")
	}
	v, ok := codec.At(out.result, ref.At)
	if !ok || v.Kind() != '"' {
		return no("which has no such text")
	}
	return v, nil
}

// programResult is what an agent learns of a program that has run.
type programResult struct {
	Main          string            `json:"main"` // returned, needs or stopped
	Steps         []stepResult      `json:"steps"`
	Guarantees    []guaranteeResult `json:"guarantees"`
	NextRequestID string            `json:"next_request_id,omitzero"` // of the request that goes on after this one
	Undo          string            `json:"undo,omitzero"`            // a program that undoes what ran
}

type guaranteeResult struct {
	Guarantee string `json:"guarantee"`
	State     string `json:"state"`
}

type stepResult struct {
	Step    int             `json:"step"`
	Tool    string          `json:"tool"`
	Status  approval.Status `json:"status"` // of a request, or not_run
	Result  approval.Raw    `json:"result"`
	Omitted bool            `json:"result_omitted,omitzero"` // it is only in the step's record
	Error   string          `json:"error,omitzero"`
	Receipt string          `json:"receipt,omitzero"` // of a tool that runs nothing on this host
}

// statusNotRun is the status of a step that has not run.
const statusNotRun approval.Status = "not_run"

// maxResults bounds the results of all steps in a response, in bytes.
const maxResults = 256 << 10

// effect is the outcome of the program.
func (p *replay) effect() (e approval.Effect) {
	r, ran, size := programResult{Main: "returned", Steps: []stepResult{}, Guarantees: []guaranteeResult{}}, 0, 0
	for i := range p.plan.Steps {
		step := stepResult{Step: i + 1, Tool: p.plan.Steps[i].Tool, Status: statusNotRun, Result: approval.Raw("null")}
		if i < len(p.outcomes) {
			out := p.outcomes[i]
			ran++
			step.Status, step.Error, step.Result = out.status, out.failed, out.result
			if p.plan.Steps[i].ToolSHA256 != "" && !p.runsStep(i) {
				step.Receipt = out.receipt
			}
			if size+len(out.result) > maxResults {
				step.Result, step.Omitted = approval.Raw("null"), true
			} else {
				size += len(out.result)
			}
		}
		r.Steps = append(r.Steps, step)
	}
	for _, x := range p.plan.Guarantees {
		r.Guarantees = append(r.Guarantees, guaranteeResult{x.String(), x.State})
	}
	switch {
	case p.stop != nil:
		r.Main, e.Unknown, e.Error = "stopped", p.stop.interrupted, p.stop.text(p.plan, ran)
		r.Undo = p.undo()
	case p.plan.Needs != nil:
		r.Main, r.NextRequestID = "needs", approval.ContinuationID(p.run.key.ID)
		r.Undo = p.undo() // the rest may never come
	}
	body, err := codec.Encode(&r)
	if err != nil {
		return approval.Effect{Error: "the outcomes of the steps cannot be written: " + err.Error()}
	}
	e.Result = body
	return e
}

func (p *replay) runsStep(i int) bool {
	tool, known := p.settings.Tool(p.plan.Steps[i].Tool)
	return known && tool.Runs()
}

// text says where a run ended, why, and what ran.
func (s *runStop) text(plan *approval.Plan, ran int) string {
	where := s.why
	if s.step <= len(plan.Steps) && !strings.HasPrefix(s.why, "diverged at") && !strings.HasPrefix(s.why, "interrupted at") {
		where = fmt.Sprintf("step %d (%s): %s", s.step, plan.Steps[s.step-1].Tool, s.why)
	}
	return fmt.Sprintf("Stopped: %s. Of %d steps %d were started", where, len(plan.Steps), ran)
}

// undo is a program that undoes the steps that ran, the last first; "" if none of them can be undone.
func (p *replay) undo() string {
	var lines []string
	for i, out := range slices.Backward(p.outcomes) {
		step := &p.plan.Steps[i]
		tool, _ := p.settings.Tool(step.Tool)
		inverse, known := p.settings.Tool(tool.Undo)
		if tool.Undo == "" || !known || out.failed != "" {
			continue
		}
		if args, ok := undoArgs(inverse, step.Data, out.result); ok {
			lines = append(lines, fmt.Sprintf("    tools[%s](%s)  # step %d", codec.Quote(tool.Undo), args, i+1))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "def main():\n" + strings.Join(lines, "\n") + "\n"
}

// undoArgs are the arguments of an inverse: by their names from the result, else from the arguments of the call.
func undoArgs(inverse approval.Tool, data, result approval.Raw) (args string, ok bool) {
	var list []string
	given := map[string]approval.Raw{}
	for _, from := range []approval.Raw{data, result} {
		for _, f := range codec.FirstFields(from) {
			given[f.Name] = f.Value
		}
	}
	declared := facts.Arguments(inverse)
	names := make([]string, 0, len(declared))
	for name := range declared {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		v, there := given[name]
		if !there && !declared[name].Optional {
			return "", false
		}
		if !there {
			continue
		}
		if _, isText := (codec.Field{Value: v}).Text(); !isText {
			v = approval.Raw("json.decode(" + string(codec.Quote(string(v))) + ")")
		}
		list = append(list, name+" = "+string(v))
	}
	return strings.Join(list, ", "), true
}

// resumeProgram goes on with a program after a crash, or after something for which its run has waited.
func (g *Gate) resumeProgram(ctx context.Context, s *state, plan *approval.Plan) (waiting bool, err error) {
	if at, ok := g.resumeAt.get(s.key); ok && s.now.Before(at) {
		s.retryAt = at
		return true, nil
	}
	if ok, err := g.reserveRun(ctx, s.key, plan.Size(), s.tool); !ok {
		s.retryAt = g.Now().Add(minExamineInterval)
		return true, err
	}
	if !g.beginClaim(s.key, s.tool) {
		return true, nil
	}
	g.leavePause(s.key.Workspace) // each step enters by itself
	g.resumeAt.remove(s.key)
	g.running.set(s.key, true)
	g.start(run{
		key: s.key, tool: s.tool, claim: s.claim, info: g.infoFor(s), decision: g.claimDecision(s.claim), plan: plan, leftovers: s.leftovers(),
	})
	return false, nil
}

// leaveProgram ends a run that goes on later: its records say where.
func (g *Gate) leaveProgram(ctx context.Context, r run, err error) {
	wait := time.Second
	switch {
	case errors.Is(err, store.ErrNoRoom):
		wait = roomRetry
		g.askCheckpoint(ctx)
	case errors.Is(err, errStepPaused), errors.Is(err, errStepStopping), errors.Is(err, errStepNoSpace):
		wait = roomRetry
	default:
		g.reportError(ctx, err)
		g.Log.Error().Str("ws", r.key.Workspace).Str("id", r.key.ID).Err(err).Msg("program goes on later")
	}
	g.resumeAt.set(r.key, g.Now().Add(wait))
	g.releaseReservation(r.key)
	g.running.remove(r.key)
	g.releaseSlot(r.key, r.tool)
}
