package gate

import (
	"context"
	"fmt"
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
	undo       func()      // returns what policy reserved; may be nil
	rerun      bool        // the second run of an idempotent tool
	submission *submission // its callers wait for acceptance; may be nil
	leftovers  []approval.Doc
}

// claimDecided is row 5 of the state table.
func (g *Gate) claimDecided(ctx context.Context, s *state) (waiting bool, err error) {
	tool := s.tool
	if !g.reserveRun(ctx, s, len(s.pBytes)+len(s.dBytes), tool) {
		return true, nil
	}
	if !g.beginClaim(ctx, s.key, tool) {
		g.releaseReservation(s.key)
		s.retryAt = s.decision.RunBefore.Add(1) // after that the approval has expired
		return true, nil
	}
	if err := g.addGrant(s.pending, s.decision); err != nil {
		g.releaseClaim(s.key, tool)
		return false, err
	}
	p := s.pending
	facts := g.factsOf(p, s.now)
	undo, refused := g.Policy.Reserve(facts, p.Ruling, true)
	if refused != nil {
		g.releaseClaim(s.key, tool)
		return false, g.endDecided(ctx, s, approval.StatusFailed, "Approved, not run: "+say(g.Words, mainReason(*refused)))
	}
	base := s.recordBase()
	return false, g.execute(ctx, run{
		key: s.key, tool: tool, info: g.infoFor(s), decision: s.decision, args: p.RequestData, leftovers: s.leftovers(),
		facts: facts, ruling: p.Ruling, undo: undo,
		claim: &approval.Claim{
			ToolName: p.ToolName, ActionType: p.ActionType, ToolSHA256: p.ToolSHA256,
			RequestSHA256: p.RequestSHA256, PendingSHA256: base.PendingSHA256,
			Pending: base.Pending, Decision: base.Decision, Ruling: &p.Ruling, RequestedAt: p.Timestamp,
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
		facts: ev.facts, ruling: ev.ruling, undo: undo, submission: s.submission,
		claim: &approval.Claim{
			ClientID: s.origin().ClientID,
			ToolName: r.ToolName, ActionType: actionType(r, tool), ToolSHA256: toolSHA,
			RequestSHA256: approval.Digest(s.q), Request: approval.Raw(s.q), Ruling: &ev.ruling, Facts: &ev.facts.Evidence, RequestedAt: s.now.UTC(),
		},
	})
}

// factsOf returns the facts of a pending, as the approver saw it.
func (g *Gate) factsOf(p *approval.Pending, now time.Time) approval.Facts {
	ws, _ := g.Settings.Workspace(p.SourceGroup)
	tool, known := g.Settings.Tool(p.ToolName)
	f := approval.Facts{
		RequestID: p.RequestID, Workspace: p.SourceGroup, Autonomy: autonomy(ws, p.SessionID), Tool: p.ToolName, KnownTool: known,
		ActionType: p.ActionType, Target: p.Target, SessionID: p.SessionID, ClientID: p.ClientID, Principal: p.Principal,
		Args: p.RequestData, Evidence: p.Facts, Now: now,
	}
	addConfigured(&f, ws, tool)
	f.Capability, f.Cost = p.Capability, p.Ruling.Cost
	return f
}

// runAgain is row 3 for an idempotent tool: a second claim and a second run.
func (g *Gate) runAgain(ctx context.Context, s *state) (waiting bool, err error) {
	tool := s.tool
	args, err := claimedArgs(s.claim, s.key)
	if err != nil {
		return false, g.endInterrupted(ctx, s)
	}
	if !g.reserveRun(ctx, s, len(s.claim.Pending)+len(s.claim.Request), tool) {
		return true, nil
	}
	if !g.beginClaim(ctx, s.key, tool) {
		g.releaseReservation(s.key)
		return true, nil
	}
	return false, g.execute(ctx, run{
		key: s.key, tool: tool, claim: s.claim, info: g.infoFor(s), decision: g.claimDecision(s.claim), args: args, rerun: true, leftovers: s.leftovers(),
	})
}

func claimedArgs(c *approval.Claim, k approval.Key) ([]byte, error) {
	if len(c.Request) > 0 && c.Request.Kind() == '{' {
		r, err := approval.ParseRequest(c.Request, k.ID)
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

// execute claims and runs. The claim and its audit entry are durable before the
// handler starts. If either cannot be written, nothing runs.
func (g *Gate) execute(ctx context.Context, r run) error {
	leave := sync.OnceFunc(func() { g.leavePause(r.key.Workspace) })
	defer leave()
	if r.undo != nil {
		defer r.undo() // no effect once the claim's audit entry is written
	}
	c := r.claim
	now := g.Now().UTC()
	if d := r.decision; d != nil && !r.rerun && now.After(d.RunBefore) {
		g.abandon(r) // RunBefore passed since the documents were read; the next load finds that
		return nil
	}
	c.Version, c.RequestID, c.Workspace = approval.Version, r.key.ID, r.key.Workspace
	c.ArgsSHA256, c.ClaimedAt = approval.Digest(r.args), now
	note, err := g.Receipts.IssueReceipt(c, r.decision, now.Add(receiptLife))
	if err != nil {
		g.abandon(r)
		return fmt.Errorf("issue receipt: %w", err)
	}
	c.Receipt = note
	body, err := c.Encode()
	if err != nil {
		g.abandon(r)
		return fmt.Errorf("encode claim: %w", err)
	}
	doc := approval.DocClaim
	if r.rerun {
		doc = approval.DocAgain
	}
	g.running.set(r.key, true)
	file := g.Seal.Seal(doc, r.key, body)
	history := func() error { return g.Audit.Append(r.entry(now, g.Words)) }
	if !g.Inline {
		err = g.Store.Create(ctx, doc, r.key, file, store.Durable, history)
	} else if err = g.Store.Create(ctx, doc, r.key, file, store.Durable); err == nil {
		err = history()
	}
	if err != nil && g.canRetryClaim(ctx, r, doc, err) {
		return fmt.Errorf("claim: %w", err)
	}
	if err != nil {
		return g.endUnclaimed(ctx, r, err)
	}
	g.accept(r.submission, submit.Result{})
	if r.decision == nil && !r.rerun {
		if err := g.removeRequest(ctx, r.key, r.submission); err != nil {
			g.Log.Warn().Str("ws", r.key.Workspace).Str("id", r.key.ID).Err(err).Msg("remove claimed request failed")
		}
	}
	leave()
	g.start(r)
	return nil
}

// canRetryClaim reports whether a claim failed because of the disk and left no claim
// document. The request is then unchanged, and the step is retried.
func (g *Gate) canRetryClaim(ctx context.Context, r run, doc approval.Doc, cause error) bool {
	if diagnose(cause).Reason == "" {
		return false
	}
	if _, there, err := g.readIfExists(ctx, doc, r.key); there || err != nil {
		return false
	}
	g.running.remove(r.key)
	g.abandon(r)
	return true
}

// abandon releases the space and the handler slot of a run without a claim.
func (g *Gate) abandon(r run) {
	g.releaseReservation(r.key)
	g.releaseSlot(r.key, r.tool)
}

// endUnclaimed ends a request whose claim could not be made durable. The outcome says
// that nothing ran. After a failed second claim the outcome is "interrupted", because
// the result of the first run is unknown.
func (g *Gate) endUnclaimed(ctx context.Context, r run, cause error) error {
	g.reportError(ctx, cause)
	g.Log.Error().Str("ws", r.key.Workspace).Str("id", r.key.ID).Err(cause).Msg("claim failed")
	e := r.outcome(approval.Effect{Error: "Nothing ran: the claim could not be written to disk; try again later"})
	e.record.Receipt = "" // nothing ran under it
	e.reason = ""         // it describes a handler failure, and no handler ran
	if r.rerun {
		e.status, e.event, e.effect.Error = approval.StatusInterrupted, event.Interrupted, errInterrupted
	}
	g.outcomes.set(r.key, e)
	g.releaseSlot(r.key, r.tool)
	return g.writeOutcome(ctx, r.key)
}

// entry is the audit entry of the claim, with everything that policy needs to count
// it.
func (r *run) entry(now time.Time, words Words) event.Entry {
	e := event.Entry{
		Time: now, Event: event.AutoApproved, Workspace: r.key.Workspace, RequestID: r.key.ID,
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
		e.Event, e.Grant, e.Human = event.Approved, "", !r.rerun
		setDecider(&e, d)
	}
	if r.rerun {
		e.Detail = event.DetailAgain
	}
	return e
}

// start starts the handler. A tool that runs nothing on the host is handled here, in
// the caller's goroutine.
func (g *Gate) start(r run) {
	if g.Inline || !r.tool.Runs() {
		g.runHandler(r)
		return
	}
	go func() {
		g.runHandler(r)
		g.Wake(r.key)
	}()
}

func (g *Gate) runHandler(r run) {
	job := approval.Job{
		Workspace: r.key.Workspace, RequestID: r.key.ID, Tool: r.tool, Args: r.args, Receipt: r.claim.Receipt,
	}
	if r.tool.Handler.Idempotent {
		job.Key = r.key.ID
	}
	effect := g.Executor.Run(context.Background(), job)
	g.outcomes.set(r.key, r.outcome(effect))
	g.releaseSlot(r.key, r.tool)
}

// outcome builds the outcome of a run.
func (r *run) outcome(effect approval.Effect) outcome {
	st := approval.StatusApproved
	switch {
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
	return outcome{
		key: r.key, status: st, event: kind, effect: effect, reason: reason,
		taints: r.ruling.Taints,
		record: recordFromClaim(r.claim), info: r.info, decision: r.decision, submission: r.submission, leftovers: append([]approval.Doc{approval.DocClaim}, r.leftovers...),
	}
}

// writeOutcome writes the record of a finished run. Until the write succeeds, the
// outcome stays in memory, the key counts as running, and every Step retries with a
// new file.
func (g *Gate) writeOutcome(ctx context.Context, k approval.Key) error {
	e, ok := g.outcomes.get(k)
	if !ok {
		return nil
	}
	if err := g.end(ctx, e); err != nil {
		if _, settled, readErr := g.readIfExists(ctx, approval.DocRecord, k); readErr != nil || !settled {
			return err
		}
		g.forgetOutcome(k)
		return err
	}
	g.forgetOutcome(k)
	return nil
}

func (g *Gate) forgetOutcome(k approval.Key) {
	g.releaseReservation(k)
	g.outcomes.remove(k)
	g.running.remove(k)
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
		if g.slots[k.Workspace] >= g.slotLimit(k.Workspace) {
			if !g.isQueued[k] { // a rescan can wake a queued key
				g.isQueued[k] = true
				g.queued[k.Workspace] = append(g.queued[k.Workspace], k)
			}
			return false
		}
		g.slots[k.Workspace]++
	}
	g.work.Add(1)
	return true
}

func (g *Gate) slotLimit(ws string) int {
	w, _ := g.Settings.Workspace(ws)
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
	g.slots[k.Workspace]--
	g.mu.Unlock()
	g.wakeQueued(k.Workspace)
}

// wakeQueued wakes the key that has waited longest for a slot. It also runs after
// every step, because a key that was woken for a slot may not need it any more.
func (g *Gate) wakeQueued(ws string) {
	g.mu.Lock()
	p := g.queued[ws]
	if len(p) == 0 || g.stopping || g.slots[ws] >= g.slotLimit(ws) {
		g.mu.Unlock()
		return
	}
	k := p[0]
	g.queued[ws] = p[1:]
	delete(g.isQueued, k)
	g.mu.Unlock()
	g.Wake(k)
}
