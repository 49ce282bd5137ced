package email

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/chat"
)

// TestMail is a test card: a mail that looks like a card and is about nothing.
// The drawer tells a channel that runs meanwhile which token is one, so that it
// lays the answer there instead of answering it.
type TestMail struct {
	Drawer     chat.StateStore
	Addressing Addressing
	Sender     Sender
	To         string
	Inbox      chat.StateStore // of a Drop that nobody may be reading; may be nil

	token string
}

const (
	answerSuffix  = ".eml"
	rehearsalID   = "0000000000000000" // no request's: those are random
	rehearsalLook = 300 * time.Millisecond
)

// Send sends the test card.
func (r *TestMail) Send(ctx context.Context) error {
	r.token = NewToken()
	if err := r.Drawer.Put(TokenDigest(r.token), []byte("waits\n")); err != nil {
		return err
	}
	c := &Channel{Addressing: r.Addressing}
	d := c.dispatch(r.To, c.messageID(rehearsalID), "🔐 permesso email test", rehearsalID, r.token)
	d.Auto = "auto-generated"
	d.Text = "This is a test: nothing runs, whatever you answer.\n\nReply to this mail, and write as its first line:\n\n    1\n"
	if d.ReplyTo == "" {
		d.Text += "\n" + SubjectTag(rehearsalID, r.token) + "\n"
	}
	raw, err := d.bytes()
	if err != nil {
		return err
	}
	return r.Sender.Send(ctx, d.From, []string{d.To}, raw)
}

// Await gives the answer, out of the box, which may be nil, or from a channel that
// runs meanwhile. It waits until ctx ends.
func (r *TestMail) Await(ctx context.Context, box Mailbox) ([]byte, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	came := make(chan []byte, 1)
	ended := make(chan error, 1)
	if box != nil {
		go func() {
			ended <- box.Run(ctx, func(_ context.Context, in Incoming) error {
				if !in.TooLarge && r.answers(in.Raw) {
					select {
					case came <- in.Raw:
					default:
					}
				}
				return nil
			})
		}()
	}
	for {
		select {
		case raw := <-came:
			return raw, nil
		case err := <-ended:
			if ctx.Err() == nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(rehearsalLook):
		}
		raw, err := r.Drawer.Get(TokenDigest(r.token) + answerSuffix)
		if !errors.Is(err, fs.ErrNotExist) {
			return raw, err
		}
		if raw, err := r.handedIn(); raw != nil || err != nil {
			return raw, err
		}
	}
}

// handedIn is the answer where it lies in the inbox, since no gate runs.
func (r *TestMail) handedIn() ([]byte, error) {
	if r.Inbox == nil {
		return nil, nil
	}
	names, err := r.Inbox.List()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		raw, err := r.Inbox.Get(name)
		if err != nil || !r.answers(raw) {
			continue // taken meanwhile, or of somebody else's
		}
		return withCRLF(raw), r.Inbox.Remove(name)
	}
	return nil, nil
}

func (r *TestMail) answers(raw []byte) bool {
	m, err := Read(raw)
	if err != nil {
		return false
	}
	for _, ref := range m.Refs(r.Addressing) {
		if SameToken(ref.Token, r.token) {
			return true
		}
	}
	return false
}

// End forgets the test.
func (r *TestMail) End() error {
	if r.token == "" {
		return nil
	}
	return errors.Join(r.Drawer.Remove(TokenDigest(r.token)), r.Drawer.Remove(TokenDigest(r.token)+answerSuffix))
}

// rehearsed lays a mail down that answers a test, and says whether it does.
func (c *Channel) rehearsed(m *Mail, raw []byte) (bool, error) {
	if c.Tests == nil {
		return false, nil
	}
	for _, ref := range m.Refs(c.Addressing) {
		if ref.Token == "" {
			continue
		}
		digest := TokenDigest(ref.Token)
		if _, err := c.Tests.Get(digest); err != nil {
			continue
		}
		if err := c.Tests.Put(digest+answerSuffix, raw); err != nil {
			return true, fmt.Errorf("lay down the answer to a test: %w", err)
		}
		return true, nil
	}
	return false, nil
}

// Findings are what an answer to a test shows of the mail server.
type Findings struct {
	Automatic  string // why it would be ignored; "": it would not
	Answer     string // what was understood, one line
	Clear      bool
	AuthservID string // who wrote the topmost Authentication-Results; "": there are none
	Field      string // that field, on one line
	Stated     string // why its DMARC result proves nothing; "": it proves the sender
	Signed     string // why our own look at the signatures proves nothing; "": it proves the sender
	Sender     string // who was proved; "": nobody
}

// Examine says what can be proved by an answer. lookup asks for TXT records, as
// Authenticator's does.
func Examine(ctx context.Context, raw []byte, lookup func(context.Context, string) ([]string, error)) Findings {
	f := Findings{Automatic: Automatic(raw)}
	if m, err := Read(raw); err != nil {
		f.Answer = err.Error()
	} else {
		var text string
		text, f.Clear = m.Answer()
		if f.Answer = chat.Escape(text); m.Doubt != "" {
			f.Answer = m.Doubt
		}
	}
	fields, _ := readFields(raw)
	for _, h := range fields {
		if h.name == "authentication-results" {
			f.Field = chat.Escape(strings.Join(strings.Fields(h.value), " "))
			f.AuthservID, _, _ = parseResults(h.value)
			break
		}
	}
	proof := func(a *Authenticator) string {
		sender, _, err := a.Sender(ctx, raw)
		if err == nil {
			f.Sender = sender
			return ""
		}
		var e *AuthError
		if errors.As(err, &e) {
			return e.Reason
		}
		return err.Error()
	}
	if f.Stated = "the server states nothing"; f.AuthservID != "" {
		f.Stated = proof(&Authenticator{AuthservID: f.AuthservID})
	}
	f.Signed = proof(&Authenticator{DKIM: true, Lookup: lookup})
	return f
}

// Lines are those that belong into [channels.email] by these findings.
func (f Findings) Lines() []string {
	var lines []string
	if f.Stated == "" {
		lines = append(lines, fmt.Sprintf("authserv_id = %q", f.AuthservID))
	}
	return append(lines, fmt.Sprintf("dkim = %t", f.Signed == ""))
}
