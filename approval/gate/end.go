package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
)

// Agents compare these two strings.
const (
	errDenied  = "Denied by user"
	errExpired = "Approval expired (no response within timeout)"
)

const errInterrupted = "Interrupted: the tool was started and its outcome is unknown; check before retrying"

// outcome is the data that the record, the response and the audit entry are made
// from.
type outcome struct {
	key        approval.Key
	status     approval.Status
	event      event.Kind
	effect     approval.Effect
	record     approval.Record
	info       requestInfo
	decision   *approval.Decision
	reason     string // for the log, if it must not contain effect.Error
	feedback   string
	required   string
	submission *submission // its callers wait for acceptance; may be nil
	leftovers  []approval.Doc
	taints     []string // that the claim added
}

// end writes the record (C), then the response (S). The rest follows from C.
func (g *Gate) end(ctx context.Context, e outcome) error {
	rec := &e.record
	if e.decision != nil {
		rec.DecidedAt = e.decision.DecidedAt
	}
	rec.Version, rec.RequestID, rec.Workspace, rec.Status = approval.Version, e.key.ID, e.key.Workspace, e.status
	rec.EndedAt = g.Now().UTC()
	resp, err := e.response().Encode()
	if err != nil {
		return fmt.Errorf("encode response: %w", err)
	}
	rec.Response = resp
	body, err := rec.Encode()
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if err := g.endGrant(&e); err != nil {
		return err
	}
	file, staged := g.Seal.Seal(approval.DocRecord, e.key, body), stagedResponse{drop: func() {}}
	stage := func() error { staged = g.stageResponse(ctx, e.key, resp); return nil }
	if g.Inline {
		_ = stage()
		err = g.Store.Create(ctx, approval.DocRecord, e.key, file, store.Durable)
	} else {
		err = g.Store.Create(ctx, approval.DocRecord, e.key, file, store.Durable, stage)
	}
	if err != nil {
		staged.drop()
	}
	if errors.Is(err, store.ErrExists) {
		return nil // settled already; the next load reads how
	}
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	g.accept(e.submission, submit.Result{})
	if err := g.showResponse(e.key, staged.show); err != nil {
		g.logOutcome(e)
		return err
	}
	g.logOutcome(e)
	// Under load the cleanup waits: creating files is slower right after removals.
	// The record makes the leftovers harmless.
	underLoad := g.sched.underLoad()
	if !underLoad {
		if err := g.cleanUp(ctx, e.key, e.leftovers); err != nil {
			return err
		}
	}
	g.index.startCooldown(e.key, g.Now().Add(cooldownPeriod), underLoad)
	return nil
}

// endGrant makes the grant of an approval durable, before the record.
func (g *Gate) endGrant(e *outcome) error {
	if e.decision == nil || e.decision.Verdict != approval.Approved {
		return nil
	}
	p, err := approval.OpenPending(g.Seal, e.key, e.record.Pending)
	if err != nil {
		return fmt.Errorf("add grant: %w", err)
	}
	return g.addGrant(p, e.decision)
}

// addGrant makes the grant of a decision durable: the decider may have been killed before,
// or be another program.
func (g *Gate) addGrant(p *approval.Pending, d *approval.Decision) error {
	if g.Grants == nil {
		return nil
	}
	if err := g.Grants.AddFromDecision(p, d); err != nil {
		return fmt.Errorf("add grant: %w", err)
	}
	return nil
}

// stagedResponse is a response that no agent sees yet.
type stagedResponse struct {
	show func() (sync func() error, err error)
	drop func()
}

// stageResponse writes a response where no agent sees it. If that fails, show tries
// once more: the record counts, not the response.
func (g *Gate) stageResponse(ctx context.Context, k approval.Key, resp []byte) stagedResponse {
	show, drop, err := g.Store.Stage(ctx, k, resp)
	if err != nil {
		return stagedResponse{func() (func() error, error) { return g.publish(ctx, k, resp) }, func() {}}
	}
	return stagedResponse{show, drop}
}

// cooldownPeriod is the time until a settled key is checked once more. Our own writes
// and removals cause many events for it; one check covers all of them.
const cooldownPeriod = 3 * time.Second

// logOutcome writes the log line and the audit entry of an outcome.
func (g *Gate) logOutcome(e outcome) {
	l := g.Log.Info().Str("ws", e.key.Workspace).Str("id", e.key.ID).Str("status", string(e.status))
	if e.decision != nil {
		l = l.Str("by", e.decision.DecidedBy).Str("via", e.decision.Via)
	}
	l.Msg("settled")
	g.noteEvent(e.key, e.event, func(a *event.Entry) {
		e.info.fillEnd(a, &e.record, e.decision)
		a.Reason = cmp.Or(e.reason, unfitCode(e.record.Ruling), e.effect.Error)
		if e.effect.Unstarted {
			a.Taints = e.taints // of the claim: it read nothing
		}
	})
	g.index.addSettled(e.key)
}

func (e *outcome) response() *approval.Response {
	r := &approval.Response{
		Version: approval.Version, RequestID: e.key.ID, RequestSHA256: e.record.RequestSHA256,
		Status: e.status, RespondedAt: e.record.EndedAt,
		Result: e.effect.Result, Error: optional(e.effect.Error),
		Feedback: optional(e.feedback), RequiredResponse: optional(e.required), Receipt: optional(e.record.Receipt),
	}
	r.Decision.Auto = e.decision == nil
	if d := e.decision; d != nil {
		r.Decision.Code, r.Decision.Note, r.Decision.Override = optional(d.Code), optional(d.Note), optional(d.Override)
		r.Decision.By, r.Decision.Via = optional(d.DecidedBy), optional(d.Via)
	}
	return r
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// recordBase is the part of a record that comes from a decided pending.
func (s *state) recordBase() approval.Record {
	return approval.Record{
		RequestSHA256: s.pending.RequestSHA256, PendingSHA256: approval.Digest(s.pBytes),
		Pending: approval.Raw(s.pBytes), Decision: approval.Raw(s.dBytes), Ruling: &s.pending.Ruling,
		RequestedAt: s.pending.Timestamp,
	}
}

// endDecided ends a decided request without running anything.
func (g *Gate) endDecided(ctx context.Context, s *state, st approval.Status, why string) error {
	return g.end(ctx, outcome{
		key: s.key, status: st, event: eventOf[st], effect: approval.Effect{Error: why},
		record: s.recordBase(), info: g.infoFor(s), decision: s.decision, leftovers: s.leftovers(),
	})
}

var eventOf = map[approval.Status]event.Kind{
	approval.StatusApproved:     event.Executed,
	approval.StatusAutoApproved: event.Executed,
	approval.StatusDenied:       event.DeniedByUser,
	approval.StatusAutoRejected: event.AutoRejected,
	approval.StatusExpired:      event.Expired,
	approval.StatusCancelled:    event.Cancelled,
	approval.StatusRequestMore:  event.RequestMore,
	approval.StatusOverridden:   event.Overridden,
	approval.StatusAnswered:     event.Answered,
	approval.StatusFailed:       event.Failed,
	approval.StatusInterrupted:  event.Interrupted,
	approval.StatusMalformed:    event.Malformed,
}

// endVerdict is row 7: every verdict that runs nothing.
func (g *Gate) endVerdict(ctx context.Context, s *state) error {
	d := s.decision
	e := outcome{key: s.key, record: s.recordBase(), info: g.infoFor(s), decision: d, leftovers: s.leftovers()}
	switch d.Verdict {
	case approval.Answered:
		e.status, e.effect.Result = approval.StatusAnswered, answerResult(d.Answer)
	case approval.Overridden:
		e.status = approval.StatusOverridden
		e.effect.Error = "Not run: the approver asks for a change, see decision.override"
	case approval.RequestMore:
		e.status, e.feedback, e.required = approval.StatusRequestMore, d.Feedback, "answer_from_facts_or_resubmit"
		e.effect.Error = "Not run: the approver asks for more, see feedback"
	case approval.Expired:
		e.status, e.effect.Error = approval.StatusExpired, errExpired
	case approval.Cancelled:
		e.status, e.effect.Error = approval.StatusCancelled, "Cancelled before a decision"
	default: // denied, and verdicts of later versions
		e.status, e.effect.Error, e.feedback = approval.StatusDenied, errDenied, d.Feedback
	}
	e.event = eventOf[e.status]
	return g.end(ctx, e)
}

// endInterrupted is row 3: a claim without a record after a crash. Whether the
// handler ran is unknown, so it is never run again.
func (g *Gate) endInterrupted(ctx context.Context, s *state) error {
	c := s.claim
	return g.end(ctx, outcome{
		key: s.key, status: approval.StatusInterrupted, event: event.Interrupted,
		effect:    approval.Effect{Error: errInterrupted},
		record:    recordFromClaim(c),
		info:      g.infoFor(s),
		decision:  g.claimDecision(c),
		leftovers: s.leftovers(),
	})
}

// recordFromClaim is the part of a record that comes from a claim.
func recordFromClaim(c *approval.Claim) approval.Record {
	return approval.Record{
		RequestSHA256: c.RequestSHA256, PendingSHA256: c.PendingSHA256, ClientID: c.ClientID,
		Request: c.Request, Pending: c.Pending, Decision: c.Decision, Ruling: c.Ruling, Facts: c.Facts, Receipt: c.Receipt,
		RequestedAt: c.RequestedAt, StartedAt: c.ClaimedAt,
	}
}

func (g *Gate) claimDecision(c *approval.Claim) *approval.Decision {
	if len(c.Decision) == 0 || string(c.Decision) == "null" {
		return nil
	}
	d, err := approval.OpenDecision(g.Seal, approval.Key{Workspace: c.Workspace, ID: c.RequestID}, c.Decision)
	if err != nil {
		return nil // cannot happen: the claim's MAC covers it; the record keeps the bytes
	}
	return d
}

// refuse ends a request without asking a person.
func (g *Gate) refuse(ctx context.Context, s *state, st approval.Status, ruling approval.Ruling, why string) error {
	rec := approval.Record{RequestSHA256: approval.Digest(s.q), ClientID: s.origin().ClientID, Ruling: &ruling, RequestedAt: s.now.UTC()}
	if s.request != nil {
		rec.Request, rec.Facts = approval.Raw(s.q), s.evidence
	}
	return g.end(ctx, outcome{key: s.key, status: st, event: eventOf[st], effect: approval.Effect{Error: why}, record: rec, info: g.infoFor(s), submission: s.submission, leftovers: s.leftovers()})
}

func (g *Gate) backoff(failures int) time.Time {
	wait := 50 * time.Millisecond << min(failures, 7)
	return g.Now().Add(min(wait, 5*time.Second))
}

// answerResult is the result {"answer": "text"}.
func answerResult(text string) approval.Raw {
	b, err := jsontext.AppendQuote([]byte(`{"answer":`), strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		return approval.Raw("{}")
	}
	return append(b, '}')
}
