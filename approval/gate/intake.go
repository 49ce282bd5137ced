package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/move"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// defaultTimeout is how long a request waits for a decision by default.
const defaultTimeout = 5 * time.Minute

// intake is row 13. It is the only place that evaluates a request.
func (g *Gate) intake(ctx context.Context, s *state) (waiting bool, err error) {
	wait, full, err := g.admit(ctx, s.key.Workspace)
	if err != nil {
		return false, err
	}
	if wait {
		g.lineUp(s.key)
		return true, nil
	}
	settings, policy := g.Config()
	ws, known := settings.Workspace(s.key.Workspace)
	if !known {
		return g.refuseLimited(ctx, s, approval.StatusAutoRejected,
			submit.ErrWorkspaceRefused, approval.Because("workspace_unknown", "workspace", s.key.Workspace))
	}
	if ws.NoFolder && s.submission == nil {
		return g.refuseLimited(ctx, s, approval.StatusAutoRejected,
			submit.ErrWorkspaceRefused, approval.Because("folder_closed", "workspace", s.key.Workspace))
	}
	if s.parseErr != nil || s.request == nil {
		return g.refuseLimited(ctx, s, approval.StatusMalformed, approval.ErrMalformed, approval.Because("malformed", "detail", malformedText(s)))
	}
	r := s.request
	if r.SourceGroup != "" && r.SourceGroup != ws.Name {
		return g.refuseLimited(ctx, s, approval.StatusAutoRejected,
			submit.ErrWorkspaceRefused, approval.Because("other_workspace", "workspace", ws.Name))
	}
	if g.waitedTooLong(s, timeout(r, ws, s.now)) {
		return g.refuseLimited(ctx, s, approval.StatusExpired, submit.ErrPaused, approval.Because("expired"))
	}
	if who := s.origin().Principal; who != "" && ws.Principal != "" && who != ws.Principal {
		return g.refuseLimited(ctx, s, approval.StatusAutoRejected, submit.ErrWorkspaceRefused,
			approval.Because("other_principal", "approver", who, "principal", ws.Principal))
	}
	if g.degraded() {
		return g.refuseDegraded(ctx, s)
	}
	if full {
		return g.refuseLimited(ctx, s, approval.StatusAutoRejected, submit.ErrLimitReached,
			approval.Because("limit_stored", "n", sizeText(g.budget(ws.Name))))
	}
	ev := evaluation{ws: ws, policy: policy}
	if r.Program != "" {
		return g.intakeProgram(ctx, s, ev, settings)
	}
	if why := ev.fill(settings, r); !why.IsZero() {
		return g.refuseUnfit(ctx, s, why)
	}
	ev.facts = ev.factsFrom(settings, s.origin(), r, s.now)
	s.evidence, ev.ruling = &ev.facts.Evidence, policy.Judge(ev.facts)
	why := cannotRun(g.Host, ev.tool)
	switch {
	case ev.ruling.Outcome != approval.Deny && !why.IsZero():
		return g.refuseUnfit(ctx, s, why)
	case ev.ruling.Outcome == approval.Allow && !ev.facts.Question:
		return g.allow(ctx, s, ev)
	case ev.ruling.Outcome == approval.Ask || ev.ruling.Outcome == approval.Allow:
		return g.ask(ctx, s, ev) // an allowed question is still a person's to answer
	}
	return g.refuseRuled(ctx, s, ev.ruling)
}

// evaluation is a request with what one configuration says about it.
type evaluation struct {
	ws     approval.Workspace
	tool   approval.Tool
	known  bool // the tool is configured
	runs   approval.Runs
	facts  approval.Facts
	ruling approval.Ruling
	policy Policy
	plan   *approval.Plan   // of a program; nil: none
	steps  []approval.Facts // of the plan, those that have not run
}

// fill finds the tool and what would run. A Reason says why nothing could: then no approver
// is asked.
func (ev *evaluation) fill(settings Settings, r *approval.Request) (why approval.Reason) {
	if r.ToolName != "" {
		ev.tool, ev.known = settings.Tool(r.ToolName)
	}
	byAgent := r.Execution == approval.ExecutionAgent
	switch {
	case r.Type == approval.TypeQuestion: // nothing runs
	case r.Program != "":
		return approval.Because("program_error", "detail", "a program is ruled on with its plan")
	case r.ToolName == "":
		ev.runs.Args = facts.ReleaseArgs(r.ActionType)
	case !ev.known && !byAgent:
		return facts.UnknownTool(r.ToolName, settings.ToolNames())
	case byAgent && ev.known && !ev.tool.ByAgent():
		return approval.Because("tool_on_host", "tool", r.ToolName)
	default:
		if !ev.known {
			ev.tool = approval.AgentTool(r.ToolName)
		}
		ev.runs, why = fill(ev.tool, ev.known, r.RequestData)
	}
	return why
}

// fill is what would run. Only the agent knows what its own call takes: if the table does not declare it so, or does not
// name the tool, people see all of it.
func fill(tool approval.Tool, known bool, data approval.Raw) (approval.Runs, approval.Reason) {
	runs, why := facts.Fill(tool, data)
	if tool.ByAgent() && (!known || !why.IsZero()) {
		return approval.Runs{Kind: tool.Handler.Kind, Args: facts.AgentArgs(tool, data), Unlisted: true}, approval.Reason{}
	}
	return runs, why
}

func malformedText(s *state) string {
	if s.parseErr == nil {
		return approval.ErrMalformed.Error()
	}
	return s.parseErr.Error()
}

// mainReason is the first reason that argues for the ruling's own outcome, else the
// first one.
func mainReason(r approval.Ruling) approval.Reason {
	for _, reason := range r.Reasons {
		if o, ok := reason.Outcome(); ok && o == r.Outcome {
			return reason
		}
	}
	if len(r.Reasons) > 0 {
		return r.Reasons[0]
	}
	return approval.Because("no_rule")
}

// allow claims and runs what policy allows.
func (g *Gate) allow(ctx context.Context, s *state, ev evaluation) (waiting bool, err error) {
	tool := ev.tool
	if ok, err := g.reserveRun(ctx, s.key, len(s.q)+ev.plan.Size(), tool); err != nil {
		return false, err
	} else if !ok {
		return g.refuseDegraded(ctx, s)
	}
	if begun, waiting, err := g.beginAllowed(ctx, s, tool); !begun {
		return waiting, err
	}
	g.index.addClaimed(s.key)
	if why := g.limits(ev.ws.Name).over(s.now, ev.ws.Limits.WithDefaults(), false); !why.IsZero() {
		g.releaseClaim(s.key, tool)
		return g.refuseLimited(ctx, s, approval.StatusAutoRejected, submit.ErrLimitReached, why)
	}
	undo, refused := ev.policy.Reserve(ev.facts, ev.ruling, false)
	if refused == nil {
		return false, g.claimAllowed(ctx, s, ev, undo)
	}
	// Since the ruling a limit was reached or a taint was added.
	g.releaseClaim(s.key, tool)
	g.index.release(s.key)
	ev.ruling = *refused
	if refused.Outcome == approval.Ask {
		return g.ask(ctx, s, ev)
	}
	return g.refuseRuled(ctx, s, ev.ruling)
}

// beginAllowed is beginClaim for a request that is being taken in. A cancel ends one that a pause holds.
func (g *Gate) beginAllowed(ctx context.Context, s *state, tool approval.Tool) (begun, waiting bool, err error) {
	if g.beginClaim(s.key, tool) {
		return true, false, nil
	}
	if s.Cancel && g.keyPaused(s.key) {
		waiting, err = g.refuseLimited(ctx, s, approval.StatusCancelled, submit.ErrPaused, approval.Because("cancelled_paused"))
		return false, waiting, err
	}
	return false, true, nil
}

// ask writes the pending. It reports waiting if the key needs no further step.
func (g *Gate) ask(ctx context.Context, s *state, ev evaluation) (waiting bool, err error) {
	release, ok, err := g.reserve(ctx, spaceNeeded(len(s.q)+ev.plan.Size(), ev.tool))
	if err != nil {
		return false, err
	} else if !ok {
		return g.refuseDegraded(ctx, s)
	}
	defer release()
	limits := ev.ws.Limits.WithDefaults()
	short, full := g.index.reserve(s.key, limits.Pending)
	if !full.IsZero() {
		return g.refuseLimited(ctx, s, approval.StatusAutoRejected, submit.ErrLimitReached, full)
	}
	if why := g.limits(ev.ws.Name).over(s.now, limits, true); !why.IsZero() {
		g.index.release(s.key)
		return g.refuseLimited(ctx, s, approval.StatusAutoRejected, submit.ErrLimitReached, why)
	}
	p := g.newPending(s, ev, short)
	body, err := p.Encode()
	if err != nil {
		g.index.release(s.key)
		return false, fmt.Errorf("encode pending: %w", err)
	}
	put := store.Put(approval.DocPending, s.key, g.Seal.Seal(approval.DocPending, s.key, body))
	if s.Pending == move.Invalid {
		put.Mode = store.Replace
	}
	if err := g.Store.Commit(ctx, put, store.Log(g.requestedEntry(p, &ev.ruling))); err != nil {
		g.index.release(s.key)
		return false, fmt.Errorf("write pending: %w", err)
	}
	g.condition.findRoom()
	l := g.Log.Info().Str("ws", s.key.Workspace).Str("id", s.key.ID)
	if ev.known { // a question may name any tool
		l = l.Str("tool", p.ToolName)
	}
	l.Msg("asked")
	// After the log line, so that the caller finds it.
	g.accept(s.submission, submit.Result{Pending: p, SHA256: approval.Digest(put.Bytes)})
	g.changed(s.key)
	if s.submission == nil { // it came in a file
		if err := g.Store.Remove(ctx, approval.DocRequest, s.key); err != nil {
			return false, err
		}
	}
	g.plans.remove(s.key)
	s.retryAt = p.ExpiresAt
	// No other document existed when this one was loaded. A later one wakes the key.
	return !s.Cancel && !s.alsoAsFile && s.Decision == move.Absent && s.Response == move.Absent, nil
}

// requestedEntry is the audit entry of a pending.
func (g *Gate) requestedEntry(p *approval.Pending, r *approval.Ruling) event.Entry {
	e := g.newEntry(approval.Key{Workspace: p.SourceGroup, ID: p.RequestID}, event.Requested)
	infoFromPending(p).fill(&e, r)
	e.Rule, e.Exact, e.Soft = r.Rule, r.Exact, r.Soft
	return e
}

// newPending is the request as people see it. The agent's fields are data or prose.
// Everything that carries authority comes from the configuration.
func (g *Gate) newPending(s *state, ev evaluation, short string) *approval.Pending {
	r, ws, tool, f := s.request, ev.ws, ev.tool, ev.facts
	p := &approval.Pending{
		Version: approval.Version, RequestID: r.RequestID, ShortID: short, Type: r.Type,
		ToolName: r.ToolName, SourceGroup: ws.Name, ChatJID: ws.ChatJID, RequestData: r.RequestData,
		Timestamp: s.now.UTC(), RequestSHA256: approval.Digest(s.q), SessionID: r.SessionID, ClientID: f.ClientID,
		ActionType: f.ActionType, Capability: f.Capability, Target: f.Target,
		Reversibility: tool.Reversibility, Verb: tool.Verb, Summary: facts.ExpandQuoted(tool.Summary, r.RequestData),
		Territory: tool.Territory, Principal: f.Principal, AskOn: s.origin().AskOn, Ruling: ev.ruling,
		ExpiresAt:       s.now.Add(timeout(r, ws, s.now)).UTC(),
		RecurrenceCount: ev.policy.Recurrence(ws.Name, cmp.Or(f.Tool, f.ActionType), f.Capability),
		Agent:           approval.Prose{Title: r.Title, Preview: r.Preview, Rationale: r.Rationale},
		Options:         r.Options, Resubmits: r.Resubmits, Proof: r.Proof, Facts: f.Evidence,
		Runs: ev.runs, SummaryParts: facts.Parts(tool.Summary), Metadata: r.Metadata, ArgsSubset: r.ArgsSubset,
		Editable: r.Editable, Subagent: r.Subagent,
	}
	p.ToolSHA256 = f.ToolSHA256
	if p.Plan = ev.plan; p.Plan != nil {
		p.Offers, p.Reversibility = ev.policy.OffersProgram(f, ev.steps, ev.ruling), p.Plan.Reversibility()
	} else {
		p.Offers = ev.policy.Offers(f, ev.ruling)
	}
	if p.Reversibility == "" {
		p.Reversibility = releaseReversibility(r)
	}
	if !ev.ruling.Reason("changes_asking").IsZero() {
		p.Reversibility = approval.Irreversible
	}
	g.addHostFacts(p, ws, tool)
	return p
}

// releaseReversibility is the default for a request without a tool. An unknown tool
// counts as irreversible.
func releaseReversibility(r *approval.Request) approval.Reversibility {
	if r.ToolName == "" && (r.ActionType == "http_request" || r.ActionType == "write_file") {
		return approval.Partial
	}
	return approval.Irreversible
}

func timeout(r *approval.Request, ws approval.Workspace, now time.Time) time.Duration {
	t := ws.Timeout
	if t <= 0 {
		t = defaultTimeout
	}
	if ws.QuietHours.Covers(now.Local()) {
		t = max(t, ws.QuietHours.Timeout)
	}
	if r.ExpiresInSec > 0 {
		t = min(time.Duration(r.ExpiresInSec)*time.Second, max(t, ws.MaxTimeout))
	}
	return t
}

// actionType comes from the tool, if there is one. The request's own is the agent's
// claim.
func actionType(r *approval.Request, t approval.Tool) string {
	if r.ToolName != "" {
		if t.ActionType != "" {
			return t.ActionType
		}
		return "custom:" + r.ToolName
	}
	if r.Program != "" {
		return approval.ActionProgram
	}
	return r.ActionType
}

// refuseUnfit ends a request that could not run. Its text says what is wrong.
func (g *Gate) refuseUnfit(ctx context.Context, s *state, why approval.Reason) (waiting bool, err error) {
	return g.refuseWith(ctx, s, unfit(why), say(g.Words, why))
}

// unfit is the ruling on a request that could not run.
func unfit(why approval.Reason) approval.Ruling {
	return approval.Ruling{Outcome: approval.Deny, Rule: NotEvaluated, Reasons: []approval.Reason{why}}
}

// unfitCode is the code of a refusal whose sentence has an argument of the request, "" for
// any other: the audit log holds no arguments.
func unfitCode(r *approval.Ruling) string {
	if r == nil || len(r.Reasons) == 0 || !strings.HasPrefix(r.Reasons[0].Code, "argument_") {
		return ""
	}
	return r.Reasons[0].Code
}

// refuseRuled ends a request that policy denies.
func (g *Gate) refuseRuled(ctx context.Context, s *state, ruling approval.Ruling) (waiting bool, err error) {
	return g.refuseWith(ctx, s, ruling, "Denied by policy: "+say(g.Words, mainReason(ruling)))
}

// refuseWith ends a request with this text. It counts against the rate limits.
func (g *Gate) refuseWith(ctx context.Context, s *state, ruling approval.Ruling, text string) (waiting bool, err error) {
	if !g.limits(s.key.Workspace).all.AllowN(s.now, 1) && !g.limits(s.key.Workspace).refused.AllowN(s.now, 1) {
		return g.delayRefusal(s)
	}
	if code := mainReason(ruling).Code; strings.HasPrefix(code, "rate_") || strings.HasPrefix(code, "cost_") {
		g.limited(s.key.Workspace)
	}
	return false, g.refuse(ctx, s, approval.StatusAutoRejected, ruling, text)
}

// refuseLimited ends a request without asking policy. A submission is rejected with
// reason and gets no record, because its caller gets the error.
func (g *Gate) refuseLimited(ctx context.Context, s *state, st approval.Status, reason error, why approval.Reason) (waiting bool, err error) {
	text := say(g.Words, why)
	if !g.limits(s.key.Workspace).refused.AllowN(s.now, 1) {
		return g.delayRefusal(s)
	}
	if errors.Is(reason, submit.ErrLimitReached) {
		g.limited(s.key.Workspace)
	}
	if s.submission != nil {
		g.reject(s.submission, fmt.Errorf("%w: %s", reason, text))
		return true, nil
	}
	if s.forgedPending {
		g.Log.Warn().Str("ws", s.key.Workspace).Str("id", s.key.ID).Msg(text)
		g.noteRequestEvent(s, event.Forged, text)
	}
	if st == approval.StatusMalformed {
		if err := g.Store.Refuse(ctx, s.key.Workspace, s.key.ID+".request", text); err != nil {
			return false, fmt.Errorf("describe request: %w", err)
		}
	}
	return false, g.refuse(ctx, s, st, unfit(why), text)
}

// delayRefusal leaves a request in its folder: the workspace has used up its
// refusals.
func (g *Gate) delayRefusal(s *state) (waiting bool, err error) {
	if s.submission != nil {
		g.limited(s.key.Workspace)
		g.reject(s.submission, fmt.Errorf("%w: too many refused requests from this workspace", submit.ErrLimitReached))
		return true, nil
	}
	g.lineUp(s.key)
	return true, nil
}

// NotEvaluated is the rule of a request that policy did not evaluate.
const NotEvaluated = "gate"

// Judge returns a request file as policy sees it, and its ruling if it came now: that of
// judge, or a denial by NotEvaluated because the request cannot run. With a nil host, what
// a tool lacks there does not count.
func Judge(
	settings Settings, workspace string, r *approval.Request, now time.Time,
	judge func(approval.Facts) approval.Ruling, host Host,
) (approval.Facts, approval.Ruling) {
	ev := evaluate(settings, workspace, r, now, judge, host)
	return ev.facts, ev.ruling
}

// Preview returns a request as people would see it, and its ruling if it came now: nil if it
// could not run. It asks no person and keeps nothing.
func Preview(
	settings Settings, policy Policy, workspace string, r *approval.Request, now time.Time, host Host,
) (*approval.Pending, approval.Ruling) {
	ev := evaluate(settings, workspace, r, now, policy.Judge, host)
	if ev.ruling.Rule == NotEvaluated {
		return nil, ev.ruling
	}
	ev.policy = policy
	s := &state{key: approval.Key{Workspace: workspace, ID: r.RequestID}, now: now, request: r}
	return (&Gate{Host: host}).newPending(s, ev, approval.ShortID(r.RequestID)), ev.ruling
}

// evaluate rules on a request that came now. What cannot run is denied by NotEvaluated.
func evaluate(
	settings Settings, workspace string, r *approval.Request, now time.Time,
	judge func(approval.Facts) approval.Ruling, host Host,
) evaluation {
	ev := evaluation{}
	ev.ws, _ = settings.Workspace(workspace)
	ev.ws.Name = workspace
	why := ev.fill(settings, r)
	ev.facts = ev.factsFrom(settings, submit.Origin{}, r, now)
	if why.IsZero() {
		ev.ruling = judge(ev.facts)
		why = cannotRun(host, ev.tool)
		if ev.ruling.Outcome == approval.Deny || why.IsZero() {
			return ev
		}
	}
	ev.ruling = unfit(why)
	return ev
}

// factsFrom returns a request as policy sees it. Everything that carries authority comes
// from the settings.
func (ev *evaluation) factsFrom(settings Settings, from submit.Origin, r *approval.Request, now time.Time) approval.Facts {
	ws, tool := ev.ws, ev.tool
	ws.Principal = cmp.Or(ws.Principal, from.Principal)
	f := approval.Facts{
		RequestID: r.RequestID, Workspace: ws.Name, Autonomy: autonomy(ws, r.SessionID),
		Tool: r.ToolName, KnownTool: ev.known, ByAgent: tool.ByAgent(), Unlisted: ev.runs.Unlisted, ActionType: actionType(r, tool),
		Target:    facts.Expand(tool.Target, r.RequestData),
		SessionID: r.SessionID, Subagent: r.Subagent, ClientID: from.Client(ws.Name), Principal: ws.Principal, Args: r.RequestData,
		Agent:    approval.Prose{Title: r.Title, Preview: r.Preview, Rationale: r.Rationale},
		Question: r.Type == approval.TypeQuestion, Evidence: facts.Of(tool, r, settings.Provers(), now), Now: now,
	}
	addConfigured(&f, ws, tool)
	return f
}

// addConfigured adds what the configuration says of a request's tool and workspace.
func addConfigured(f *approval.Facts, ws approval.Workspace, tool approval.Tool) {
	f.Capability, f.Trust, f.Cost = tool.Capability, tool.Trust, facts.CostOf(tool, f.Args)
	f.Targeted, f.AnyExec = tool.Target != "", ws.RememberExec
	if f.Tool == "" {
		f.Trust = ws.ReleaseTrust
	}
	if f.KnownTool || f.Unlisted {
		f.ToolSHA256, f.Declared, f.Secrets = tool.SHA256(), facts.Arguments(tool), tool.Secrets
	}
	if f.Unlisted {
		f.Declared = facts.AgentArgs(tool, f.Args)
	}
}

// autonomy is the workspace's level. A session may only lower it.
func autonomy(ws approval.Workspace, session string) string {
	if own, ok := ws.Sessions[session]; ok {
		return grant.LowerLevel(own, ws.Autonomy)
	}
	return ws.Autonomy
}
