package deliver

import (
	"context"
	"crypto/subtle"
	"fmt"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

const (
	keepLetters      = 30 * 24 * time.Hour // how long a late reply is recognized
	maxOutcomeAge    = 24 * time.Hour
	maxAnswerAge     = time.Hour
	dropMissingAfter = time.Minute // a request that is neither pending nor recorded is dropped after this time
)

// A letter has a limited number of secrets. The first ones belong to the card itself, one for each attempt with an
// unknown result: a service that is restarted while it sends needs many, and any of them may be the one that
// arrived. The others belong to answers that can be replied to.
const (
	maxSecrets   = 100
	firstSecrets = 4
)

func (x *sentCopy) addSecret(digest string) {
	x.Secrets = append(x.Secrets, digest)
	if extra := len(x.Secrets) - maxSecrets; extra > 0 {
		x.Secrets = slices.Delete(x.Secrets, firstSecrets, firstSecrets+extra)
	}
}

func (x *sentCopy) removeSecret(digest string) {
	x.Secrets = slices.DeleteFunc(x.Secrets, func(d string) bool { return d == digest })
}

// queueOf is the name of a chat's queue. All letters are in one: their service takes one at a time.
func (s *session) queueOf(chatID ID) ID {
	if s.traits.Letters != nil {
		return ""
	}
	return chatID
}

// tooLate reports whether it is too late to send letters about a request.
func (s *session) tooLate(st status) bool {
	return s.traits.Letters != nil && !s.now().Before(st.Pending.ExpiresAt)
}

// isDue reports whether a letter has to be sent: the card, the outcome, or that it waits for the end of a pause.
func (s *session) isDue(p *sentRecord, x *sentCopy, st status) bool {
	if isPending(st.Story) {
		return x.Message == "" && x.Failure == ""
	}
	return st.Record != nil && x.Phase != phaseOver || s.hasToTell(p, x, st)
}

// updateLetters adds a letter for each approver who was not asked yet. A letter that was sent is never withdrawn:
// Decide checks who replies.
func (s *session) updateLetters(p *sentRecord, ws Workspace, st status) {
	if p.SHA256 != st.SHA256 {
		*p = sentRecord{Version: 1, SHA256: st.SHA256, CreatedAt: s.now().UTC()}
	}
	for _, to := range ws.Places {
		if p.copyIn(to) != nil {
			continue
		}
		if to.Language == "" {
			to.Language = ws.Language
		}
		x := p.add(s.id, to, nil)
		x.Letter = s.traits.Letters.NewID(st.Pending.RequestID)
		x.Title = s.traits.Letters.Title(st.Pending, s.Style(to.Language))
	}
}

// syncLetter sends the card of a pending request, or the outcome of a settled one.
func (s *session) syncLetter(ctx context.Context, k approval.Key, n int) error {
	st, err := s.status(ctx, k)
	if err != nil {
		return fmt.Errorf("read status of %s: %w", k, err)
	}
	_, known := s.workspace(k.Workspace)
	p := s.sent.record(k)
	x := p.byNumber(n)
	switch {
	case !known || x == nil || !s.isDue(p, x, st):
		return errIdle
	case s.hasToTell(p, x, st):
		return s.tell(ctx, k, x, st)
	case !isPending(st.Story):
		return s.sendOutcome(ctx, k, x, st)
	case p.SHA256 != st.SHA256 || s.tooLate(st):
		return errIdle
	}
	return s.sendCardLetter(ctx, k, x, st)
}

// sendCardLetter makes one attempt. It is recorded before that the letter may have arrived, and not retried at
// once: after a crash during the attempt, this holds in the next run.
func (s *session) sendCardLetter(ctx context.Context, k approval.Key, x *sentCopy, st status) error {
	style := s.renderer(x.Language).Style
	before := func(y *sentCopy, m Message) {
		y.FullyShown, y.Unconfirmed, y.RetryAt = m.Complete, true, s.now().Add(s.outbox.retryUnit).UTC()
	}
	err := s.attempt(ctx, k, x, before, func(secret string) (Message, error) {
		m, err := s.traits.Letters.Card(st.Pending, style, secret)
		m.ID, m.Title, m.Silent, m.Until = x.Letter, x.Title, s.isQuiet(k), st.Pending.ExpiresAt
		return m, err
	})
	if err != nil && (ClassOf(err) == Unknown || ctx.Err() != nil) {
		return err
	}
	saved := s.sent.updateSent(k, changeCopy(x.Number, func(y *sentCopy) {
		y.Unconfirmed, y.RetryAt = x.Unconfirmed, time.Time{}
		switch {
		case err == nil:
			y.Message, y.SentAt, y.Phase = y.Letter, s.now().UTC(), phaseAsked
		case never(err):
			y.Failure = err.Error()
		}
	}))
	switch {
	case err == nil:
		s.warnings.clear("to " + string(x.Chat))
	case never(err):
		s.touch(k) // to report it
		err = nil
	}
	s.log(saved) // after a restart it is sent again, under the same ID
	return err
}

// attempt sends a letter to which x's approver can reply. Its new secret is durable before; before records what
// else must be. If the letter certainly did not arrive, its secret is removed.
func (s *session) attempt(
	ctx context.Context, k approval.Key, x *sentCopy, before func(*sentCopy, Message), compose func(secret string) (Message, error),
) error {
	secret, digest := s.traits.Letters.NewSecret()
	m, err := compose(secret)
	if err != nil {
		return err
	}
	m.Key, m.Secret = k, secret
	err = s.sent.update(k, changeCopy(x.Number, func(y *sentCopy) {
		y.addSecret(digest)
		before(y, m)
	}))
	if err != nil {
		s.warnings.set("record", s.Name+": cannot send: "+err.Error(), "check free disk space")
		return err
	}
	s.warnings.clear("record")
	_, err = s.send(ctx, x.address(), m)
	if err != nil && ClassOf(err) != Unknown && ctx.Err() == nil {
		s.log(s.sent.updateSent(k, changeCopy(x.Number, func(y *sentCopy) { y.removeSecret(digest) })))
	}
	return err
}

// warnUndeliverable reports a letter that cannot be sent: once in each run.
func (s *session) warnUndeliverable(k approval.Key, x *sentCopy, st status) {
	if x.Failure == "" || s.reported[x.Letter] {
		return
	}
	s.reported[x.Letter] = true
	what := fmt.Sprintf("card %s to %s was refused: %s", chat.Escape(st.label(k)), chat.Escape(string(x.Chat)), x.Failure)
	hint := "correct the approver's address, or decide on another channel"
	if s.Approve != "" {
		hint += ": " + s.Approve + " " + k.ID
	}
	s.warnings.set("to "+string(x.Chat), s.Name+": "+what, hint)
	if s.Elsewhere != nil {
		s.Elsewhere(k.Workspace, what)
	}
}

// settleLetters sends the outcomes of a request that is no longer pending. Its record is kept for late replies.
func (s *session) settleLetters(k approval.Key, p *sentRecord, st status) error {
	switch {
	case s.keptLetters(p):
		return nil
	case !p.ClosedAt.IsZero():
		return s.removeLetters(k)
	case p.closed(): // by the first version, or it has no copy
		return s.sent.update(k, s.closeRecord)
	case st.Pending == nil && st.Record == nil:
		return s.handleMissing(k)
	}
	delete(s.missingSince, k)
	for _, x := range p.Copies {
		if s.isDue(p, x, st) {
			s.queueCopy(k, x, s.outcomeAfter(x, st))
		}
	}
	return nil
}

// outcomeAfter is how long an outcome waits: an approver who decided here gets the answer first.
func (s *session) outcomeAfter(x *sentCopy, st status) time.Duration {
	switch {
	case x.Phase == phaseDecided:
		return s.untilRetry(x)
	case s.DecidedBy(st.Decision, x.Chat):
		return outcomeDelay
	}
	return 0
}

// untilRetry is the time until the next attempt, which an earlier run may have set.
func (s *session) untilRetry(x *sentCopy) time.Duration { return max(0, x.RetryAt.Sub(s.now())) }

// keptLetters reports whether a record is only kept for late replies.
func (s *session) keptLetters(p *sentRecord) bool {
	return !s.traits.OneWay && !p.ClosedAt.IsZero() && s.now().Sub(p.ClosedAt) <= keepLetters
}

// handleMissing handles a request that is neither pending nor recorded: the gate withdrew it, or is about to write
// the record.
func (s *session) handleMissing(k approval.Key) error {
	since, known := s.missingSince[k]
	switch {
	case !known:
		s.missingSince[k] = s.now()
		return nil
	case s.now().Sub(since) < dropMissingAfter:
		return nil
	}
	return s.removeLetters(k)
}

func (s *session) removeLetters(k approval.Key) error {
	delete(s.missingSince, k)
	return s.sent.remove(k)
}

// sendOutcome sends the outcome in the thread of the card, and closes the record after the last one.
func (s *session) sendOutcome(ctx context.Context, k approval.Key, x *sentCopy, st status) error {
	wanted := s.wantsOutcome(x, st)
	if wanted {
		retryAt := s.now().Add(s.outbox.retryUnit).UTC()
		err := s.sent.update(k, changeCopy(x.Number, func(y *sentCopy) { y.Phase, y.RetryAt = phaseDecided, retryAt }))
		if err != nil {
			return err
		}
		m := plain(s.traits.Letters.Outcome(st.Record, s.Style(x.Language))...).follow(x.Letter)
		m.Key, m.Title = k, s.titleAfter(x, string(st.Record.Status))
		if _, err := s.send(ctx, x.address(), m); err != nil && !never(err) {
			return err
		}
	}
	err := s.sent.updateSent(k, func(p *sentRecord) error {
		y := p.byNumber(x.Number)
		if y == nil {
			return errUnchanged
		}
		if y.Phase = phaseOver; p.closed() {
			return s.closeRecord(p)
		}
		return nil
	})
	if err == nil && !wanted {
		return errIdle
	}
	return err
}

// titleAfter is the title of a letter that says what became of a request: its reader may see no more in a list. A
// notification replaces its card, and keeps the title.
func (s *session) titleAfter(x *sentCopy, status string) string {
	if s.traits.OneWay {
		return "Re: " + x.Title
	}
	return s.Style(x.Language).HeadlineOf(status, x.Title)
}

func (s *session) closeRecord(p *sentRecord) error {
	p.ClosedAt = s.now().UTC()
	return nil
}

// wantsOutcome reports whether an approver gets the outcome. An approver who decided here knows it from the
// answer, and gets another letter only after a failure.
func (s *session) wantsOutcome(x *sentCopy, st status) bool {
	if x.Message == "" && !x.Unconfirmed || s.now().Sub(st.Record.EndedAt) > maxOutcomeAge {
		return false
	}
	if !s.DecidedBy(st.Decision, x.Chat) {
		return s.traits.Outcomes
	}
	failures := []approval.Status{
		approval.StatusFailed, approval.StatusInterrupted, approval.StatusExpired, approval.StatusCancelled,
	}
	return slices.Contains(failures, st.Record.Status)
}

// DecidedBy reports whether a user of this channel made a decision; d may be nil.
func (c *Channel) DecidedBy(d *approval.Decision, by ID) bool {
	return d != nil && d.DecidedByID == c.Name+":"+string(by)
}

// Letter is a card that was sent as a letter, or may have been.
type Letter struct {
	Key      approval.Key
	To       ID
	Title    string
	SHA256   string    // of the pending that it shows
	SentAt   time.Time // not after the first copy that may have arrived
	Complete bool      // it shows everything that would run
	Closed   bool      // the request is settled, and all outcomes are sent
	secrets  []string
}

// Carries reports whether the letter has the secret with that digest.
func (l Letter) Carries(digest string) bool {
	found := false
	for _, d := range l.secrets {
		found = subtle.ConstantTimeCompare([]byte(d), []byte(digest)) == 1 || found
	}
	return found
}

// Letters returns the letters of the configured workspaces, sorted by workspace and request.
func (in *Inbox) Letters() (all []Letter, err error) {
	s, names := in.s, in.s.workspaceNames()
	if err := s.sent.load(names); err != nil {
		return nil, err
	}
	for _, k := range s.sent.keys(names) {
		p := s.sent.record(k)
		if p == nil {
			continue
		}
		for _, x := range p.Copies {
			sentAt := x.SentAt
			if x.Unconfirmed || sentAt.IsZero() {
				sentAt = p.CreatedAt
			}
			all = append(all, Letter{k, x.Chat, x.Title, p.SHA256, sentAt, x.FullyShown, !p.ClosedAt.IsZero(), x.Secrets})
		}
	}
	return all, nil
}

// Answer sends an answer to a reply, and tries again until it is an hour old. It begins after a delay. If open is
// set, each attempt has a new secret, with which its reader can reply again. Answer calls done when the answer was
// sent or given up, and not if the run ends before.
func (in *Inbox) Answer(to ID, m Message, at time.Time, open bool, after time.Duration, done func(sent bool)) {
	s := in.s
	s.outbox.put(s.queueOf(to), job{name: "answer " + string(m.ID), rank: rankAnswer, do: func(ctx context.Context) error {
		if s.now().Sub(at) > maxAnswerAge {
			done(false)
			return errIdle
		}
		err := s.sendAnswer(ctx, to, m, open)
		if err != nil && !never(err) {
			return err
		}
		done(err == nil)
		return nil
	}}, after)
}

func (s *session) sendAnswer(ctx context.Context, to ID, m Message, open bool) error {
	x := s.sent.record(m.Key).find(func(x *sentCopy) bool { return x.Chat == to })
	if x == nil || !open {
		_, err := s.send(ctx, Address{Chat: to}, m)
		return err
	}
	return s.attempt(ctx, m.Key, x, func(*sentCopy, Message) {}, func(string) (Message, error) { return m, nil })
}

// oldLetter is a letter in a record of the first version.
type oldLetter struct {
	oldDelivery
	To        ID           `json:"to"`
	Language  string       `json:"language"`
	Subject   string       `json:"subject"`
	MessageID ID           `json:"message_id"`
	Tokens    []string     `json:"tokens"`
	Whole     bool         `json:"whole"`
	FollowUp  *oldDelivery `json:"follow_up"`
}

type oldDelivery struct {
	State string    `json:"state"`
	Maybe bool      `json:"maybe"`
	Next  time.Time `json:"next"`
	Error string    `json:"error"`
}

const oldFailed = "failed"

// takeFirst converts the letters of a record of the first version.
func (p *sentRecord) takeFirst() {
	for i, l := range p.First {
		x := &sentCopy{
			Number: i + 1, Chat: l.To, Language: l.Language, Letter: l.MessageID, Title: l.Subject, Secrets: l.Tokens,
			FullyShown: l.Whole, Unconfirmed: l.Maybe, RetryAt: l.Next,
		}
		switch l.State {
		case stateSent:
			x.Message, x.Phase = l.MessageID, phaseAsked
		case oldFailed:
			x.Failure = l.Error
		}
		if f := l.FollowUp; !p.ClosedAt.IsZero() || f != nil && (f.State == stateSent || f.State == oldFailed) {
			x.Phase = phaseOver
		}
		p.Copies, p.LastNumber = append(p.Copies, x), x.Number
	}
	p.First = nil
}
