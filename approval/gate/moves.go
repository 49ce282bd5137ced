package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/move"
	"github.com/permesso-dev/permesso/approval/store"
)

// maxMoves is more than any key needs. Reaching it means that another process undoes
// the moves.
const maxMoves = 64

// Step moves one key until it has to wait. It returns when to step it again; zero
// means at the next event. Only one Step of a key may run at a time. If ctx ends, the
// move that has begun is finished, and no other begins.
func (g *Gate) Step(ctx context.Context, k approval.Key) (retryAt time.Time, err error) {
	g.index.touch(k)
	return g.step(ctx, k)
}

func (g *Gate) step(ctx context.Context, k approval.Key) (retryAt time.Time, err error) {
	if !approval.ValidName(k.ID) {
		return time.Time{}, fmt.Errorf("step %s: invalid request ID", k)
	}
	retryAt, err = g.settleKey(ctx, k)
	if errors.Is(err, store.ErrNoRoom) {
		return g.awaitRoom(ctx, k, err), nil
	}
	if err != nil {
		g.reportError(ctx, err)
		g.reject(g.submissions.at(k), err)
	}
	return retryAt, err
}

func (g *Gate) settleKey(ctx context.Context, k approval.Key) (retryAt time.Time, err error) {
	caller := ctx
	ctx = context.WithoutCancel(ctx)
	var s *state
	for range maxMoves {
		if level, _ := g.health(); level == stopped {
			g.rejectDegraded(g.submissions.at(k))
			return time.Time{}, nil
		}
		if err := g.writeOutcome(ctx, k); err != nil {
			return time.Time{}, err
		}
		if err := caller.Err(); err != nil {
			return time.Time{}, err
		}
		// A submission may be waiting for this key; do not skip the load as if our
		// own write had caused the event.
		if g.submissions.at(k) == nil {
			if until := g.index.cooldown(k); !until.IsZero() {
				return until, nil
			}
			if g.running.has(k) {
				return time.Time{}, nil // row 2: the end of the run wakes the key
			}
		}
		if s == nil || !s.current {
			if s, err = g.load(ctx, k); err != nil {
				return time.Time{}, err
			}
		}
		s.current = false
		next, wake := move.Next(s.Documents, s.now)
		g.index.update(s, next)
		g.rememberLate(s, next)
		if err := g.deliverResult(ctx, s); err != nil {
			return time.Time{}, err
		}
		if waits(next) {
			g.dropForgedResponse(ctx, s)
			if next == move.None {
				g.plans.remove(k) // of a request that is gone
				return wake, g.endOrphans(ctx, k)
			}
			return wake, nil
		}
		if g.delay(next, s) {
			g.rejectDegraded(s.submission)
			return s.retryAt, nil
		}
		waiting, err := g.apply(ctx, next, s)
		if err != nil || waiting {
			return s.retryAt, err
		}
	}
	return g.Now().Add(time.Second), nil
}

// rememberLate remembers that a key missed its deadline, so that a clock set back
// cannot revive it.
func (g *Gate) rememberLate(s *state, m move.Move) {
	switch {
	case m == move.EndLate || m == move.DecideExpiry:
		g.late.set(s.key, s.now)
	case s.Record || s.Pending != move.Valid:
		g.late.remove(s.key)
	}
}

func waits(m move.Move) bool {
	switch m {
	case move.None, move.WaitRunning, move.WaitDecision, move.WaitRequest:
		return true
	}
	return false
}

// apply makes one move. It reports waiting if the key has to wait, for example for a
// handler slot.
func (g *Gate) apply(ctx context.Context, m move.Move, s *state) (waiting bool, err error) {
	switch m {
	case move.Settle:
		return g.settle(ctx, s)
	case move.EndInterrupted:
		return false, g.endInterrupted(ctx, s)
	case move.RunAgain:
		return g.runAgain(ctx, s)
	case move.ResumeTask:
		return g.resumeTask(ctx, s)
	case move.RejectDecision:
		return false, g.rejectDecision(ctx, s, event.Forged, "decision is not valid for the pending request; host programs must not write decisions: they hand them to the daemon")
	case move.RunClaim:
		return g.claimDecided(ctx, s)
	case move.EndToolGone, move.EndToolChanged:
		return false, g.endTool(ctx, s, m)
	case move.EndLate:
		why := "approved in time, not run: the gate was down"
		if g.keyPaused(s.key) {
			why = "approved in time, not run: the workspace was paused"
		}
		return false, g.endDecided(ctx, s, approval.StatusExpired, why)
	case move.EndVerdict:
		return false, g.endVerdict(ctx, s)
	case move.DropRequest:
		return false, g.dropRequest(ctx, s)
	case move.RejectRequest:
		return g.rejectRequest(ctx, s)
	case move.DecideCancel:
		return false, g.decideWithoutPerson(ctx, s, approval.Cancelled)
	case move.DecideExpiry:
		return false, g.decideWithoutPerson(ctx, s, approval.Expired)
	case move.Intake:
		return g.intake(ctx, s)
	case move.DropCancel:
		err := g.Store.Remove(ctx, approval.DocCancel, s.key)
		s.Cancel, s.current = false, err == nil
		return false, err
	}
	return false, fmt.Errorf("unknown move %d", m)
}

// settle is row 1: C is the outcome. It restores the response and removes the rest.
func (g *Gate) settle(ctx context.Context, s *state) (waiting bool, err error) {
	if s.Retained && s.Response != move.Valid {
		if !g.endUnfinished(s) {
			g.noteRequestEvent(s, event.ResponseRestored, "")
		}
		if err := g.Store.Commit(ctx, store.Show(s.key, s.record.Response)); err != nil {
			return false, fmt.Errorf("write response: %w", err)
		}
		g.changed(s.key)
	}
	if waiting, err := g.rejectForeign(ctx, s); waiting || err != nil {
		return waiting, err
	}
	if err := errors.Join(g.endOrphans(ctx, s.key), g.cleanUp(ctx, s.key, s.leftovers())); err != nil {
		return false, err
	}
	s.settled()
	return false, nil
}

// settled records that the key has only its record and its response.
func (s *state) settled() {
	s.Request, s.Cancel, s.Pending, s.Decision, s.Claim = move.Absent, false, move.Absent, move.Absent, false
	if s.Retained {
		s.Response = move.Valid
	}
	s.current = true
}

// endUnfinished reports that other documents of the request still exist. A missing
// response was then never written, not removed.
func (g *Gate) endUnfinished(s *state) bool {
	return s.Pending != move.Absent || s.Decision != move.Absent || s.Claim || s.Request != move.Absent
}

// leftovers lists the documents to remove after the record is written, P last: while
// P exists, the next step cleans up again.
func (s *state) leftovers() []approval.Doc {
	var docs []approval.Doc
	for _, x := range []struct {
		there bool
		doc   approval.Doc
	}{
		{s.Decision != move.Absent, approval.DocDecision},
		{s.Claim, approval.DocAgain},
		{s.Claim, approval.DocTask},
		{s.Claim, approval.DocClaim},
		{s.Request != move.Absent && s.submission == nil, approval.DocRequest},
		{s.Cancel, approval.DocCancel},
		{s.Pending != move.Absent, approval.DocPending},
	} {
		if x.there {
			docs = append(docs, x.doc)
		}
	}
	return docs
}

func (g *Gate) cleanUp(ctx context.Context, k approval.Key, docs []approval.Doc) error {
	for _, d := range docs {
		if err := g.Store.Remove(ctx, d, k); err != nil {
			return fmt.Errorf("clean up %s: %w", k, err)
		}
	}
	return nil
}

// rejectForeign refuses a decision or request that differs from the one in the
// record.
func (g *Gate) rejectForeign(ctx context.Context, s *state) (waiting bool, err error) {
	if s.dBytes != nil && string(s.dBytes) != string(s.record.Decision) {
		if err := g.rejectDecision(ctx, s, event.RefusedDecider, "decision for a settled request"); err != nil {
			return false, err
		}
	}
	if s.q != nil && s.Request != move.Absent && approval.Digest(s.q) != s.record.RequestSHA256 {
		return g.rejectRequest(ctx, s)
	}
	return false, nil
}

func (g *Gate) rejectDecision(ctx context.Context, s *state, kind event.Kind, why string) error {
	if err := g.Store.Refuse(ctx, s.key.Workspace, s.key.ID+".decision", why); err != nil {
		return fmt.Errorf("describe decision: %w", err)
	}
	g.Log.Warn().Str("ws", s.key.Workspace).Str("id", s.key.ID).Str("hint", say(g.Words, approval.Because("decision_file"))).Msg(why)
	g.noteRequestEvent(s, kind, why)
	if err := g.Store.Remove(ctx, approval.DocDecision, s.key); err != nil {
		return err
	}
	s.decision, s.dBytes, s.Decision, s.current = nil, nil, move.Absent, true
	return nil
}

// rejectRequest refuses another request under a used id, within the workspace's limit
// of refusals.
func (g *Gate) rejectRequest(ctx context.Context, s *state) (waiting bool, err error) {
	const why = "another request under a used ID: ignored"
	if !g.limits(s.key.Workspace).refused.AllowN(s.now, 1) {
		return g.delayRefusal(s)
	}
	if err := g.Store.Refuse(ctx, s.key.Workspace, s.key.ID+".request", why); err != nil {
		return false, fmt.Errorf("describe request: %w", err)
	}
	g.Log.Warn().Str("ws", s.key.Workspace).Str("id", s.key.ID).Msg(why)
	g.noteRequestEvent(s, event.Forged, why)
	return false, g.dropRequest(ctx, s)
}

// dropRequest removes the request's file. The rest of the state stays as it was
// loaded.
func (g *Gate) dropRequest(ctx context.Context, s *state) error {
	if err := g.Store.Remove(ctx, approval.DocRequest, s.key); err != nil {
		return err
	}
	g.seen.remove(s.key)
	s.q, s.Request, s.RequestMatches, s.current = nil, move.Absent, false, true
	return nil
}

// dropForgedResponse removes a response without a record.
func (g *Gate) dropForgedResponse(ctx context.Context, s *state) {
	if s.Record || s.Response == move.Absent {
		return
	}
	g.noteRequestEvent(s, event.Forged, "response not written by the gate")
	if err := g.Store.Remove(ctx, approval.DocResponse, s.key); err != nil {
		g.Log.Error().Str("ws", s.key.Workspace).Str("id", s.key.ID).Err(err).Msg("remove forged response failed")
	}
}

// decideWithoutPerson decides for the agent (cancelled) or the deadline (expired). It
// needs no sync: the deadline is durable in P, and C will be durable.
func (g *Gate) decideWithoutPerson(ctx context.Context, s *state, v approval.Verdict) error {
	by, reason := "deadline", ""
	if v == approval.Cancelled {
		by, reason = "agent", s.cancelReason
	}
	d := &approval.Decision{
		Version: approval.Version, RequestID: s.key.ID, Verdict: v, Feedback: reason,
		PendingSHA256: approval.Digest(s.pBytes), DecidedBy: by, DecidedByID: by, Via: "gate", DecidedAt: s.now.UTC(),
	}
	body, err := d.Encode()
	if err != nil {
		return err
	}
	file := g.Seal.Seal(approval.DocDecision, s.key, body)
	put := store.Put(approval.DocDecision, s.key, file)
	put.Mode = store.Volatile
	err = g.Store.Commit(ctx, put)
	if errors.Is(err, store.ErrExists) {
		return nil // already decided; the next load reads by whom
	}
	if err != nil {
		return fmt.Errorf("write decision: %w", err)
	}
	s.decision, s.dBytes, s.Decision, s.Verdict = d, file, move.Valid, v
	return g.endVerdict(ctx, s)
}
