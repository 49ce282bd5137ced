package deliver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// maxMaybeSent limits how many possibly sent copies a record keeps for one place.
const maxMaybeSent = 5

// ask makes sure that every place of the workspace has a card of a pending request. The record that names the
// buttons is durable before anything is sent.
func (s *session) ask(ws Workspace, k approval.Key, st status) error {
	if s.tooLate(st) {
		return nil
	}
	ws.Places = placesFor(ws.Places, st.Pending)
	if s.traits.Letters == nil && s.sent.record(k) == nil {
		if wait := s.turns.delay(k, st.Pending, s.now()); wait > 0 {
			time.AfterFunc(wait, func() { s.touch(k) })
			return nil
		}
	}
	if p := s.sent.record(k); p == nil || !s.recordComplete(p, ws, st) {
		err := s.sent.update(k, func(p *sentRecord) error { return s.updateCopies(p, ws, k, st) })
		if err != nil {
			return err
		}
	}
	p := s.sent.record(k)
	if p == nil {
		return nil // it was settled meanwhile
	}
	for _, x := range p.Copies {
		if s.needsWork(p, x, st) {
			s.queueCopy(k, x, s.untilRetry(x))
		}
		if x.Digest != "" && x.SentAt.IsZero() {
			s.queueDigest(x.Digest)
		}
		s.warnUndeliverable(k, x, st)
	}
	s.search(k, p, st)
	return nil
}

// placesFor leaves out the private chats of approvers whom the request is not for.
func placesFor(all []Place, p *approval.Pending) []Place {
	return slices.DeleteFunc(slices.Clone(all), func(to Place) bool {
		return p.Principal != "" && to.Person != "" && to.Person != p.Principal
	})
}

// recordComplete reports whether a record has exactly the copies that a pending request needs.
func (s *session) recordComplete(p *sentRecord, ws Workspace, st status) bool {
	if p.SHA256 != st.SHA256 {
		return false
	}
	for _, to := range ws.Places {
		if x := p.copyIn(to); x == nil || s.sendUnknown(x) || s.digestLost(x) {
			return false
		}
	}
	for _, x := range p.Copies {
		if x.StaleReason == "" && x.Letter == "" && !slices.ContainsFunc(ws.Places, x.isIn) {
			return false
		}
	}
	return true
}

func (x *sentCopy) isIn(to Place) bool { return x.address() == to.Address }

func (x *sentCopy) address() Address { return Address{x.Chat, x.Thread} }

// sendUnknown reports whether an earlier session may have sent this copy without recording it.
func (s *session) sendUnknown(x *sentCopy) bool {
	unsent := x.Letter == "" && x.Message == "" && x.SentAt.IsZero()
	return unsent && x.SessionID != s.id && (x.Digest == "" || x.CardWanted)
}

// digestLost reports whether this copy was a line of a digest that is gone. Then it becomes a card.
func (s *session) digestLost(x *sentCopy) bool {
	return x.Digest != "" && !x.CardWanted && s.digest(x.Digest) == nil
}

// updateCopies matches a record's copies to the places of its workspace. During a flood, and if several calls
// of an agent come at once, a new copy becomes a line of a digest.
func (s *session) updateCopies(p *sentRecord, ws Workspace, k approval.Key, st status) error {
	if s.traits.Letters != nil {
		s.updateLetters(p, ws, st)
		return nil
	}
	if p.SHA256 != st.SHA256 {
		for _, x := range p.Copies {
			x.StaleReason = staleReplaced
		}
		p.SHA256, p.CreatedAt, p.Reminded = st.SHA256, s.now().UTC(), false
	}
	for _, x := range p.Copies {
		if x.StaleReason == "" && !slices.ContainsFunc(ws.Places, x.isIn) {
			x.StaleReason = staleMoved
		}
	}
	for _, to := range ws.Places {
		to.Language = cmp.Or(to.Language, ws.Language)
		x := p.copyIn(to)
		if x != nil && s.sendUnknown(x) {
			x.MaybeSent = true
			x = nil
		}
		switch {
		case x == nil:
			x = s.addCopy(p, to, st)
			s.noteQuietRequest(ws, k)
			if !s.flood.exceeded(k, to, s.now(), s.isOpen) && !s.turns.several(k, st.Pending, s.isOpen) {
				continue
			}
			var err error
			if x.Digest, err = s.digestFor(ws.Name, to, k.ID); err != nil {
				return err
			}
		case s.digestLost(x):
			x.CardWanted = true
		}
	}
	return nil
}

// isOpen reports whether a request still needs a decision, or may.
func (s *session) isOpen(k approval.Key) bool {
	story, err := s.Viewer.Story(s.ctx, k)
	return err != nil || isPending(story)
}

// addCopy adds a copy to send, and removes the oldest possibly sent ones beyond the limit.
//
// Normally a card is sent with its buttons, in one call. If the daemon dies before it has recorded the message's ID,
// a card with live buttons is in the chat that nothing can edit. So a copy that replaces a possibly sent one takes
// two steps: it is sent without approve buttons, and gets them by an edit once its ID is durable. Then search finds the first
// one below it. To send every card in two steps would leave nothing to find. But Telegram counts an edit as a
// message, and allows one a second in a chat: each card would need three instead of two, and the twentieth of a burst
// would have its buttons after 37 seconds instead of 17.
func (s *session) addCopy(p *sentRecord, to Place, st status) *sentCopy {
	doubts := 0
	for _, x := range slices.Backward(p.Copies) {
		if x.isIn(to) && x.MaybeSent && x.Message == "" {
			if doubts++; doubts > maxMaybeSent {
				p.remove(x.Number)
			}
		}
	}
	x := p.add(s.id, to, verbs(st.Pending))
	x.TwoSteps = doubts > 0 && s.traits.Disarm != nil
	return x
}

// needsWork reports whether a copy has to be sent or edited. It is cheap: it renders nothing.
func (s *session) needsWork(p *sentRecord, x *sentCopy, st status) bool {
	switch {
	case x.Letter != "":
		return s.isDue(p, x, st)
	case x.StaleReason != "":
		return true
	case !isPending(st.Story):
		to := st.targetPhase(p, x)
		return s.hasToTell(p, x, st) || x.Phase != to && (x.Message != "" || to == phaseOver)
	case x.MaybeSent && x.Message == "", x.Digest != "" && !x.CardWanted:
		return false
	case x.Message == "", x.Phase == phaseUnsent:
		return true
	}
	return x.Phase == phasePartial && (x.ShowAll || x.FullyShown)
}

// queueCopy queues a job that syncs one copy.
func (s *session) queueCopy(k approval.Key, x *sentCopy, after time.Duration) {
	rank, n, sync := rankEdit, x.Number, s.syncCopy
	if x.Message == "" || x.ShowAll {
		rank = rankCard
	}
	if x.Letter != "" {
		sync = s.syncLetter
	}
	s.outbox.put(s.queueOf(x.Chat), job{
		name: k.String() + " " + strconv.Itoa(n), rank: rank,
		do: func(ctx context.Context) error { return sync(ctx, k, n) },
	}, after)
}

// syncCopy sends or edits one copy, step by step, until it matches the request's status. The edit of a card that was
// decided meanwhile is a job of its own: new cards go first.
func (s *session) syncCopy(ctx context.Context, k approval.Key, n int) error {
	for step := range 10 { // more than the number of steps
		st, err := s.status(ctx, k)
		if err != nil {
			return fmt.Errorf("read status of %s: %w", k, err)
		}
		p := s.sent.record(k)
		x := p.byNumber(n)
		if x == nil || !s.needsWork(p, x, st) {
			return nil
		}
		switch closes, after := x.StaleReason != "" || !isPending(st.Story), s.editDelay(x, st); {
		case closes && (step > 0 || after > 0):
			s.queueCopy(k, x, after)
			return nil
		case closes:
			err = s.closeCard(ctx, k, x, st)
		default:
			err = s.advanceCard(ctx, k, x, st)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// advanceCard takes the next step towards a card with all its buttons.
func (s *session) advanceCard(ctx context.Context, k approval.Key, x *sentCopy, st status) error {
	switch {
	case x.Message == "":
		return s.sendCard(ctx, k, x, st)
	case x.TwoSteps:
		// Written first, so that the message's ID is durable.
		return s.sent.update(k, changeCopy(x.Number, func(y *sentCopy) { y.TwoSteps = false }))
	case x.Phase == phasePartial && x.ShowAll && !x.FullyShown:
		return s.sendDocument(ctx, k, x, st)
	}
	msg := s.card(st.Pending, x)
	err := s.edit(ctx, x.address(), x.Message, msg)
	if err != nil && !gone(err) {
		return err
	}
	return s.sent.updateSent(k, func(p *sentRecord) error {
		y := p.byNumber(x.Number)
		if err != nil { // a user deleted the message: ask again
			p.remove(x.Number)
			return nil
		}
		y.FullyShown, y.ShownHash = y.FullyShown || msg.Complete, msg.hash()
		y.Phase = phaseOf(y)
		return nil
	})
}

func phaseOf(x *sentCopy) phase {
	if x.FullyShown {
		return phaseAsked
	}
	return phasePartial
}

// sendCard sends a card. If it is unknown whether it was sent, a copy with other buttons is sent too, and both
// are accepted.
func (s *session) sendCard(ctx context.Context, k approval.Key, x *sentCopy, st status) error {
	msg := s.card(st.Pending, firstStep(x))
	id, err := s.send(ctx, x.address(), msg.silent(s.isQuiet(k)))
	if err != nil && ClassOf(err) == Unknown && ctx.Err() == nil {
		return s.replaceMaybeSent(k, x, st, err)
	}
	if err != nil {
		return err
	}
	return s.sent.updateSent(k, changeCopy(x.Number, func(y *sentCopy) {
		y.Message, y.SentAt, y.FullyShown, y.ShownHash = id, s.now().UTC(), msg.Complete, msg.hash()
		if y.Phase = phaseOf(y); y.TwoSteps {
			y.Phase = phaseUnsent
		}
	}))
}

// firstStep leaves a copy of two steps the buttons that start nothing.
func firstStep(x *sentCopy) *sentCopy {
	if !x.TwoSteps {
		return x
	}
	first := *x
	first.Nonces = map[string]string{"3": x.Nonces["3"], "?": x.Nonces["?"], verbWhy: x.Nonces[verbWhy], verbAll: x.Nonces[verbAll]}
	return &first
}

func (s *session) replaceMaybeSent(k approval.Key, x *sentCopy, st status, why error) error {
	var next *sentCopy
	tries := 0
	err := s.sent.updateSent(k, func(p *sentRecord) error {
		y := p.byNumber(x.Number)
		if y == nil || y.Message != "" {
			return errUnchanged // a user tapped on it, so it was sent
		}
		y.MaybeSent = true
		for _, z := range p.Copies {
			if z.MaybeSent && z.Chat == x.Chat {
				tries++
			}
		}
		next = s.addCopy(p, Place{Address: x.address(), Language: x.Language}, st)
		return nil
	})
	s.jobFinished(x.Chat, why)
	if next != nil {
		s.queueCopy(k, next, s.outbox.retryDelay(tries-1, why))
	}
	return err
}

// sendDocument sends the complete card as a file. The approve buttons follow once the record of that is
// durable. It sends nothing if a part of the card does not leave the host: no file would be complete.
func (s *session) sendDocument(ctx context.Context, k approval.Key, x *sentCopy, st status) error {
	p := s.renderer(x.Language)
	short, c := st.Pending.ShortID, p.Card(st.Pending)
	if c.Blocked != "" {
		return s.sent.update(k, changeCopy(x.Number, func(y *sentCopy) { y.ShowAll = false }))
	}
	msg := plain(chat.Format(p.DocumentCaption, "id", short)).follow(x.Message).silent(true)
	msg.File = &File{short + ".txt", c.String() + "\n"}
	if _, err := s.send(ctx, x.address(), msg); err != nil {
		return err
	}
	return s.sent.update(k, changeCopy(x.Number, func(y *sentCopy) { y.FullyShown = true }))
}

// isQuiet reports whether cards of this workspace are silent now.
func (s *session) isQuiet(k approval.Key) bool {
	ws, ok := s.workspace(k.Workspace)
	return ok && ws.Quiet.Covers(s.now())
}
