package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// receiptLife is how long a receipt is valid after it was issued.
const receiptLife = 5 * time.Minute

// run is one execution, from its claim on.
type run struct {
	key        approval.Key
	claim      *approval.Claim
	tool       approval.Tool
	info       requestInfo
	decision   *approval.Decision // nil: policy allowed it
	args       []byte
	facts      approval.Facts
	ruling     approval.Ruling
	undo       func()         // returns what policy reserved; may be nil
	rerun      bool           // the second run of an idempotent tool
	plan       *approval.Plan // of a program; nil: a tool runs
	program    *programRun    // whose step it is; nil: none
	task       []byte         // the task of an earlier run, whose end is awaited; nil: a run
	submission *submission    // its callers wait for acceptance; may be nil
	leftovers  []approval.Doc
}

// claimDecided is row 5 of the state table.
func (g *Gate) claimDecided(ctx context.Context, s *state) (waiting bool, err error) {
	tool := s.tool
	if ok, err := g.reserveRun(ctx, s.key, len(s.pBytes)+len(s.dBytes), tool); !ok {
		s.retryAt = g.Now().Add(minExamineInterval)
		return true, err
	}
	if !g.beginClaim(s.key, tool) {
		s.retryAt = s.decision.RunBefore.Add(1) // after that the approval has expired
		return true, nil
	}
	if err := g.addGrant(s.pending, s.decision); err != nil {
		g.releaseClaim(s.key, tool)
		return false, err
	}
	p := s.pending
	facts := g.factsOf(p, s.now)
	_, policy := g.Config()
	undo, refused := policy.Reserve(facts, p.Ruling, true)
	if refused != nil {
		g.releaseClaim(s.key, tool)
		return false, g.endDecided(ctx, s, approval.StatusFailed, "Approved, not run: "+say(g.Words, mainReason(*refused)))
	}
	base := s.recordBase()
	return false, g.execute(ctx, run{
		key: s.key, tool: tool, info: g.infoFor(s), decision: s.decision, args: p.RequestData, leftovers: s.leftovers(),
		facts: facts, ruling: p.Ruling, undo: undo, plan: p.Plan,
		claim: &approval.Claim{
			ToolName: p.ToolName, ActionType: p.ActionType, ToolSHA256: p.ToolSHA256,
			RequestSHA256: p.RequestSHA256, PendingSHA256: base.PendingSHA256,
			Pending: base.Pending, Decision: base.Decision, Ruling: &p.Ruling, RequestedAt: p.Timestamp, ArgsSubset: p.ArgsSubset,
		},
	})
}

// claimAllowed is row 13 for a request that policy allows.
func (g *Gate) claimAllowed(ctx context.Context, s *state, ev evaluation, undo func()) error {
	r, tool := s.request, ev.tool
	toolSHA := ""
	if r.ToolName != "" {
		toolSHA = tool.SHA256()
	}
	return g.execute(ctx, run{
		key: s.key, tool: tool, info: g.infoFor(s), args: r.RequestData, leftovers: s.leftovers(),
		facts: ev.facts, ruling: ev.ruling, undo: undo, submission: s.submission, plan: ev.plan,
		claim: &approval.Claim{
			ClientID: s.origin().ClientID,
			ToolName: r.ToolName, ActionType: actionType(r, tool), ToolSHA256: toolSHA,
			RequestSHA256: approval.Digest(s.q), Request: approval.Raw(s.q), Ruling: &ev.ruling, Facts: &ev.facts.Evidence, RequestedAt: s.now.UTC(),
			ArgsSubset: r.ArgsSubset, Plan: ev.plan,
		},
	})
}

// factsOf returns the facts of a pending, as the approver saw it.
func (g *Gate) factsOf(p *approval.Pending, now time.Time) approval.Facts {
	ws, _ := g.settings().Workspace(p.SourceGroup)
	tool, known := g.settings().Tool(p.ToolName)
	if !known && p.Runs.Unlisted {
		tool = approval.AgentTool(p.ToolName)
	}
	f := approval.Facts{
		RequestID: p.RequestID, Workspace: p.SourceGroup, Autonomy: autonomy(ws, p.SessionID), Tool: p.ToolName, KnownTool: known, ByAgent: tool.ByAgent(), Unlisted: p.Runs.Unlisted,
		ActionType: p.ActionType, Target: p.Target, SessionID: p.SessionID, ClientID: p.ClientID, Principal: p.Principal,
		Args: p.RequestData, Evidence: p.Facts, Now: now,
	}
	addConfigured(&f, ws, tool)
	f.Capability, f.Cost = p.Capability, p.Ruling.Cost
	if p.Plan != nil {
		f.Program = programFacts(p.Plan)
	}
	return f
}

// runAgain is row 3 for an idempotent tool: a second claim and a second run.
func (g *Gate) runAgain(ctx context.Context, s *state) (waiting bool, err error) {
	tool := s.tool
	args, err := claimedArgs(s.claim, s.key)
	if err != nil {
		return false, g.endInterrupted(ctx, s)
	}
	if ok, err := g.reserveRun(ctx, s.key, len(s.claim.Pending)+len(s.claim.Request), tool); !ok {
		s.retryAt = g.Now().Add(minExamineInterval)
		return true, err
	}
	if !g.beginClaim(s.key, tool) {
		return true, nil
	}
	return false, g.execute(ctx, run{
		key: s.key, tool: tool, claim: s.claim, info: g.infoFor(s), decision: g.claimDecision(s.claim), args: args, rerun: true, leftovers: s.leftovers(),
	})
}

// resumeTask is row 3 for a run that has become a task, which goes on without the daemon. Its end is awaited: nothing is
// started, so it needs no other receipt, and a pause does not hold it.
func (g *Gate) resumeTask(ctx context.Context, s *state) (waiting bool, err error) {
	if plan := g.planOf(s.claim); plan != nil {
		return g.resumeProgram(ctx, s, plan)
	}
	args, err := claimedArgs(s.claim, s.key)
	if err != nil {
		return false, g.endInterrupted(ctx, s)
	}
	if ok, err := g.reserveRun(ctx, s.key, len(s.claim.Pending)+len(s.claim.Request), s.tool); !ok {
		s.retryAt = g.Now().Add(minExamineInterval)
		return true, err
	}
	if !g.takeSlot(s.key, s.tool) {
		g.releaseReservation(s.key)
		return true, nil
	}
	g.running.set(s.key, true)
	g.start(run{
		key: s.key, tool: s.tool, claim: s.claim, info: g.infoFor(s), decision: g.claimDecision(s.claim), args: args, task: s.task, leftovers: s.leftovers(),
	})
	return false, nil
}

func claimedArgs(c *approval.Claim, k approval.Key) ([]byte, error) {
	if len(c.Request) > 0 && c.Request.Kind() == '{' {
		r, err := approval.ParseHostRequest(c.Request, k.ID)
		if err != nil {
			return nil, err
		}
		return r.RequestData, nil
	}
	fields, err := codec.Fields(c.Pending)
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		if f.Name == "request_data" {
			return f.Value, nil
		}
	}
	return nil, fmt.Errorf("no arguments in the claim of %s", k)
}

// execute claims and runs. The claim and its audit entry are one commit, which is durable
// before the handler starts. If it fails, nothing runs, and the step is retried.
func (g *Gate) execute(ctx context.Context, r run) error {
	leave := sync.OnceFunc(func() { g.leavePause(r.key.Workspace) })
	defer leave()
	if r.undo != nil {
		defer r.undo() // no effect once the claim's audit entry is committed
	}
	now := g.Now().UTC()
	if d := r.decision; d != nil && !r.rerun && now.After(d.RunBefore) {
		g.abandon(r) // RunBefore passed since the documents were read; the next load finds that
		return nil
	}
	if err := g.issueReceipt(&r, now); err != nil {
		g.abandon(r)
		return fmt.Errorf("issue receipt: %w", err)
	}
	if !r.tool.Runs() {
		return g.release(ctx, r)
	}
	if err := g.commitClaim(ctx, &r); err != nil {
		g.abandon(r)
		return fmt.Errorf("claim: %w", err)
	}
	g.running.set(r.key, true)
	g.plans.remove(r.key)
	g.condition.findRoom()
	g.accept(r.submission, submit.Result{})
	if i := slices.Index(r.leftovers, approval.DocRequest); i >= 0 {
		if err := g.Store.Remove(ctx, approval.DocRequest, r.key); err == nil {
			r.leftovers = slices.Delete(r.leftovers, i, i+1)
		} // else it is tried again with the rest
	}
	leave()
	g.start(r)
	return nil
}

// issueReceipt completes the claim: it holds the receipt that the executor demands.
func (g *Gate) issueReceipt(r *run, now time.Time) (err error) {
	c := r.claim
	c.Version, c.RequestID, c.Workspace = approval.Version, r.key.ID, r.key.Workspace
	life := receiptLife
	c.ArgsSHA256, c.ClaimedAt = approval.Digest(r.args), now
	if r.plan != nil {
		c.ArgsSHA256, c.ProgramSHA256, life = r.plan.SHA256(), approval.Digest([]byte(r.plan.Source)), programLife
	}
	c.Receipt, err = g.Receipts.IssueReceipt(c, r.decision, now.Add(life))
	return err
}

func (g *Gate) commitClaim(ctx context.Context, r *run) error {
	body, err := r.claim.Encode()
	if err != nil {
		return err
	}
	doc := approval.DocClaim
	if r.rerun {
		doc = approval.DocAgain
	}
	return g.Store.Commit(ctx, store.Put(doc, r.key, g.Seal.Seal(doc, r.key, body)), store.Log(r.entry(g.Words)))
}

// release ends a run of a tool that runs nothing on this host. The receipt is all that it
// gives, so claim and outcome are one commit: no one has the receipt without the record.
func (g *Gate) release(ctx context.Context, r run) error {
	defer g.abandon(r)
	e := r.outcome(g.Executor.Run(ctx, r.job()))
	e.submission, e.leftovers = r.submission, r.leftovers
	return g.end(ctx, e, store.Log(r.entry(g.Words)))
}

// abandon releases the space and the handler slot of a run that has none under way.
func (g *Gate) abandon(r run) {
	g.releaseReservation(r.key)
	g.releaseSlot(r.key, r.tool)
}

// entry is the audit entry of the claim, with everything that policy needs to count
// it.
func (r *run) entry(words Words) event.Entry {
	e := event.Entry{
		Time: r.claim.ClaimedAt, Event: event.AutoApproved, Workspace: r.key.Workspace, RequestID: r.key.ID,
		ReceiptSHA256: approval.Digest([]byte(r.claim.Receipt)),
		Taints:        r.ruling.Taints, Exact: r.ruling.Exact, Cost: r.ruling.Cost, Grant: r.ruling.Grant,
	}
	r.info.fill(&e, r.claim.Ruling)
	if r.claim.Ruling != nil {
		e.Rule, e.Reason = r.claim.Ruling.Rule, say(words, r.claim.Ruling.Proven)
		for _, x := range r.claim.Ruling.Reasons {
			if x.Code == "despite" {
				e.Reason = strings.TrimPrefix(e.Reason+"; "+say(words, x), "; ")
			}
		}
	}
	if d := r.decision; d != nil {
		e.Event, e.Grant, e.Human = event.Approved, "", !r.rerun && r.program == nil
		setDecider(&e, d)
	}
	if r.rerun {
		e.Detail = event.DetailAgain
	}
	return e
}

// start starts the handler.
func (g *Gate) start(r run) {
	if g.Inline {
		g.runHandler(r)
		return
	}
	go func() {
		g.runHandler(r)
		g.Wake(r.key)
	}()
}

func (g *Gate) runHandler(r run) {
	if r.plan != nil {
		effect, err := g.runProgram(context.Background(), r)
		if err != nil {
			g.leaveProgram(context.Background(), r, err)
			return
		}
		g.outcomes.set(r.key, r.outcome(effect))
		g.releaseSlot(r.key, r.tool)
		return
	}
	execute, job := g.Executor.Run, r.job()
	if job.Task != nil {
		execute = g.Executor.Resume
	}
	job.KeepTask = g.keepTask(r.key)
	if effect := execute(context.Background(), job); !effect.Left { // else its claim stays for the next start
		g.outcomes.set(r.key, r.outcome(effect))
	}
	g.releaseSlot(r.key, r.tool)
}

func (g *Gate) keepTask(k approval.Key) func(task []byte) error {
	return func(task []byte) error {
		return g.Store.Commit(context.Background(), store.Put(approval.DocTask, k, g.Seal.Seal(approval.DocTask, k, task)))
	}
}

func (r *run) job() approval.Job {
	job := approval.Job{
		Workspace: r.key.Workspace, RequestID: r.key.ID, Tool: r.tool, Args: r.args, Receipt: r.claim.Receipt, Task: r.task,
	}
	if r.tool.Handler.Idempotent {
		job.Key = r.key.ID
	}
	return job
}

// outcome builds the outcome of a run.
func (r *run) outcome(effect approval.Effect) outcome {
	st := approval.StatusApproved
	switch {
	case effect.Unknown:
		st = approval.StatusInterrupted
	case effect.Error != "":
		st = approval.StatusFailed
	case r.decision == nil:
		st = approval.StatusAutoApproved
	}
	kind := eventOf[st]
	if st != approval.StatusFailed && !r.tool.Runs() {
		kind = event.Released
	}
	reason := ""
	if effect.Error != "" {
		reason = "handler failed; see the record" // the handler's own text may contain the arguments
	}
	claimed := []approval.Doc{approval.DocClaim}
	if r.tool.Handler.Kind == approval.HandlerMCP {
		claimed = []approval.Doc{approval.DocTask, approval.DocClaim}
	}
	return outcome{
		key: r.key, status: st, event: kind, effect: effect, reason: reason,
		taints: r.ruling.Taints, byAgent: r.tool.ByAgent() && st != approval.StatusFailed,
		record: recordFromClaim(r.claim), info: r.info, decision: r.decision, leftovers: append(claimed, r.leftovers...),
	}
}

// writeOutcome writes the record of a finished run. Until the write succeeds, the
// outcome stays in memory, the key counts as running, and every Step retries.
func (g *Gate) writeOutcome(ctx context.Context, k approval.Key) error {
	e, ok := g.outcomes.get(k)
	if !ok {
		return nil
	}
	if err := g.end(ctx, e); err != nil {
		return err
	}
	g.releaseReservation(k)
	g.outcomes.remove(k)
	g.running.remove(k)
	return nil
}

// takeSlot takes one of the workspace's handler slots. If none is free, the key is
// queued, and woken when one becomes free. A key with a slot counts in g.work: after
// a stop no new claim begins, and Run waits for every claim that has begun.
func (g *Gate) takeSlot(k approval.Key, t approval.Tool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	if t.Runs() {
		r := g.limitsLocked(k.Workspace)
		if r.running >= g.slotLimit(k.Workspace) {
			r.slots.add(k)
			return false
		}
		r.running++
	}
	g.work.Add(1)
	return true
}

func (g *Gate) slotLimit(ws string) int {
	w, _ := g.settings().Workspace(ws)
	return w.Limits.WithDefaults().Running
}

// releaseSlot frees the slot. Call it when the outcome is set, so that a stopping gate
// finds it.
func (g *Gate) releaseSlot(k approval.Key, t approval.Tool) {
	defer g.work.Done()
	if !t.Runs() {
		return
	}
	g.mu.Lock()
	g.rates[k.Workspace].running--
	g.mu.Unlock()
	g.wakeQueued(k.Workspace)
}

// wakeQueued wakes the key that has waited longest for a slot. It also runs after
// every step, because a key that was woken for a slot may not need it any more.
func (g *Gate) wakeQueued(ws string) {
	var next []approval.Key
	g.mu.Lock()
	if r := g.rates[ws]; r != nil && len(r.slots.keys) > 0 && !g.stopping && r.running < g.slotLimit(ws) {
		next = r.slots.take(1)
	}
	g.mu.Unlock()
	g.wakeAll(next)
}
