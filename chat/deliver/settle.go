package deliver

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

const (
	// undoWindow is how long a card can revoke the grant that its approval created.
	undoWindow = 24 * time.Hour
	// outcomeDelay is how long an edit waits for the outcome, so that one edit shows both.
	outcomeDelay = time.Second
	// maybeSentFor is how long the record of a settled request is kept if a card was possibly sent: only a tap
	// would reveal it.
	maybeSentFor = 7 * 24 * time.Hour
	// maxLateRecords is how many such records are kept.
	maxLateRecords = 500
)

// status is a request's story with what its cards show.
type status struct {
	read.Story
	undoable bool        // the decision created a grant that its card can revoke
	pause    *chat.Pause // of its workspace; nil: it is not paused
}

// label is the short ID of the card. The first digits of the ID may be another card's: they serve a request of which
// nothing is left.
func (st status) label(k approval.Key) string {
	switch {
	case st.Pending != nil:
		return st.Pending.ShortID
	case st.Record != nil:
		return st.Record.ShortID()
	}
	return approval.ShortID(k.ID)
}

// status reads the status of a request.
func (s *session) status(ctx context.Context, k approval.Key) (status, error) {
	story, err := s.Viewer.Story(ctx, k)
	if err != nil {
		return status{}, err
	}
	st := status{Story: story}
	st.pause = s.pauseOf(k.Workspace)
	if d := story.Decision; d != nil && d.Verdict == approval.Approved && story.Record != nil && story.Pending != nil && s.Interceptor.Revoker != nil {
		st.undoable = s.now().Before(d.DecidedAt.Add(undoWindow)) && s.Interceptor.Revoker.Given(story.Pending, d) != nil
	}
	return st, nil
}

// pauseOf returns the pause of a workspace, nil if it is not paused.
func (s *session) pauseOf(ws string) *chat.Pause {
	if s.Interceptor.Paused == nil {
		return nil
	}
	return s.Interceptor.Paused(ws)
}

// isPending reports whether the request still needs a decision.
func isPending(story read.Story) bool {
	return story.SHA256 != "" && story.Pending != nil && story.Decision == nil && story.Record == nil
}

// targetPhase is the phase that a decided request's card should reach.
func (st status) targetPhase(p *sentRecord, x *sentCopy) phase {
	switch {
	case st.Record == nil && st.Decision != nil:
		return phaseDecided
	case st.undoable && !p.Undone && x.Message != "" && x.Nonces[verbUndo] != "":
		return phaseUndo
	}
	return phaseOver
}

// editDelay is how long the edit of a card waits for the outcome of a request that was decided a moment ago.
func (s *session) editDelay(x *sentCopy, st status) time.Duration {
	if x.StaleReason != "" || st.Record != nil || st.Decision == nil {
		return 0
	}
	return min(max(0, st.Decision.DecidedAt.Add(outcomeDelay).Sub(s.now())), outcomeDelay)
}

// settle updates the cards of a request that is no longer pending.
func (s *session) settle(k approval.Key, p *sentRecord, st status) error {
	if s.traits.Letters != nil {
		return s.settleLetters(k, p, st)
	}
	if err := s.replaceLost(k, p, st); err != nil {
		return err
	}
	if p = s.sent.record(k); p == nil {
		return nil // its last card was edited meanwhile
	}
	s.search(k, p, st)
	for _, x := range p.Copies {
		if s.needsWork(p, x, st) {
			s.queueCopy(k, x, s.editDelay(x, st))
		}
		if x.Digest != "" {
			s.queueDigest(x.Digest)
		}
	}
	if p.closed() && !s.keptForLateTap(p) {
		return s.sent.remove(k)
	}
	return nil
}

// closed reports whether all cards show the final outcome.
func (p *sentRecord) closed() bool {
	return !slices.ContainsFunc(p.Copies, func(x *sentCopy) bool { return x.Phase != phaseOver })
}

// keptForLateTap reports whether a closed record stays, because a card with buttons may exist whose message ID
// is unknown. A user who taps on it, in a later session too, gets the outcome.
func (s *session) keptForLateTap(p *sentRecord) bool {
	lost := func(x *sentCopy) bool { return x.Message == "" && (x.MaybeSent || s.sendUnknown(x)) }
	return s.now().Before(p.CreatedAt.Add(maybeSentFor)) && p.closed() && slices.ContainsFunc(p.Copies, lost)
}

// removeOldest removes the oldest records above maxLateRecords; created maps keys to creation times.
func (s *session) removeOldest(created map[approval.Key]time.Time) {
	if len(created) <= maxLateRecords {
		return
	}
	oldest := slices.SortedFunc(maps.Keys(created), func(a, b approval.Key) int { return created[a].Compare(created[b]) })
	for _, k := range oldest[:len(oldest)-maxLateRecords] {
		s.logAskError(k, s.sent.remove(k))
	}
}

// closeCard edits a card to show the decision or the outcome. If it cannot be edited any more, it stays as it
// is: its buttons do nothing.
func (s *session) closeCard(ctx context.Context, k approval.Key, x *sentCopy, st status) error {
	p := s.sent.record(k)
	if p == nil {
		return nil
	}
	if s.hasToTell(p, x, st) {
		return s.tell(ctx, k, x, st)
	}
	to := st.targetPhase(p, x)
	if x.StaleReason != "" {
		to = phaseOver
	}
	shown := x.ShownHash
	// Without edits, the decision was not sent though its hash was stored: the outcome may have the same text.
	if x.TwoSteps && x.Message == "" && !s.lost(x) { // a lost one has another message
		return s.sendSettled(ctx, k, x, to, s.finalMessage(k, p, x, st))
	}
	if msg := s.finalMessage(k, p, x, st); x.Message != "" && (msg.hash() != shown || !s.traits.Edits) {
		shown = msg.hash()
		err := s.showOutcome(ctx, x, to, msg, st)
		switch {
		case err == nil:
		case ClassOf(err) == Unreachable, never(err):
			to = phaseOver
			s.jobFinished(x.Chat, err)
		default:
			return err
		}
	}
	err := s.sent.updateSent(k, func(p *sentRecord) error {
		y := p.byNumber(x.Number)
		switch {
		case y == nil:
			return errUnchanged
		case y.StaleReason != "":
			p.remove(x.Number)
		default:
			y.Phase, y.ShownHash = to, shown
		}
		return nil
	})
	if err != nil {
		return err
	}
	if p = s.sent.record(k); p != nil && !isPending(st.Story) && p.closed() && !s.keptForLateTap(p) {
		// The pass may not have seen the decision yet, and will not find the record.
		for _, x := range p.Copies {
			s.queueDigest(x.Digest)
		}
		return s.sent.remove(k)
	}
	return nil
}

// showOutcome edits a card. Where messages cannot be edited, the outcome of a request is sent as a reply to it.
func (s *session) showOutcome(ctx context.Context, x *sentCopy, to phase, msg Message, st status) error {
	switch {
	case s.traits.Edits:
		return s.edit(ctx, x.address(), x.Message, msg)
	case to == phaseDecided, x.Phase == phaseUndo, st.Pending == nil:
		return nil // the outcome follows, or was sent
	case x.StaleReason == "":
		msg = plain(append([]string{s.renderer(x.Language).Line(st.Pending)}, msg.Card.Menu...)...)
	}
	_, err := s.send(ctx, x.address(), msg.follow(x.Message))
	return err
}

// finalMessage is what a card shows after the decision.
func (s *session) finalMessage(k approval.Key, p *sentRecord, x *sentCopy, st status) Message {
	t := s.renderer(x.Language)
	if x.StaleReason != "" {
		why := t.Replaced
		if x.StaleReason == staleMoved {
			why = t.AskedElsewhere
		}
		return t.withdrawnCard(st.label(k), why)
	}
	return t.settledCard(st, k, p, x)
}
