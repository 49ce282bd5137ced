package email

import (
	"context"
	"errors"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// Status says what became of a mail that came in.
type Status string

// What can become of a mail. Only the first one moves anything.
const (
	Decided   Status = "decided"
	Answered  Status = "answered"  // a question about the card, answered; it waits on
	Unclear   Status = "unclear"   // an approver's, and no answer that could be understood
	Late      Status = "late"      // the request is settled
	Refused   Status = "refused"   // not proved, not an approver's, without its token, or not possible by mail
	Ignored   Status = "ignored"   // not for us, automatic, or too large
	Duplicate Status = "duplicate" // taken before
)

// Taken is what became of a mail.
type Taken struct {
	Status Status
	Key    approval.Key // the request it is about; zero where none was found
	Why    string       // for the log: never the mail's words
}

// doubtFor is how long we wait for a proof that cannot be looked up.
const doubtFor = time.Hour

// maxUnclear is how often one card is answered with the menu: an automatic
// answer that is not known as one must not go on for ever.
const maxUnclear = 3

// Take has a mail decide, or says why it does not. An error means that it should
// be handed in again later; until then it has decided nothing, or what it decided
// is found again. What is taken twice decides once.
func (c *Channel) Take(ctx context.Context, in Incoming) (Taken, error) {
	t, err := c.take(ctx, in, "")
	c.logTaken(in.Name, t, err)
	return t, err
}

// TakeRaw is Take for a mail that somebody hands over who speaks for one approver
// only: others' mails are refused.
func (c *Channel) TakeRaw(ctx context.Context, in Incoming, approver approval.Person) (Taken, error) {
	only := canonical(approver.ID)
	if approver.Channel != channelName || only == "" {
		return Taken{Status: Refused, Why: "handed over by somebody without an e-mail address"}, nil
	}
	t, err := c.take(ctx, in, only)
	c.logTaken(in.Name, t, err)
	return t, err
}

// TakeForwarded is Take for a mail of which only subject and text are left.
// Nothing is left to prove then, so approver is who wrote it, by the word of who
// hands it over, and the subject or the text must hold the token of their card.
// approver's Channel is "email", and its ID the address.
func (c *Channel) TakeForwarded(ctx context.Context, subject, body string, approver approval.Person) (Taken, error) {
	sender := canonical(approver.ID)
	m := &Mail{Subject: subject, Text: newlines.Replace(body)}
	name := "forwarded " + printOfReply(sender, "", subject, body)
	t, err := func() (Taken, error) {
		if approver.Channel != channelName || sender == "" {
			return Taken{Status: Refused, Why: "handed over by somebody without an e-mail address"}, nil
		}
		if len(subject)+len(body) > MaxMail {
			return Taken{Status: Ignored, Why: "too large"}, nil
		}
		return c.weigh(ctx, name, m, sender)
	}()
	c.logTaken(name, t, err)
	return t, err
}

const channelName = "email"

func (c *Channel) receive(ctx context.Context, in Incoming) error {
	_, err := c.Take(ctx, in)
	return err
}

func (c *Channel) logTaken(name string, t Taken, err error) {
	event := c.Log.Info()
	if t.Status == Ignored || t.Status == Duplicate {
		event = c.Log.Debug()
	}
	if err != nil {
		event = c.Log.Warn().Err(err)
	}
	event.Str("mail", name).Str("status", string(t.Status)).Str("ws", t.Key.Workspace).Str("id", t.Key.ID).Str("why", t.Why).Msg("mail taken")
}

// take goes from what costs nothing to what does: whether the mail is read at
// all, then whether a machine wrote it, whether it is about a card, and only then
// who wrote it.
func (c *Channel) take(ctx context.Context, in Incoming, only string) (Taken, error) {
	c.init()
	if in.TooLarge || len(in.Raw) > MaxMail {
		return Taken{Status: Ignored, Why: "too large"}, nil
	}
	if t, err := c.before(in.Name); err != nil {
		return Taken{}, err
	} else if t != nil {
		return Taken{Status: Duplicate, Key: t.key()}, nil
	}
	if why := Automatic(in.Raw); why != "" {
		return Taken{Status: Ignored, Why: why}, nil
	}
	m, err := Read(in.Raw)
	if err != nil {
		return Taken{Status: Ignored, Why: err.Error()}, nil //nolint:nilerr // it will not get better
	}
	if test, err := c.rehearsed(m, in.Raw); test {
		return Taken{Status: Ignored, Why: "it answers a test"}, err
	}
	if ours, err := c.concerns(m); !ours || err != nil {
		return Taken{Status: Ignored, Why: "it is about no card"}, err
	}
	if c.Prover == nil {
		return Taken{Status: Refused, Why: "nothing proves who wrote it"}, nil
	}
	sender, how, err := c.Prover.Sender(ctx, in.Raw)
	if err != nil {
		return c.unproved(in.Name, err)
	}
	c.state.mu.Lock()
	delete(c.state.doubted, in.Name)
	c.state.mu.Unlock()
	if sender = canonical(sender); only != "" && sender != only {
		return Taken{Status: Refused, Why: "it is not by whom the key stands for"}, nil
	}
	t, err := c.weigh(ctx, in.Name, m, sender)
	if t.Why == "" {
		t.Why = "proved: " + how
	}
	return t, err
}

// before is what was noted when that very delivery was taken; nil: nothing.
func (c *Channel) before(name string) (*taken, error) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if err := c.loadTaken(); err != nil {
		return nil, err
	}
	return c.state.taken.byFile[fileOf(name)], nil
}

// concerns says whether a mail names a card that was sent. To look further costs
// questions to other people's name servers.
func (c *Channel) concerns(m *Mail) (bool, error) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if err := c.loadAll(); err != nil {
		return false, err
	}
	for _, ref := range m.Refs(c.Addressing) {
		if len(c.state.pages.named(c.idOf(ref))) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// loadAll reads what the notebook and the drawer say of every workspace.
func (c *Channel) loadAll() error {
	if err := c.loadTaken(); err != nil {
		return err
	}
	for _, ws := range c.Workspaces() {
		if err := c.load(ws); err != nil {
			return err
		}
	}
	return nil
}

// unproved refuses, or waits where the proof could not be looked up.
func (c *Channel) unproved(name string, err error) (Taken, error) {
	var e *AuthError
	if !errors.As(err, &e) {
		return Taken{}, err
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	since, known := c.state.doubted[name]
	if e.Undecided && (!known || c.now().Sub(since) < doubtFor) {
		if c.state.doubted == nil {
			c.state.doubted = map[string]time.Time{}
		}
		if !known {
			c.state.doubted[name] = c.now()
		}
		return Taken{}, err
	}
	delete(c.state.doubted, name)
	return Taken{Status: Refused, Why: e.Reason}, nil
}
