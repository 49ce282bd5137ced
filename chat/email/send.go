package email

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// The maximum age of an email other than a card.
const (
	maxFollowUpAge = 24 * time.Hour
	maxAnswerAge   = time.Hour
)

// jobs are the emails that are not settled: answers before cards, outcomes last. The caller
// holds the lock during the iteration.
func (c *Channel) jobs(ctx context.Context, waiting []approval.StoredPending) iter.Seq[*job] {
	pending := map[approval.Key]*approval.StoredPending{}
	for i := range waiting {
		pending[waiting[i].Key()] = &waiting[i]
	}
	return func(yield func(*job) bool) {
		for _, t := range c.state.handled.byFile {
			if t.Answer != nil && t.Answer.open() && !yield(c.answerJob(t)) {
				return
			}
		}
		keys := slices.SortedFunc(maps.Keys(c.state.sent.records), compareKeys)
		keys = slices.DeleteFunc(keys, func(k approval.Key) bool { return !c.state.sent.records[k].Closed.IsZero() })
		for _, k := range keys {
			n := c.state.sent.records[k]
			for _, a := range n.Cards {
				if a.open() && !yield(c.cardJob(k, n, a, pending[k])) {
					return
				}
			}
		}
		for _, k := range keys {
			n := c.state.sent.records[k]
			for _, a := range n.Cards {
				if a.FollowUp != nil && a.FollowUp.open() && !yield(c.followUpJob(ctx, k, n, a)) {
					return
				}
			}
		}
	}
}

// transmit makes one attempt to send an email.
func (c *Channel) transmit(ctx context.Context, d *outgoing) *mailbox.Error {
	raw, err := d.bytes()
	if err != nil {
		return &mailbox.Error{Stage: "compose the mail", Err: err}
	}
	if err = c.Sender.Send(ctx, d.From, []string{d.To}, raw); err == nil {
		return nil
	}
	e := &mailbox.Error{Stage: "send the mail", Temporary: true, Err: err}
	errors.As(err, &e)
	return e
}

// cardJob is a card for one approver. Each attempt has a new token: of an earlier one only the
// digest is known.
func (c *Channel) cardJob(k approval.Key, n *sentRecord, a *cardCopy, w *approval.StoredPending) *job {
	j := &job{key: k, to: a.To, what: "card", delivery: &a.delivery, save: func() error { return c.save(k, n) }}
	if w == nil || n.SHA256 != w.SHA256 || !c.now().Before(w.Pending.ExpiresAt) {
		return j
	}
	var token string
	j.compose = func() (d *outgoing, err error) {
		token = a.addToken()
		d, a.Complete, err = c.cardMail(*w, a, token)
		return d, err
	}
	j.notSent = func() { a.removeToken(token) }
	j.failed = func(why error) func() { return c.cardFailed(k, a, why) }
	return j
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

// followUpJob is an outcome for one approver.
func (c *Channel) followUpJob(ctx context.Context, k approval.Key, n *sentRecord, a *cardCopy) *job {
	return &job{
		key: k, to: a.To, what: "outcome", delivery: a.FollowUp, save: func() error { return c.save(k, n) },
		compose: func() (*outgoing, error) {
			rec, err := c.Records.Record(ctx, k)
			switch {
			case err != nil || rec == nil:
				return nil, err
			case c.now().Sub(rec.EndedAt) > maxFollowUpAge:
				return nil, errOutdated
			}
			return c.followUp(k, a, rec), nil
		},
	}
}

func (c *Channel) followUp(k approval.Key, a *cardCopy, rec *approval.Record) *outgoing {
	// The same Message-ID for every attempt: a mail program shows one copy.
	d := c.newEmail(a.To, strings.Replace(a.MessageID, "@", "-end@", 1), "Re: "+a.Subject, k.ID, "")
	d.Auto, d.InReplyTo, d.References = "auto-generated", a.MessageID, []string{a.MessageID}
	d.Text = lock + " " + c.Style(a.Language).Outcome(rec) + "\n"
	return d
}

// answerJob is our answer to a reply.
func (c *Channel) answerJob(t *handledEmail) *job {
	a, token := t.Answer, ""
	var card *cardCopy
	j := &job{key: t.key(), to: t.Sender, what: "answer", delivery: &a.delivery}
	j.save = func() error {
		if !a.open() {
			a.Text = ""
		}
		return c.saveHandled(t)
	}
	j.notSent = func() {
		if card != nil {
			card.removeToken(token)
		}
	}
	j.compose = func() (*outgoing, error) {
		if c.now().Sub(t.At) > maxAnswerAge {
			return nil, errOutdated
		}
		if n := c.state.sent.records[j.key]; a.Open && n != nil {
			if card = n.card(t.Sender); card != nil {
				token = card.addToken()
				if err := c.save(j.key, n); err != nil {
					return nil, err
				}
			}
		}
		return c.answer(t, token), nil
	}
	return j
}

// answer composes our answer to a reply. The lock marks our text if a reply quotes it:
// without it "4 needs text behind it" would be an answer.
func (c *Channel) answer(t *handledEmail, token string) *outgoing {
	a := t.Answer
	d := c.newEmail(t.Sender, a.MessageID, "Re: "+a.Subject, t.ID, token)
	d.Auto, d.InReplyTo, d.References, d.Text = "auto-replied", a.InReplyTo, a.References, lock+" "+a.Text+"\n"
	if token != "" && d.ReplyTo == "" {
		d.Text += "\n" + SubjectTag(t.ID, token) + "\n"
	}
	return d
}

// cardFailed records that an approver cannot be asked by email. It returns what must
// be reported without the lock.
func (c *Channel) cardFailed(k approval.Key, a *cardCopy, why error) (reports func()) {
	a.failureReported = true
	to, what := a.To, fmt.Sprintf("card %s to %s was refused: %v", approval.ShortID(k.ID), chat.Escape(a.To), why)
	hint := "correct the approver's email address, or decide on another channel"
	if c.Approve != "" {
		hint += ": " + c.Approve + " " + k.ID
	}
	return func() {
		c.problems.set("to "+to, what, hint)
		if c.Alert != nil {
			c.Alert(k.Workspace, what)
		}
	}
}
