package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/store"
)

// stepOutcome is what a step that has run gave.
type stepOutcome struct {
	status  approval.Status
	result  approval.Raw // null: none
	failed  string       // why it failed; "": it has not
	receipt string       // of a tool that runs nothing on this host
}

// What a run of a program waits for: it goes on later, from its records.
var (
	errStepPaused   = errors.New("the workspace is paused")
	errStepStopping = errors.New("the gate is stopping")
	errStepNoSpace  = errors.New("no space for the outcome of a step")
)

// stepRefused is why a step does not start, for the agent.
type stepRefused struct{ why string }

func (e *stepRefused) Error() string { return e.why }

// stepOutcome reads the outcome of a step that has run.
func (g *Gate) stepOutcome(ctx context.Context, k approval.Key, n int) (stepOutcome, error) {
	rec, err := g.readRecord(ctx, k.StepKey(n))
	if err == nil && rec == nil {
		err = &approval.ProgramError{Text: fmt.Sprintf("the outcome of step %d of %s is not stored any more", n, k.ID)}
	}
	if err != nil {
		return stepOutcome{}, err
	}
	return outcomeOf(rec)
}

func outcomeOf(rec *approval.Record) (out stepOutcome, err error) {
	r, err := approval.ParseResponse(rec.Response)
	if err != nil {
		return out, err
	}
	out.status, out.result = r.Status, r.Result
	if len(out.result) == 0 {
		out.result = approval.Raw("null")
	}
	if r.Error != nil {
		out.failed = *r.Error
	}
	if r.Receipt != nil {
		out.receipt = *r.Receipt
	}
	return out, nil
}

// runStep runs step n at most once, and returns its outcome: also that of a run before a crash. An error says that nothing
// is known yet, or with *stepRefused, that the step does not start.
func (g *Gate) runStep(ctx context.Context, x *programRun, tool approval.Tool, step approval.Step, f approval.Facts, n int) (out stepOutcome, err error) {
	k := x.key.StepKey(n)
	if e, ended := g.ended.get(k); ended {
		if err := g.endStep(ctx, e); err != nil {
			return out, err
		}
		g.ended.remove(k)
	}
	rec, err := g.readRecord(ctx, k)
	if err != nil {
		return out, err
	}
	if rec != nil {
		if rec.Step == nil || !rec.Step.Equal(&step.Call) {
			return out, &approval.ProgramError{Line: step.Line, Text: "another program has used this id: use a new one"}
		}
		if err := g.cleanUp(ctx, k, stepLeftovers); err != nil {
			return out, err
		}
		return outcomeOf(rec)
	}
	own := facts.OfStep(tool, &approval.Call{Data: step.Data})
	r := run{
		key: k, tool: tool, decision: x.decision, args: step.Data, facts: f, ruling: step.Ruling, program: x,
		info: requestInfo{tool: step.Tool, capability: tool.Capability, target: step.Target, actionType: f.ActionType, clientID: f.ClientID, sessionID: f.SessionID},
		claim: &approval.Claim{
			ToolName: step.Tool, ActionType: f.ActionType, ToolSHA256: step.ToolSHA256, RequestSHA256: x.requestSHA256, PendingSHA256: x.pendingSHA256,
			ClientID: x.from.ClientID, Ruling: &step.Ruling, Facts: &own, RequestedAt: g.Now().UTC(), Step: &step,
		},
	}
	begun, err := g.beginStep(ctx, &r)
	if err != nil {
		return out, err
	}
	defer g.releaseReservation(k)
	return g.carryOut(ctx, begun)
}

// stepBegun reports whether a step was claimed or has ended.
func (g *Gate) stepBegun(ctx context.Context, k approval.Key) (bool, error) {
	_, there, err := g.readIfExists(ctx, approval.DocRecord, k)
	if err == nil && !there {
		_, there, err = g.readIfExists(ctx, approval.DocClaim, k)
	}
	return there, err
}

// beginStep claims a step, or finds out how one that was claimed before goes on.
func (g *Gate) beginStep(ctx context.Context, r *run) (*stepClaimed, error) {
	x := r.program
	b, claimed, err := g.readIfExists(ctx, approval.DocClaim, r.key)
	if err != nil {
		return nil, err
	}
	again := false
	if claimed {
		if again, err = g.interruptedStep(ctx, r, b); err != nil {
			return nil, err
		}
		if !again {
			return &stepClaimed{run: r, interrupted: r.task == nil}, g.reserveStep(ctx, r)
		}
	}
	now := g.Now().UTC()
	if !x.until.IsZero() && now.After(x.until) {
		return nil, &stepRefused{"the run took too long, or the gate was down: its receipt has expired"}
	}
	if err := g.reserveStep(ctx, r); err != nil {
		return nil, err
	}
	if err := g.claimStep(ctx, r, now, again); err != nil {
		g.releaseReservation(r.key)
		return nil, err
	}
	return &stepClaimed{run: r}, nil
}

// stepClaimed is a step with a claim.
type stepClaimed struct {
	*run
	interrupted bool // by a crash, after which it does not run again
}

// interruptedStep says of a step that was claimed before a crash whether it may run once more. If it has become a task, r
// awaits that.
func (g *Gate) interruptedStep(ctx context.Context, r *run, file []byte) (again bool, err error) {
	c, err := approval.OpenClaim(g.Seal, r.key, file)
	if err != nil {
		return false, err
	}
	if c.Step == nil || !c.Step.Equal(&r.claim.Step.Call) {
		return false, &approval.ProgramError{Line: r.claim.Step.Line, Text: "another program has used this id: use a new one"}
	}
	r.claim = c
	same := r.tool.SHA256() == c.ToolSHA256
	if same && r.tool.Handler.Kind == approval.HandlerMCP {
		if b, ok, err := g.readIfExists(ctx, approval.DocTask, r.key); err != nil || ok {
			if err == nil {
				r.task, err = g.Seal.Open(approval.DocTask, r.key, b)
			}
			return false, err
		}
	}
	_, twice, err := g.readIfExists(ctx, approval.DocAgain, r.key)
	r.rerun = err == nil && same && r.tool.Handler.Idempotent && !twice
	return r.rerun, err
}

func (g *Gate) reserveStep(ctx context.Context, r *run) error {
	ok, err := g.reserveRun(ctx, r.key, len(r.args), r.tool)
	if err == nil && !ok {
		err = errStepNoSpace
	}
	return err
}

// claimStep commits the claim of a step. A tool that runs nothing has none: its step ends in the same commit.
func (g *Gate) claimStep(ctx context.Context, r *run, now time.Time, again bool) error {
	if g.Pauses != nil && !g.Pauses.Enter(r.key.Workspace) {
		return errStepPaused
	}
	defer g.leavePause(r.key.Workspace)
	g.mu.Lock()
	stopping := g.stopping
	g.mu.Unlock()
	if stopping {
		return errStepStopping
	}
	if !again {
		undo, refused := r.program.policy.Reserve(r.facts, r.ruling, r.decision != nil)
		if refused != nil {
			return &stepRefused{say(g.Words, mainReason(*refused))}
		}
		defer undo() // no effect once the claim's audit entry is committed
	}
	if err := g.issueReceipt(r, now); err != nil {
		return fmt.Errorf("issue receipt: %w", err)
	}
	if !r.tool.Runs() {
		return g.endStep(ctx, r.outcome(g.Executor.Run(ctx, r.job())), store.Log(r.entry(g.Words)))
	}
	if err := g.commitClaim(ctx, r); err != nil {
		return fmt.Errorf("claim step: %w", err)
	}
	return nil
}

// carryOut runs a step that is claimed, and records its outcome.
func (g *Gate) carryOut(ctx context.Context, c *stepClaimed) (out stepOutcome, err error) {
	if !c.tool.Runs() {
		return g.stepOutcome(ctx, c.program.key, stepNumber(c.key))
	}
	var e outcome
	switch {
	case c.interrupted:
		e = c.outcome(approval.Effect{Error: errInterrupted, Unknown: true})
	default:
		execute, job := g.Executor.Run, c.job()
		if job.Task != nil {
			execute = g.Executor.Resume
		}
		job.KeepTask = g.keepTask(c.key)
		if x := c.program; x.receipt != "" {
			job.Program = &approval.ProgramReceipt{RequestID: x.key.ID, Receipt: x.receipt, SHA256: x.planSHA256}
		}
		effect := execute(ctx, job)
		if effect.Left {
			return out, errStepStopping
		}
		e = c.outcome(effect)
	}
	e.leftovers = stepLeftovers
	if err := g.endStep(ctx, e); err != nil {
		g.ended.set(c.key, e)
		return out, err
	}
	return g.stepOutcome(ctx, c.program.key, stepNumber(c.key))
}

// stepLeftovers are the documents that the record of a step makes harmless.
var stepLeftovers = []approval.Doc{approval.DocAgain, approval.DocTask, approval.DocClaim}

func stepNumber(k approval.Key) int {
	_, n := approval.CutStep(k.ID)
	return n
}

// endStep commits the record of a step and its audit entry. No agent sees a response of its own.
func (g *Gate) endStep(ctx context.Context, e outcome, before ...store.Op) error {
	file, err := g.sealRecord(&e)
	if err != nil {
		return err
	}
	err = g.Store.Commit(ctx, append(before, store.Put(approval.DocRecord, e.key, file), store.Log(g.outcomeEntry(&e)))...)
	if err != nil && !errors.Is(err, store.ErrExists) {
		return fmt.Errorf("write record of a step: %w", err)
	}
	g.tellStorage(ctx, e.key.Workspace)
	if err := g.cleanUp(ctx, e.key, e.leftovers); err != nil {
		g.addOrphan(e.key) // the end of the program tries again
		g.Log.Warn().Str("ws", e.key.Workspace).Str("id", e.key.ID).Err(err).Msg("clean up failed")
	}
	return nil
}

// endOrphan ends one step, unless it has ended: whether it ran is not known.
func (g *Gate) endOrphan(ctx context.Context, k approval.Key) error {
	rec, err := g.readRecord(ctx, k)
	if err != nil {
		return err
	}
	b, ok, err := g.readIfExists(ctx, approval.DocClaim, k)
	if err != nil || !ok || rec != nil {
		return errors.Join(err, g.cleanUp(ctx, k, stepLeftovers))
	}
	c, err := approval.OpenClaim(g.Seal, k, b)
	if err != nil {
		return err
	}
	return g.endStep(ctx, outcome{
		key: k, status: approval.StatusInterrupted, event: eventOf[approval.StatusInterrupted], effect: approval.Effect{Error: errInterrupted},
		record: recordFromClaim(c), info: requestInfo{tool: c.ToolName, actionType: c.ActionType, clientID: c.ClientID}, leftovers: stepLeftovers,
	})
}

// addOrphan lets the end of a step's program look after its claim.
func (g *Gate) addOrphan(step approval.Key) (program approval.Key) {
	program = step
	program.ID, _ = approval.CutStep(step.ID)
	known, _ := g.orphans.get(program)
	g.orphans.set(program, append(known, step))
	return program
}

// endOrphans ends the steps that an earlier process has claimed and that nothing goes on with: their request has ended, or
// is gone with its plan.
func (g *Gate) endOrphans(ctx context.Context, parent approval.Key) error {
	steps, _ := g.orphans.get(parent)
	for _, k := range steps {
		if err := g.endOrphan(ctx, k); err != nil {
			return fmt.Errorf("end step %s: %w", k, err)
		}
	}
	g.orphans.remove(parent)
	return nil
}
