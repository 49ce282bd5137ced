package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/move"
	"github.com/permesso-dev/permesso/approval/store"
)

// state is one key's documents, loaded and verified at one moment.
type state struct {
	move.Documents
	key approval.Key
	now time.Time

	current  bool               // the last move has brought it up to date: no load is needed
	evidence *approval.Evidence // what policy was told; nil: policy was not asked
	retryAt  time.Time          // set by a move that waits

	submission *submission // the request, if it came through Submit
	alsoAsFile bool        // a request file with the submission's id exists
	// forgedPending: P has a mac, and not the gate's.
	forgedPending bool
	q             []byte // the request's bytes: of Q, of a submission, or of a P without a MAC
	parseErr      error  // why q is not a request
	request       *approval.Request

	cancelReason string // of X

	pending  *approval.Pending
	pBytes   []byte
	decision *approval.Decision
	dBytes   []byte
	claim    *approval.Claim
	task     []byte        // by which an executor finds the claim's task
	tool     approval.Tool // the approved or claimed tool, as it was read
	record   *approval.Record
}

// load reads the documents of k. If a record or a claim does not verify, load fails
// and the key stops: what happened is unknown.
func (g *Gate) load(ctx context.Context, k approval.Key) (*state, error) {
	s := &state{key: k, now: g.Now()}
	s.Running = g.running.has(k)
	if late, ok := g.late.get(k); ok && s.now.Before(late) {
		s.now = late
	}
	if g.loadFreshSubmission(s) {
		return s, nil
	}
	reads := []func(context.Context, *state) error{g.loadRecord, g.loadClaim, g.loadPending, g.loadDecision, g.loadRequest, g.loadResponse}
	if _, only := g.index.onlyPending.take(k); only {
		// The scan at start found nothing else. A later document causes an event, and
		// the exclusive create protects the slot.
		if err := g.loadPending(ctx, s); err != nil || s.Pending == move.Valid {
			return s, err
		}
		s = &state{key: k, now: s.now}
	}
	for _, read := range reads {
		if err := read(ctx, s); err != nil {
			return nil, fmt.Errorf("load %s: %w", k, err)
		}
	}
	return s, nil
}

func (g *Gate) loadRecord(ctx context.Context, s *state) error {
	b, ok, err := g.readIfExists(ctx, approval.DocRecord, s.key)
	if err != nil || !ok {
		return err
	}
	if s.record, err = approval.OpenRecord(g.Seal, s.key, b); err != nil {
		return err
	}
	s.Record = true
	s.Retained = s.now.Sub(s.record.EndedAt) < g.ResponseRetention
	return nil
}

func (g *Gate) loadClaim(ctx context.Context, s *state) error {
	b, ok, err := g.readIfExists(ctx, approval.DocClaim, s.key)
	if err != nil {
		return err
	}
	s.Claim = ok
	if s.Record && !ok {
		// A power cut can restore a second claim or a task that was removed.
		for _, d := range []approval.Doc{approval.DocAgain, approval.DocTask} {
			if err == nil && !s.Claim {
				_, s.Claim, err = g.readIfExists(ctx, d, s.key)
			}
		}
		return err
	}
	if !ok || s.Running || s.Record {
		return nil
	}
	if s.claim, err = approval.OpenClaim(g.Seal, s.key, b); err != nil {
		return err
	}
	if g.planOf(s.claim) != nil {
		s.tool, s.Task = approval.ProgramTool(), true
		return nil
	}
	_, s.Again, err = g.readIfExists(ctx, approval.DocAgain, s.key)
	tool, known := g.settings().Tool(s.claim.ToolName)
	s.tool = tool
	same := known && tool.SHA256() == s.claim.ToolSHA256
	s.Idempotent = same && tool.Handler.Idempotent
	if err != nil || !same || tool.Handler.Kind != approval.HandlerMCP {
		return err
	}
	if b, s.Task, err = g.readIfExists(ctx, approval.DocTask, s.key); s.Task {
		s.task, err = g.Seal.Open(approval.DocTask, s.key, b)
	}
	return err
}

func (g *Gate) loadPending(ctx context.Context, s *state) error {
	b, ok, err := g.readIfExists(ctx, approval.DocPending, s.key)
	if err != nil || !ok {
		return err
	}
	s.Pending, s.pBytes = move.Invalid, b
	body, err := g.Seal.Open(approval.DocPending, s.key, b)
	if err != nil { // without a mac it is a host program's request
		s.forgedPending = slices.ContainsFunc(codec.FirstFields(b), func(f codec.Field) bool { return f.Name == "mac" })
		return nil
	}
	if s.pending, err = approval.ParsePending(body, s.key); err != nil {
		return err
	}
	s.Pending = move.Valid
	s.ExpiresAt = s.pending.ExpiresAt
	return nil
}

func (g *Gate) loadDecision(ctx context.Context, s *state) error {
	b, ok, err := g.readIfExists(ctx, approval.DocDecision, s.key)
	if err != nil || !ok {
		return err
	}
	s.Decision, s.dBytes = move.Invalid, b
	d, err := approval.OpenDecision(g.Seal, s.key, b)
	if err != nil || s.pending == nil || d.PendingSHA256 != approval.Digest(s.pBytes) {
		return nil //nolint:nilerr // unsound, as already stated
	}
	s.decision, s.Decision = d, move.Valid
	s.Verdict, s.RunBefore = d.Verdict, d.RunBefore
	if d.Approved {
		s.tool, s.Tool = g.currentTool(s.pending)
	}
	return nil
}

func (g *Gate) loadRequest(ctx context.Context, s *state) error {
	reason, cancel, err := g.readIfExists(ctx, approval.DocCancel, s.key)
	if err != nil {
		return err
	}
	s.Cancel, s.cancelReason = cancel, approval.CancelReason(string(reason))
	b, ok, err := g.readIfExists(ctx, approval.DocRequest, s.key)
	if s.forgedPending {
		s.q, s.parseErr = s.pBytes, fmt.Errorf("%w: the pending has a mac that is not the gate's: another program changed or wrote it", approval.ErrMalformed)
		return nil
	}
	if g.loadSubmission(s) {
		s.alsoAsFile = ok || err != nil // the next load reads the file
		return nil
	}
	if errors.Is(err, store.ErrRefused) {
		s.Request, s.parseErr = move.Valid, fmt.Errorf("%w: %w", approval.ErrMalformed, err)
		return nil
	}
	if err != nil {
		return err
	}
	if !ok && s.Pending == move.Invalid {
		s.q = s.pBytes
		s.request, s.parseErr = approval.ParseHostRequest(s.q, s.key.ID)
		g.loadIncomplete(s)
		return nil
	}
	if !ok {
		g.seen.remove(s.key)
		return nil
	}
	s.q, s.Request = b, move.Valid
	if s.Record || s.Pending == move.Valid {
		s.RequestMatches = s.pending != nil && s.pending.RequestSHA256 == approval.Digest(b)
		return nil
	}
	s.request, s.parseErr = approval.ParseRequest(b, s.key.ID)
	g.loadIncomplete(s)
	return nil
}

// loadIncomplete makes a request that may be the beginning of one wait for its rest.
func (g *Gate) loadIncomplete(s *state) {
	if errors.Is(s.parseErr, approval.ErrIncomplete) {
		s.Request, s.FirstSeen = move.Invalid, g.firstSeen(s.key, s.now)
	}
}

func (g *Gate) firstSeen(k approval.Key, now time.Time) time.Time {
	t, ok := g.seen.get(k)
	if !ok || now.Before(t) {
		t = now
		g.seen.set(k, now)
	}
	return t
}

func (g *Gate) loadResponse(ctx context.Context, s *state) error {
	b, ok, err := g.readIfExists(ctx, approval.DocResponse, s.key)
	if err != nil || !ok {
		return err
	}
	s.Response = move.Invalid
	if s.record != nil && string(b) == string(s.record.Response) {
		s.Response = move.Valid
	}
	return nil
}
