package email

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/email/authentic"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// Status is the result of handling an incoming email.
type Status string

// The results. Only Decided changes the state of a request.
const (
	Decided   Status = "decided"
	Answered  Status = "answered"  // a question about the card, answered; the request stays pending
	Unclear   Status = "unclear"   // from an approver, but not understood
	Late      Status = "late"      // the request is settled
	Refused   Status = "refused"   // unproved sender, not an approver, wrong token, or not possible by email
	Ignored   Status = "ignored"   // not for this channel, automatic, or too large
	Duplicate Status = "duplicate" // handled before
)

// Taken is the result for one email.
type Taken struct {
	Status Status
	Key    approval.Key // the request; zero if none was found
	Why    string       // for the log; never contains the email's words
}

// proofRetryTime is how long an email waits for a proof that cannot be looked up.
const proofRetryTime = time.Hour

// maxUnclear limits the menu answers for one card. It stops a loop with an automatic
// mailer that we do not recognize.
const maxUnclear = 3

// Take handles an email: the reply decides, or Taken says why not. After an error the
// caller must pass the same email again later. Until then nothing was decided, or the
// repeat finds the decision. A repeat never decides twice.
func (c *Adapter) Take(ctx context.Context, in mailbox.Incoming) (Taken, error) {
	t, err := c.take(ctx, in, "")
	return c.logged(in.Name, t, err)
}

// TakeRaw is Take for a caller that represents one approver. An email from another
// sender is refused.
func (c *Adapter) TakeRaw(ctx context.Context, in mailbox.Incoming, approver approval.Person) (Taken, error) {
	only, err := c.addressOf(ctx, approver)
	if only == "" || err != nil {
		return Taken{Status: Refused, Why: noAddress}, err
	}
	t, err := c.take(ctx, in, only)
	return c.logged(in.Name, t, err)
}

// Forwarded is an email of which only these parts are left.
type Forwarded struct {
	Subject, Body string
	From          string // "": the caller's approver
	// Authenticated: the caller has authenticated the sender, so the token is not needed.
	Authenticated bool
}

// TakeForwarded is Take for an email of which only parts are left. Its sender cannot be
// proved: the caller vouches that approver wrote it, and subject or text must contain the
// token of that approver's card, or its id if the caller authenticates senders. approver's
// Channel is this one, and its ID is the address.
func (c *Adapter) TakeForwarded(ctx context.Context, f Forwarded, approver approval.Person) (Taken, error) {
	sender, err := c.addressOf(ctx, approver)
	name := "forwarded " + replyDigest(sender, "", f.Subject, f.Body) + " " + NewToken()[:13]
	switch {
	case sender == "" || err != nil:
		return c.logged(name, Taken{Status: Refused, Why: noAddress}, err)
	case f.From != "" && chat.LowerASCII(f.From) != chat.LowerASCII(sender):
		return c.logged(name, Taken{Status: Refused, Why: otherSender}, nil)
	case len(f.Subject)+len(f.Body) > mailbox.MaxMail:
		return c.logged(name, Taken{Status: Ignored, Why: "too large"}, nil)
	}
	m := &inboundMail{Subject: f.Subject, Text: newlines.Replace(f.Body)}
	t, err := (&reply{Adapter: c, run: c.channel(), name: name, mail: m, sender: sender, authenticated: f.Authenticated}).handle(ctx)
	return c.logged(name, t, err)
}

const (
	noAddress   = "the caller's key has no email address"
	otherSender = "sender is not the approver of the caller's key"
)

// addressOf is the address of an approver of this channel, "" if the person is none. It
// waits until the channel is open.
func (c *Adapter) addressOf(ctx context.Context, p approval.Person) (string, error) {
	if err := c.await(ctx); err != nil || p.Channel != c.channel().Name {
		return "", err
	}
	return canonical(p.ID), nil
}

// await waits until the channel is open.
func (c *Adapter) await(ctx context.Context) error {
	c.init()
	select {
	case <-c.opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// channel is the running channel.
func (c *Adapter) channel() *deliver.Channel { return c.inbox().Channel() }

func (c *Adapter) receive(ctx context.Context, in mailbox.Incoming) error {
	_, err := c.Take(ctx, in)
	return err
}

// logged logs a result and returns it.
func (c *Adapter) logged(name string, t Taken, err error) (Taken, error) {
	event := c.Log.Info()
	if t.Status == Ignored || t.Status == Duplicate {
		event = c.Log.Debug()
	}
	if err != nil {
		event = c.Log.Warn().Err(err)
		if hint := hints.Of(err); hint != "" {
			event = event.Str("hint", hint)
		}
	}
	event.Str("mail", name).Str("status", string(t.Status)).Str("ws", t.Key.Workspace).Str("id", t.Key.ID).Str("why", t.Why).Msg("email handled")
	return t, err
}

// take runs the cheap checks first: duplicate, size, test card, automatic sender, card.
// The proof of the sender, which needs DNS, comes last.
func (c *Adapter) take(ctx context.Context, in mailbox.Incoming, only string) (Taken, error) {
	if err := c.await(ctx); err != nil {
		return Taken{}, err
	}
	if t := c.handledBefore(in.Name); t != nil {
		return Taken{Status: Duplicate, Key: t.key()}, nil
	}
	if in.TooLarge {
		in.Raw = append(slices.Clip(in.Raw), "\r\n"...) // its header is complete
	}
	m, why := open(in)
	if m == nil {
		return Taken{Status: Ignored, Why: why}, nil
	}
	if test, err := c.saveTestReply(m, in.Raw); test {
		return Taken{Status: Ignored, Why: "reply to a test card"}, err
	}
	automatic := automaticReason(in.Raw)
	if ours, err := c.namesCard(m, automatic != ""); !ours || err != nil {
		return Taken{Status: Ignored, Why: cmp.Or(automatic, "names no card")}, err
	}
	if c.Verifier == nil {
		return Taken{Status: Refused, Why: "no sender verifier is configured"}, nil
	}
	proof, err := c.Verifier.Prove(ctx, in.Raw)
	switch {
	case err != nil && automatic != "":
		return Taken{Status: Ignored, Why: automatic}, nil //nolint:nilerr // without a proof it is only ignored
	case err != nil:
		return c.handleUnproved(in.Name, err)
	}
	c.mu.Lock()
	delete(c.unprovedSince, in.Name)
	c.mu.Unlock()
	if only != "" && chat.LowerASCII(proof.Sender) != chat.LowerASCII(only) {
		return Taken{Status: Refused, Why: otherSender}, nil
	}
	t, err := (&reply{Adapter: c, run: c.channel(), name: in.Name, mail: m, automatic: automatic, proof: &proof, sender: canonical(proof.Sender)}).handle(ctx)
	if t.Why == "" {
		t.Why = "proved: " + proof.How
	}
	return t, err
}

// open parses an email, or says why it cannot. Of one that is too large only the header is
// read: its sender may be proved, and told.
func open(in mailbox.Incoming) (m *inboundMail, why string) {
	if !in.TooLarge && len(in.Raw) > mailbox.MaxMail {
		return nil, "too large"
	}
	m, err := readMail(in.Raw)
	if err != nil {
		return nil, err.Error()
	}
	if in.TooLarge {
		m.Doubt = "tooLarge"
	}
	return m, ""
}

// handledBefore returns the record of an earlier run with the same delivery, or nil.
func (c *Adapter) handledBefore(name string) *handledEmail {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handled[fileName(name)]
}

// namesCard says whether an email names a card that was sent; if withToken is set, with
// one of its tokens. Without a card, no DNS lookup is made for it.
func (c *Adapter) namesCard(m *inboundMail, withToken bool) (bool, error) {
	refs := m.Refs(c.Addressing)
	if len(refs) == 0 {
		return false, nil
	}
	all, err := c.inbox().Letters()
	return slices.ContainsFunc(refs, func(ref cardRef) bool {
		id := idOf(ref, all)
		return slices.ContainsFunc(all, func(l deliver.Letter) bool { return l.Key.ID == id && (!withToken || ref.of(l)) })
	}), err
}

// handleUnproved refuses the email, or asks for a retry if the proof could not be looked up.
func (c *Adapter) handleUnproved(name string, err error) (Taken, error) {
	var e *authentic.Error
	if !errors.As(err, &e) {
		return Taken{}, err
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	since, known := c.unprovedSince[name]
	if e.Undecided && (!known || now.Sub(since) < proofRetryTime) {
		if !known {
			c.unprovedSince[name] = now
		}
		return Taken{}, err
	}
	delete(c.unprovedSince, name)
	return Taken{Status: Refused, Why: e.Reason}, nil
}
