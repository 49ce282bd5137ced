package email

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/email/authentic"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// TestMail sends a test card, which belongs to no request, and waits for the reply.
// Its store tells a running channel which token is a test's, so that the channel
// saves the reply there and does not answer it.
type TestMail struct {
	Store      chat.StateStore
	Addressing Addressing
	Sender     mailSender
	To         string
	Inbox      chat.StateStore // of an InboxQueue that no daemon may be reading; may be nil

	token  string
	sentAt time.Time
}

const (
	answerSuffix     = ".eml"
	testRequestID    = "0000000000000000" // no request has this id: ids are random
	testTitle        = "🔐 permesso email test"
	testPollInterval = 300 * time.Millisecond
)

// Send sends the test card.
func (r *TestMail) Send(ctx context.Context) error {
	r.token, r.sentAt = NewToken(), time.Now()
	if err := r.Store.Put(tokenDigest(r.token), []byte("waits\n")); err != nil {
		return err
	}
	c := &Adapter{Addressing: r.Addressing}
	d := c.outgoing(deliver.Address{Chat: deliver.ID(r.To)}, deliver.Message{
		Key: approval.Key{ID: testRequestID}, ID: c.NewID(testRequestID), Title: testTitle, Secret: r.token,
		Lines: []string{
			"This is a test. Nothing runs, whatever you reply.", "", "Reply to this email. Write this as the first line:", "", "    1",
		},
	})
	d.Auto = "auto-generated"
	raw, err := d.bytes()
	if err != nil {
		return err
	}
	return r.Sender.Send(ctx, d.From, []string{d.To}, raw)
}

// errForDaemon keeps an email in the inbox.
var errForDaemon = errors.New("not a reply to this test")

// Await waits until ctx ends for the reply: from box, which may be nil, from the inbox, or
// from a running channel.
func (r *TestMail) Await(ctx context.Context, box mailbox.Mailbox) ([]byte, error) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	came, ended := make(chan []byte, 1), make(chan error, 2)
	read := func(box mailbox.Mailbox, other error) {
		ended <- box.Run(ctx, func(_ context.Context, in mailbox.Incoming) error {
			if in.TooLarge || !r.answers(in.Raw) {
				return other
			}
			select {
			case came <- in.Raw:
			default:
			}
			return nil
		})
	}
	if box != nil {
		running.Go(func() { read(box, nil) })
	}
	if r.Inbox != nil {
		running.Go(func() { read(&mailbox.InboxQueue{Store: r.Inbox, Every: testPollInterval}, errForDaemon) })
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
		case <-time.After(testPollInterval):
		}
		raw, err := r.Store.Get(tokenDigest(r.token) + answerSuffix)
		if !errors.Is(err, fs.ErrNotExist) {
			return raw, err
		}
	}
}

func (r *TestMail) answers(raw []byte) bool {
	m, err := readMail(raw)
	return err == nil && slices.ContainsFunc(m.Refs(r.Addressing), r.ours)
}

func (r *TestMail) ours(ref cardRef) bool { return sameToken(ref.Token, r.token) }

// End removes the test from the store.
func (r *TestMail) End() error {
	if r.token == "" {
		return nil
	}
	return errors.Join(r.Store.Remove(tokenDigest(r.token)), r.Store.Remove(tokenDigest(r.token)+answerSuffix))
}

// saveTestReply saves a reply to a test card, and says whether the email is one.
func (c *Adapter) saveTestReply(m *inboundMail, raw []byte) (bool, error) {
	if c.Tests == nil {
		return false, nil
	}
	for _, ref := range m.Refs(c.Addressing) {
		if ref.Token == "" {
			continue
		}
		digest := tokenDigest(ref.Token)
		if _, err := c.Tests.Get(digest); err != nil {
			continue
		}
		if err := c.Tests.Put(digest+answerSuffix, raw); err != nil {
			return true, fmt.Errorf("save the reply to a test card: %w", err)
		}
		return true, nil
	}
	return false, nil
}

// Findings are what the reply to a test card shows about the mail server.
type Findings struct {
	Refused    string // why the configured channel would not take such a reply; "": it would
	Answer     string // the answer as understood, on one line
	Clear      bool
	AuthservID string // the server withID in the topmost Authentication-Results; "": there is none
	Unnamed    bool   // that field has no server's name, and proves the sender
	Field      string // that field, on one line
	Stated     string // why its DMARC result proves nothing; "": it proves the sender
	Signed     string // why our verification of DKIM proves nothing; "": it proves the sender
	Sender     string // the proved sender, or ""
}

// Examine reports what a reply proves, and whether the channel with this Authenticator
// would take it.
func (r *TestMail) Examine(ctx context.Context, raw []byte, configured *authentic.Authenticator) Findings {
	var f Findings
	m, err := readMail(raw)
	if err != nil {
		f.Answer, f.Refused = err.Error(), "it cannot be read"
	} else {
		var text string
		text, f.Clear = m.Answer()
		if f.Answer = chat.Escape(text); m.Doubt != "" {
			f.Answer = m.doubtText(textsFor(""))
		}
		f.Refused = r.refused(ctx, m, raw, configured)
	}
	server, field := authentic.Stated(raw)
	f.AuthservID, f.Field = server, chat.Escape(strings.Join(strings.Fields(field), " "))
	proof := func(a *authentic.Authenticator) string {
		p, err := a.Prove(ctx, raw)
		if err != nil {
			return err.Error()
		}
		f.Sender = p.Sender
		return ""
	}
	if f.Stated = "no Authentication-Results field"; f.AuthservID != "" {
		f.Stated = proof(&authentic.Authenticator{AuthservID: f.AuthservID})
	}
	if unnamed := (&authentic.Authenticator{Unnamed: true}); f.AuthservID == "" && field != "" {
		f.Stated = proof(unnamed)
		f.Unnamed = f.Stated == ""
	}
	f.Signed = proof(&authentic.Authenticator{DKIM: true, Lookup: configured.Lookup})
	return f
}

// refused says why the channel would not take such a reply.
func (r *TestMail) refused(ctx context.Context, m *inboundMail, raw []byte, configured *authentic.Authenticator) string {
	if why := automaticReason(raw); why != "" {
		return "a program seems to have written it: " + why
	}
	p, err := configured.Prove(ctx, raw)
	switch {
	case err != nil:
		return "its sender is not proved: " + err.Error()
	case chat.LowerASCII(p.Sender) != chat.LowerASCII(r.To):
		return "it comes from " + p.Sender + ", not from " + r.To
	}
	if why := m.notAnswer(r.Addressing, p, sentCard{testTitle, r.sentAt, r.ours}); why != "" {
		return "it " + r.Addressing.refusal(why, textsFor(""))
	}
	return ""
}

// Lines are the lines for [channels.email] that follow from the findings.
func (f Findings) Lines() []string {
	var lines []string
	switch {
	case f.Unnamed:
		lines = append(lines, "authserv_unnamed = true")
	case f.Stated == "":
		lines = append(lines, fmt.Sprintf("authserv_id = %q", f.AuthservID))
	}
	return append(lines, fmt.Sprintf("dkim = %t", f.Signed == ""))
}
