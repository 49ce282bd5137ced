package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
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
	byAgent    bool     // approved, for the agent to execute
}

// end commits the record (C), its audit entry and the response (S), after the entries that
// belong before them. The rest follows from C.
func (g *Gate) end(ctx context.Context, e outcome, before ...store.Op) error {
	file, err := g.sealRecord(&e)
	if err != nil {
		return err
	}
	g.index.startCooldown(e.key, g.Now().Add(cooldownPeriod))
	err = g.Store.Commit(ctx, append(before,
		store.Put(approval.DocRecord, e.key, file), store.Log(g.outcomeEntry(&e)), store.Show(e.key, e.record.Response))...)
	if err != nil {
		g.index.touch(e.key)
	}
	if errors.Is(err, store.ErrExists) {
		return nil // settled already; the next load reads how
	}
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	g.index.addSettled(e.key)
	g.plans.remove(e.key)
	g.settledNow(ctx, e.key, &e.record, len(file))
	g.accept(e.submission, submit.Result{})
	g.changed(e.key)
	g.logOutcome(&e)
	if err := errors.Join(g.endOrphans(ctx, e.key), g.cleanUp(ctx, e.key, e.leftovers)); err != nil {
		g.index.touch(e.key) // the record makes them harmless, and the next load finds them
		g.Log.Warn().Str("ws", e.key.Workspace).Str("id", e.key.ID).Err(err).Msg("clean up failed")
	}
	return nil
}

// sealRecord completes the record.
func (g *Gate) sealRecord(e *outcome) (file []byte, err error) {
	rec := &e.record
	if e.decision != nil {
		rec.DecidedAt = e.decision.DecidedAt
	}
	rec.Version, rec.RequestID, rec.Workspace, rec.Status = approval.Version, e.key.ID, e.key.Workspace, e.status
	rec.EndedAt = g.Now().UTC()
	response := e.response()
	if g.Head != nil {
		response.Log = g.Head()
	}
	if rec.Response, err = response.Encode(); err != nil {
		return nil, fmt.Errorf("encode response: %w", err)
	}
	body, err := rec.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return g.Seal.Seal(approval.DocRecord, e.key, body), nil
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

// cooldownPeriod is longer than the events of our own writes and removals take.
const cooldownPeriod = 3 * time.Second

func (g *Gate) logOutcome(e *outcome) {
	l := g.Log.Info().Str("ws", e.key.Workspace).Str("id", e.key.ID).Str("status", string(e.status))
	if e.decision != nil {
		l = l.Str("by", e.decision.DecidedBy).Str("via", e.decision.Via)
	}
	l.Msg("settled")
}

// outcomeEntry is the audit entry of an outcome.
func (g *Gate) outcomeEntry(e *outcome) event.Entry {
	a := g.newEntry(e.key, e.event)
	e.info.fillEnd(&a, &e.record, e.decision)
	a.Reason = cmp.Or(e.reason, unfitCode(e.record.Ruling), e.effect.Error)
	if e.effect.Unstarted {
		a.Taints = e.taints // of the claim: it read nothing
	}
	return a
}

func (e *outcome) response() *approval.Response {
	r := &approval.Response{
		Version: approval.Version, RequestID: e.key.ID, RequestSHA256: e.record.RequestSHA256,
		Status: e.status, RespondedAt: e.record.EndedAt,
		Result: e.effect.Result, Error: optional(e.effect.Error),
		Feedback: optional(e.feedback), RequiredResponse: optional(e.required), Receipt: optional(e.record.Receipt), Metadata: e.info.metadata,
	}
	if e.byAgent {
		r.Execution = approval.ExecutionAgent
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

// endDecided ends a decided request without running anything. What an approval gives is kept.
func (g *Gate) endDecided(ctx context.Context, s *state, st approval.Status, why string) error {
	if err := g.addGrant(s.pending, s.decision); err != nil {
		return err
	}
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

// EventsOf are the kinds of audit entries that tell an outcome with this status.
func EventsOf(st approval.Status) []event.Kind {
	switch kind := eventOf[st]; kind {
	case event.Executed:
		return []event.Kind{kind, event.Released}
	case event.DeniedByUser:
		return []event.Kind{kind, event.Denied}
	default:
		return []event.Kind{kind}
	}
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
		e.status, e.effect.Error, e.feedback = approval.StatusCancelled, "Cancelled before a decision", d.Feedback
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
		RequestedAt: c.RequestedAt, StartedAt: c.ClaimedAt, Plan: c.Plan, Step: c.Step,
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

// maxFindings is how many secrets the record of a refused request names.
const maxFindings = 16

// maxRefusedTarget is how much of its target the audit log has, in bytes.
const maxRefusedTarget = 256

// withoutPayload leaves the reasons of a refusal, and not what has the size of the request.
func withoutPayload(r approval.Ruling) *approval.Ruling {
	r.Links = nil
	r.Secrets = r.Secrets[:min(len(r.Secrets), maxFindings)]
	n := 0
	r.Reasons = slices.DeleteFunc(slices.Clone(r.Reasons), func(x approval.Reason) bool { // one for each secret
		if x.Code == "secret" || x.Code == "secret_deny" {
			n++
			return n > maxFindings
		}
		return false
	})
	return &r
}

// refuse ends a request without asking a person. Its record has the digest of the request and
// the reason, and not the payload.
func (g *Gate) refuse(ctx context.Context, s *state, st approval.Status, ruling approval.Ruling, why string) error {
	info := g.infoFor(s)
	if len(info.target) > maxRefusedTarget { // it may have an argument in it
		info.target = strings.ToValidUTF8(info.target[:maxRefusedTarget], "") + "…"
	}
	rec := approval.Record{
		RequestSHA256: approval.Digest(s.q), ClientID: s.origin().ClientID, Ruling: withoutPayload(ruling), RequestedAt: s.now.UTC(),
		Outline: &approval.Outline{ToolName: info.tool, ActionType: info.actionType, SessionID: info.sessionID, Size: len(s.q)},
	}
	return g.end(ctx, outcome{key: s.key, status: st, event: eventOf[st], effect: approval.Effect{Error: why}, record: rec, info: info, submission: s.submission, leftovers: s.leftovers()})
}

func (g *Gate) backoff(failures int) time.Time {
	wait := 50 * time.Millisecond << min(failures, 7)
	return g.Now().Add(min(wait, 5*time.Second))
}

// answerResult is the result {"answer": "text"}.
func answerResult(text string) approval.Raw {
	return codec.Object([]codec.Field{{Name: "answer", Value: codec.Quote(text)}})
}
