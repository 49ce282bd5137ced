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
)

// The pauses between two attempts to send, and how long something other than a
// card is worth sending.
const (
	firstSendPause   = 5 * time.Second
	longestSendPause = 5 * time.Minute
	followUpFor      = 24 * time.Hour
	answerFor        = time.Hour
)

// job is one mail that is due.
type job struct {
	key  approval.Key // zero: of no request
	to   string
	what string // for the log
	*delivery
	mail   *dispatch
	maybe  bool                          // an earlier attempt may have arrived
	keep   func() error                  // makes the delivery durable; the caller holds the lock
	unsent func()                        // it surely did not arrive; may be nil. The caller holds the lock
	failed func(why error) (tell func()) // no attempt will help; may be nil. The caller holds the lock
}

// send sends what is due, one mail after the other.
func (c *Channel) send(ctx context.Context, waiting []approval.Waiting) {
	byKey := map[approval.Key]approval.Waiting{}
	for _, w := range waiting {
		byKey[w.Key()] = w
	}
	for ctx.Err() == nil && !c.holding() {
		j, err := c.prepare(ctx, byKey)
		if err != nil {
			c.Log.Error().Err(err).Msg("email: a mail is not sent, because it cannot be noted")
			c.trouble("note", "mails cannot be sent: "+err.Error(), "is the disk full?")
			return
		}
		c.well("note")
		if j == nil {
			return
		}
		c.attempt(ctx, j)
	}
}

func (c *Channel) holding() bool {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	return c.state.hold.at.After(c.now())
}

// prepare picks a mail that is due and makes durable that an attempt is made.
func (c *Channel) prepare(ctx context.Context, waiting map[approval.Key]approval.Waiting) (*job, error) {
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
	// After a crash in the midst of it there is a pause, too, and nobody knows
	// whether it arrived.
	again := retry{n: j.Tries}.again(c.now(), c.firstPause(), longestSendPause)
	j.State, j.Tries, j.Next = stateSending, again.n, again.at.UTC()
	j.maybe, j.Maybe = j.Maybe, true
	return j, j.keep()
}

func (c *Channel) firstPause() time.Duration {
	if c.pause > 0 {
		return c.pause
	}
	return firstSendPause
}

// dueCard is a card that is to be sent, with a token of its own: what an earlier
// attempt carried is known by its digest only.
func (c *Channel) dueCard(waiting map[approval.Key]approval.Waiting) (*job, error) {
	now := c.now()
	for _, k := range slices.SortedFunc(maps.Keys(waiting), compareKeys) {
		w, n := waiting[k], c.state.pages.notes[k]
		if n == nil || n.SHA256 != w.SHA256 || !now.Before(w.Pending.ExpiresAt) {
			continue
		}
		for _, a := range n.Cards {
			if !a.due(now) {
				continue
			}
			token := a.issue()
			mail, whole, err := c.cardMail(w, a, token)
			if err != nil {
				return nil, err
			}
			a.Whole = whole
			return &job{
				key: k, to: a.To, what: "card", delivery: &a.delivery, mail: mail,
				keep:   func() error { return c.save(k, n) },
				unsent: func() { a.withdraw(token) },
				failed: func(why error) func() { return c.cardFailed(k, a, why) },
			}, nil
		}
	}
	return nil, nil
}

// cardMail composes the card that w's person gets.
func (c *Channel) cardMail(w approval.Waiting, a *asking, token string) (*dispatch, bool, error) {
	style := c.Style(a.Language)
	if c.Foot != nil {
		style.Foot = c.Foot()
	}
	d := c.dispatch(a.To, a.MessageID, a.Subject, w.Pending.RequestID, token)
	d.Auto = "auto-generated"
	m := &cardMail{pending: w.Pending, style: style, words: catalogue(style.Language), ceiling: c.ceiling(w.Pending.SourceGroup)}
	if d.ReplyTo == "" {
		m.tag = SubjectTag(w.Pending.RequestID, token)
	}
	var whole bool
	var err error
	d.Text, d.HTML, whole, err = m.render()
	return d, whole, err
}

// dispatch is a mail to somebody whose reply comes back with this token; "" is
// none.
func (c *Channel) dispatch(to, messageID, subject, id, token string) *dispatch {
	d := &dispatch{From: c.address(), To: to, MessageID: messageID, Date: c.now()}
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

// dueFollowUp is a mail that tells how a request ended.
func (c *Channel) dueFollowUp(ctx context.Context) (*job, error) {
	now := c.now()
	for _, k := range slices.SortedFunc(maps.Keys(c.state.pages.notes), compareKeys) {
		n := c.state.pages.notes[k]
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
			if now.Sub(rec.EndedAt) > followUpFor {
				a.FollowUp.State = stateFailed
				continue
			}
			return &job{
				key: k, to: a.To, what: "outcome", delivery: a.FollowUp,
				mail: c.followUp(k, a, rec),
				keep: func() error { return c.save(k, n) },
			}, nil
		}
	}
	return nil, nil
}

func (c *Channel) followUp(k approval.Key, a *asking, rec *approval.Record) *dispatch {
	// The same each time: a mail program shows it once, however often it comes.
	d := c.dispatch(a.To, strings.Replace(a.MessageID, "@", "-end@", 1), "Re: "+a.Subject, k.ID, "")
	d.Auto, d.InReplyTo, d.References = "auto-generated", a.MessageID, []string{a.MessageID}
	d.Text = lock + " " + c.Style(a.Language).Outcome(rec) + "\n"
	return d
}

// attempt sends one mail and notes how it went.
func (c *Channel) attempt(ctx context.Context, j *job) {
	raw, err := j.mail.bytes()
	if err != nil {
		err = &SendError{Stage: "compose the mail", Err: err}
	} else {
		err = c.Sender.Send(ctx, j.mail.From, []string{j.mail.To}, raw)
	}
	c.state.mu.Lock()
	note := c.concluded(ctx, j, err)
	saved := j.keep()
	c.state.mu.Unlock()
	note()
	if saved != nil {
		// It goes out again after a restart, under the same Message-ID.
		c.Log.Error().Err(saved).Msg("email")
	}
}

// concluded writes into the delivery how an attempt went, and returns what is to
// be told without the lock.
func (c *Channel) concluded(ctx context.Context, j *job, err error) (tell func()) {
	if err == nil {
		j.State, j.Maybe, j.Error, j.Next = stateSent, j.maybe, "", time.Time{}
		c.state.hold = retry{}
		return func() {
			c.well("server")
			c.well("to " + j.to)
			c.Log.Info().Str("ws", j.key.Workspace).Str("id", j.key.ID).Str("what", j.what).Msg("mail sent")
		}
	}
	e := sendErrorOf(err)
	j.Maybe = j.maybe || e.MaybeSent
	if ctx.Err() != nil {
		return func() {} // we end; the next start tries again
	}
	j.Error = e.Error()
	if !e.MaybeSent && j.unsent != nil {
		j.unsent()
	}
	log := func() {
		c.Log.Warn().Str("ws", j.key.Workspace).Str("id", j.key.ID).Str("what", j.what).Err(err).Bool("again", j.open()).Msg("mail not sent")
	}
	switch {
	case ofServer(e):
		longest := longestSendPause
		if !e.Account {
			longest = time.Minute
		}
		c.state.hold = c.state.hold.again(c.now(), c.firstPause(), longest)
		// It is not this mail's fault: when the server is back, it goes at once.
		j.Tries, j.Next = j.Tries-1, c.state.hold.at.UTC()
		return func() {
			log()
			c.trouble("server", "mails cannot be sent: "+e.Error(), hintOr(e.Hint, "permesso email setup checks the login"))
		}
	case !e.Temporary:
		j.State = stateFailed
		if j.failed == nil {
			return log
		}
		tell := j.failed(e)
		return func() { log(); tell() }
	}
	return log
}

func sendErrorOf(err error) *SendError {
	var e *SendError
	if errors.As(err, &e) {
		return e
	}
	return &SendError{Stage: "send the mail", Temporary: true, Err: err}
}

// ofServer says whether every other mail would fail, too.
func ofServer(e *SendError) bool {
	return e.Account || e.Temporary && !e.MaybeSent && (e.Code == 0 || e.Code == 421)
}

func hintOr(hint, otherwise string) string {
	if hint != "" {
		return hint
	}
	return otherwise
}

// cardFailed notes that somebody cannot be asked by mail, and returns what tells
// of it without the lock.
func (c *Channel) cardFailed(k approval.Key, a *asking, why error) (tell func()) {
	a.told = true
	to, what := a.To, fmt.Sprintf("the mail about %s to %s was refused: %v", approval.ShortID(k.ID), said(a.To), why)
	return func() {
		c.trouble("to "+to, what, "correct the address in [approvers], or answer with: permesso approve "+approval.ShortID(k.ID))
		if c.Alert != nil {
			c.Alert(k.Workspace, what)
		}
	}
}

// next is how long until something is due.
func (c *Channel) next() time.Duration {
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
			at = now.Add(time.Second) // due, and what it is about does not wait just now
		}
	}
	for _, n := range c.state.pages.notes {
		if !n.Closed.IsZero() {
			continue
		}
		for _, a := range n.Cards {
			sooner(&a.delivery)
			sooner(a.FollowUp)
		}
	}
	for _, t := range c.state.taken.byFile {
		if t.Answer != nil {
			sooner(&t.Answer.delivery)
		}
	}
	if c.state.hold.at.After(at) {
		at = c.state.hold.at
	}
	return min(max(at.Sub(now), 10*time.Millisecond), c.every())
}
