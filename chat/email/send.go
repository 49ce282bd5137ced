package email

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// The delays between two attempts to send, and the maximum age of an email other than
// a card.
const (
	firstSendDelay = 5 * time.Second
	maxSendDelay   = 5 * time.Minute
	maxFollowUpAge = 24 * time.Hour
	maxAnswerAge   = time.Hour
)

// job is one email that is due.
type job struct {
	key  approval.Key // zero: not about a request
	to   string
	what string // for the log
	*delivery
	mail      *outgoing
	maybeSent bool                             // an earlier attempt may have arrived
	save      func() error                     // saves the delivery; the caller holds the lock
	notSent   func()                           // called if the email certainly did not arrive; may be nil. The caller holds the lock
	failed    func(why error) (reports func()) // called after the final failure; may be nil. The caller holds the lock
}

// send sends what is due, one email at a time.
func (c *Channel) send(ctx context.Context, waiting []approval.StoredPending) {
	byKey := map[approval.Key]approval.StoredPending{}
	for _, w := range waiting {
		byKey[w.Key()] = w
	}
	for ctx.Err() == nil && !c.serverPaused() {
		j, err := c.prepare(ctx, byKey)
		if err != nil {
			c.Log.Error().Err(err).Msg("save sent record failed; email not sent")
			c.setProblem("note", "cannot send: "+err.Error(), "check free disk space")
			return
		}
		c.clearProblem("note")
		if j == nil {
			return
		}
		c.attempt(ctx, j)
	}
}

func (c *Channel) serverPaused() bool {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	return c.state.serverRetry.At.After(c.now())
}

// prepare picks an email that is due and saves durably that an attempt begins.
func (c *Channel) prepare(ctx context.Context, waiting map[approval.Key]approval.StoredPending) (*job, error) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	var j *job
	for _, due := range []func() (*job, error){
		c.dueAnswer,
		func() (*job, error) { return c.dueCard(waiting) },
		func() (*job, error) { return c.dueFollowUp(ctx) },
	} {
		var err error
		if j, err = due(); err != nil {
			return nil, err
		}
		if j != nil {
			break
		}
	}
	if j == nil {
		return nil, nil
	}
	// Saved before the attempt: after a crash during it, the retry is delayed, too, and
	// the email may have arrived.
	again := mailbox.Retry{N: j.Attempts}.Next(c.now(), c.firstDelay(), maxSendDelay)
	j.State, j.Attempts, j.Next = stateSending, again.N, again.At.UTC()
	j.maybeSent, j.MaybeSent = j.MaybeSent, true
	return j, j.save()
}

func (c *Channel) firstDelay() time.Duration {
	if c.retryDelay > 0 {
		return c.retryDelay
	}
	return firstSendDelay
}

// dueCard returns a card that is due, with a new token: of an earlier attempt's token
// only the digest is known.
func (c *Channel) dueCard(waiting map[approval.Key]approval.StoredPending) (*job, error) {
	now := c.now()
	for _, k := range slices.SortedFunc(maps.Keys(waiting), compareKeys) {
		w, n := waiting[k], c.state.sent.records[k]
		if n == nil || n.SHA256 != w.SHA256 || !now.Before(w.Pending.ExpiresAt) {
			continue
		}
		for _, a := range n.Cards {
			if !a.due(now) {
				continue
			}
			token := a.addToken()
			mail, complete, err := c.cardMail(w, a, token)
			if err != nil {
				return nil, err
			}
			a.Complete = complete
			return &job{
				key: k, to: a.To, what: "card", delivery: &a.delivery, mail: mail,
				save:    func() error { return c.save(k, n) },
				notSent: func() { a.removeToken(token) },
				failed:  func(why error) func() { return c.cardFailed(k, a, why) },
			}, nil
		}
	}
	return nil, nil
}

// cardMail composes a card for one approver.
func (c *Channel) cardMail(w approval.StoredPending, a *cardCopy, token string) (*outgoing, bool, error) {
	style := c.Style(a.Language)
	if c.Foot != nil {
		style.Foot = c.Foot()
	}
	d := c.newEmail(a.To, a.MessageID, a.Subject, w.Pending.RequestID, token)
	d.Auto = "auto-generated"
	m := &cardMail{pending: w.Pending, style: style, texts: textsFor(style.Language), ceiling: c.ceiling(w.Pending.SourceGroup)}
	if d.ReplyTo == "" {
		m.tag = SubjectTag(w.Pending.RequestID, token)
	}
	var complete bool
	var err error
	d.Text, d.HTML, complete, err = m.render()
	return d, complete, err
}

// newEmail returns an email whose reply carries this token; "": it takes no reply.
func (c *Channel) newEmail(to, messageID, subject, id, token string) *outgoing {
	d := &outgoing{From: c.address(), To: to, MessageID: messageID, Date: c.now()}
	inSubject := token
	if token != "" {
		if d.ReplyTo = c.Addressing.Address(token); d.ReplyTo != "" {
			inSubject = ""
		}
	}
	d.Subject = strings.TrimSpace(subject + " " + SubjectTag(id, inSubject))
	return d
}

func (c *Channel) address() string { return c.Addressing.Local + "@" + c.Addressing.Domain }

func (c *Channel) ceiling(ws string) approval.Reversibility {
	if c.Ceiling == nil {
		return ""
	}
	return c.Ceiling(ws)
}

// dueFollowUp returns an outcome that is due, or nil.
func (c *Channel) dueFollowUp(ctx context.Context) (*job, error) {
	now := c.now()
	for _, k := range slices.SortedFunc(maps.Keys(c.state.sent.records), compareKeys) {
		n := c.state.sent.records[k]
		if !n.Closed.IsZero() {
			continue
		}
		for _, a := range n.Cards {
			if a.FollowUp == nil || !a.FollowUp.due(now) {
				continue
			}
			rec, err := c.Records.Record(ctx, k)
			if err != nil || rec == nil {
				return nil, err
			}
			if now.Sub(rec.EndedAt) > maxFollowUpAge {
				a.FollowUp.State = stateFailed
				continue
			}
			return &job{
				key: k, to: a.To, what: "outcome", delivery: a.FollowUp,
				mail: c.followUp(k, a, rec),
				save: func() error { return c.save(k, n) },
			}, nil
		}
	}
	return nil, nil
}

func (c *Channel) followUp(k approval.Key, a *cardCopy, rec *approval.Record) *outgoing {
	// The same Message-ID for every attempt: a mail program shows one copy.
	d := c.newEmail(a.To, strings.Replace(a.MessageID, "@", "-end@", 1), "Re: "+a.Subject, k.ID, "")
	d.Auto, d.InReplyTo, d.References = "auto-generated", a.MessageID, []string{a.MessageID}
	d.Text = lock + " " + c.Style(a.Language).Outcome(rec) + "\n"
	return d
}

// attempt sends one email and records the result.
func (c *Channel) attempt(ctx context.Context, j *job) {
	raw, err := j.mail.bytes()
	if err != nil {
		err = &mailbox.Error{Stage: "compose the mail", Err: err}
	} else {
		err = c.Sender.Send(ctx, j.mail.From, []string{j.mail.To}, raw)
	}
	c.state.mu.Lock()
	report := c.recordAttempt(ctx, j, err)
	saved := j.save()
	c.state.mu.Unlock()
	report()
	if saved != nil {
		// After a restart it is sent again, under the same Message-ID.
		c.Log.Error().Err(saved).Msg("save sent record failed")
	}
}

// recordAttempt records the result of an attempt in the delivery. It returns what must be
// reported without the lock.
func (c *Channel) recordAttempt(ctx context.Context, j *job, err error) (reports func()) {
	if err == nil {
		j.State, j.MaybeSent, j.Error, j.Next = stateSent, j.maybeSent, "", time.Time{}
		c.state.serverRetry = mailbox.Retry{}
		return func() {
			c.clearProblem("server")
			c.clearProblem("to " + j.to)
			c.Log.Info().Str("ws", j.key.Workspace).Str("id", j.key.ID).Str("what", j.what).Msg("email sent")
		}
	}
	e := sendErrorOf(err)
	j.MaybeSent = j.maybeSent || e.MaybeSent
	if ctx.Err() != nil {
		return func() {} // the daemon stops; the next start tries again
	}
	j.Error = e.Error()
	if !e.MaybeSent && j.notSent != nil {
		j.notSent()
	}
	log := func() {
		c.Log.Warn().Str("ws", j.key.Workspace).Str("id", j.key.ID).Str("what", j.what).Err(err).Bool("again", j.open()).Msg("email not sent")
	}
	switch {
	case isServerFailure(e):
		longest := maxSendDelay
		if !e.Account {
			longest = time.Minute
		}
		c.state.serverRetry = c.state.serverRetry.Next(c.now(), c.firstDelay(), longest)
		// The server failed, not this email: when the server is back, it is sent at once.
		j.Attempts, j.Next = j.Attempts-1, c.state.serverRetry.At.UTC()
		return func() {
			log()
			c.setProblem("server", "cannot send: "+e.Error(), e.Help)
		}
	case !e.Temporary:
		j.State = stateFailed
		if j.failed == nil {
			return log
		}
		reports := j.failed(e)
		return func() { log(); reports() }
	}
	return log
}

func sendErrorOf(err error) *mailbox.Error {
	var e *mailbox.Error
	if errors.As(err, &e) {
		return e
	}
	return &mailbox.Error{Stage: "send the mail", Temporary: true, Err: err}
}

// isServerFailure says whether every other email would fail, too.
func isServerFailure(e *mailbox.Error) bool {
	return e.Account || e.Temporary && !e.MaybeSent && (e.Code == 0 || e.Code == 421)
}

// cardFailed records that an approver cannot be asked by email. It returns what must
// be reported without the lock.
func (c *Channel) cardFailed(k approval.Key, a *cardCopy, why error) (reports func()) {
	a.failureReported = true
	to, what := a.To, fmt.Sprintf("card %s to %s was refused: %v", approval.ShortID(k.ID), chat.Escape(a.To), why)
	hint := "correct the approver's email address, or decide on another channel"
	if c.Approve != "" {
		hint += ": " + c.Approve + " " + approval.ShortID(k.ID)
	}
	return func() {
		c.setProblem("to "+to, what, hint)
		if c.Alert != nil {
			c.Alert(k.Workspace, what)
		}
	}
}

// untilNextRun is the time until something is due.
func (c *Channel) untilNextRun() time.Duration {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	now := c.now()
	at := now.Add(c.every())
	sooner := func(d *delivery) {
		switch {
		case d == nil || !d.open() || !d.Next.Before(at):
		case d.Next.After(now):
			at = d.Next
		case now.Add(time.Second).Before(at):
			at = now.Add(time.Second) // due, but its request is not pending at the moment
		}
	}
	for _, n := range c.state.sent.records {
		if !n.Closed.IsZero() {
			continue
		}
		for _, a := range n.Cards {
			sooner(&a.delivery)
			sooner(a.FollowUp)
		}
	}
	for _, t := range c.state.handled.byFile {
		if t.Answer != nil {
			sooner(&t.Answer.delivery)
		}
	}
	if c.state.serverRetry.At.After(at) {
		at = c.state.serverRetry.At
	}
	return min(max(at.Sub(now), 10*time.Millisecond), c.every())
}
