package email

import (
	"context"
	"errors"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/hints"
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
func (c *Channel) Take(ctx context.Context, in mailbox.Incoming) (Taken, error) {
	t, err := c.take(ctx, in, "")
	return c.logged(in.Name, t, err)
}

// TakeRaw is Take for a caller that represents one approver. An email from another
// sender is refused.
func (c *Channel) TakeRaw(ctx context.Context, in mailbox.Incoming, approver approval.Person) (Taken, error) {
	only := canonical(approver.ID)
	if approver.Channel != channelName || only == "" {
		return Taken{Status: Refused, Why: "the caller's key has no email address"}, nil
	}
	t, err := c.take(ctx, in, only)
	return c.logged(in.Name, t, err)
}

// TakeForwarded is Take for an email of which only subject and text are left. Its
// sender cannot be proved: the caller vouches that approver wrote it, and subject or
// text must contain the token of that approver's card. approver's Channel is "email",
// and its ID is the address.
func (c *Channel) TakeForwarded(ctx context.Context, subject, body string, approver approval.Person) (Taken, error) {
	sender := canonical(approver.ID)
	name := "forwarded " + replyDigest(sender, "", subject, body)
	switch {
	case approver.Channel != channelName || sender == "":
		return c.logged(name, Taken{Status: Refused, Why: "the caller's key has no email address"}, nil)
	case len(subject)+len(body) > mailbox.MaxMail:
		return c.logged(name, Taken{Status: Ignored, Why: "too large"}, nil)
	}
	t, err := c.handleReply(ctx, name, &inboundMail{Subject: subject, Text: newlines.Replace(body)}, sender)
	return c.logged(name, t, err)
}

const channelName = "email"

func (c *Channel) receive(ctx context.Context, in mailbox.Incoming) error {
	_, err := c.Take(ctx, in)
	return err
}

// logged logs a result and returns it.
func (c *Channel) logged(name string, t Taken, err error) (Taken, error) {
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

// take runs the cheap checks first: size, duplicate, automatic sender, card withID.
// The proof of the sender, which needs DNS, comes last.
func (c *Channel) take(ctx context.Context, in mailbox.Incoming, only string) (Taken, error) {
	c.init()
	if in.TooLarge || len(in.Raw) > mailbox.MaxMail {
		return Taken{Status: Ignored, Why: "too large"}, nil
	}
	if t, err := c.handledBefore(in.Name); err != nil {
		return Taken{}, err
	} else if t != nil {
		return Taken{Status: Duplicate, Key: t.key()}, nil
	}
	if why := automaticReason(in.Raw); why != "" {
		return Taken{Status: Ignored, Why: why}, nil
	}
	m, err := readMail(in.Raw)
	if err != nil {
		return Taken{Status: Ignored, Why: err.Error()}, nil //nolint:nilerr // a retry cannot help
	}
	if test, err := c.saveTestReply(m, in.Raw); test {
		return Taken{Status: Ignored, Why: "reply to a test card"}, err
	}
	if ours, err := c.namesCard(m); !ours || err != nil {
		return Taken{Status: Ignored, Why: "names no card"}, err
	}
	if c.Verifier == nil {
		return Taken{Status: Refused, Why: "no sender verifier is configured"}, nil
	}
	sender, how, err := c.Verifier.Sender(ctx, in.Raw)
	if err != nil {
		return c.handleUnproved(in.Name, err)
	}
	c.state.mu.Lock()
	delete(c.state.unprovedSince, in.Name)
	c.state.mu.Unlock()
	if sender = canonical(sender); only != "" && sender != only {
		return Taken{Status: Refused, Why: "sender is not the approver of the caller's key"}, nil
	}
	t, err := c.handleReply(ctx, in.Name, m, sender)
	if t.Why == "" {
		t.Why = "proved: " + how
	}
	return t, err
}

// handledBefore returns the record of an earlier run with the same delivery, or nil.
func (c *Channel) handledBefore(name string) (*handledEmail, error) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if err := c.loadHandled(); err != nil {
		return nil, err
	}
	return c.state.handled.byFile[fileName(name)], nil
}

// namesCard says whether an email names a card that was sent. Without one, no DNS
// lookup is made for it.
func (c *Channel) namesCard(m *inboundMail) (bool, error) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if err := c.loadAll(); err != nil {
		return false, err
	}
	for _, ref := range m.Refs(c.Addressing) {
		if len(c.state.sent.withID(c.idOf(ref))) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// loadAll loads the sent records and the taken replies of every workspace.
func (c *Channel) loadAll() error {
	if err := c.loadHandled(); err != nil {
		return err
	}
	for _, ws := range c.Workspaces() {
		if err := c.load(ws); err != nil {
			return err
		}
	}
	return nil
}

// handleUnproved refuses the email, or asks for a retry if the proof could not be looked up.
func (c *Channel) handleUnproved(name string, err error) (Taken, error) {
	var e *authentic.Error
	if !errors.As(err, &e) {
		return Taken{}, err
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	since, known := c.state.unprovedSince[name]
	if e.Undecided && (!known || c.now().Sub(since) < proofRetryTime) {
		if !known {
			c.state.unprovedSince[name] = c.now()
		}
		return Taken{}, err
	}
	delete(c.state.unprovedSince, name)
	return Taken{Status: Refused, Why: e.Reason}, nil
}
