package email

import (
	"context"
	"errors"
	"html"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/email/authentic"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// mailSender submits an email to a mail server. *SMTP is one. It describes a failure
// with an *Error, or it counts as temporary.
type mailSender interface {
	Send(ctx context.Context, from string, to []string, msg []byte) error
}

// senderVerifier proves who wrote an email. *Authenticator is one. Its errors are
// *authentic.Error.
type senderVerifier interface {
	Prove(ctx context.Context, raw []byte) (authentic.Proof, error)
}

// Adapter asks approvers by email, for a deliver.Channel, and applies their replies. Its
// places are approvers: see Place. Without a senderVerifier no reply decides.
type Adapter struct {
	Addressing Addressing // reply addresses; its Local and Domain are the channel's own address
	FollowUp   bool       // send the outcome to the approvers who were asked
	Sender     mailSender
	Mailboxes  []mailbox.Mailbox // where replies come in, besides TakeRaw and TakeForwarded
	Verifier   senderVerifier

	Taken   chat.StateStore                               // the replies that had an effect, and our answers to them
	Tests   chat.StateStore                               // see TestMail; may be nil
	Ceiling func(workspace string) approval.Reversibility // ""; or nil for all workspaces: email may approve everything
	Log     zerolog.Logger

	once    sync.Once
	opened  chan struct{} // closed by the first run
	replyMu sync.Mutex    // replies are handled one at a time
	mu      sync.Mutex    // guards the fields below
	open    bool
	in      *deliver.Inbox
	handled handledEmails
	// unprovedSince are emails whose proof could not be looked up, by name, and since when.
	unprovedSince map[string]time.Time
}

// FirstRetry is the delay before a second attempt to send an email.
const FirstRetry = 5 * time.Second

// Place is where an approver is asked by email. ok is false without an address.
func Place(p approval.Approver, channel string) (to deliver.Place, ok bool) {
	address := canonical(p.IDs[channel])
	at := deliver.Address{Chat: deliver.ID(address)}
	return deliver.Place{Address: at, Language: p.Language, Person: p.Name}, address != ""
}

func (c *Adapter) init() {
	c.once.Do(func() { c.opened, c.unprovedSince = make(chan struct{}), map[string]time.Time{} })
}

// Open implements deliver.Adapter.
func (c *Adapter) Open(_ context.Context, in *deliver.Inbox) (deliver.Traits, error) {
	c.init()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.loadHandled(); err != nil {
		return deliver.Traits{}, err
	}
	c.in = in
	return deliver.Traits{Service: "Email", Letters: c, Outcomes: c.FollowUp}, nil
}

// Listen implements deliver.Adapter. It returns the error of the first mailbox that ends.
func (c *Adapter) Listen(ctx context.Context) error {
	c.resume()
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(c.Mailboxes))
	for _, b := range c.Mailboxes {
		running.Go(func() { ended <- b.Run(ctx, c.receive) })
	}
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	for {
		c.pruneHandled()
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			if err == nil && ctx.Err() == nil {
				err = errors.New("a mailbox stopped without an error")
			}
			return err
		case <-prune.C:
		}
	}
}

// resume sends the answers of earlier runs, and lets replies in.
func (c *Adapter) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.handled {
		c.sendAnswer(t, FirstRetry) // not at once: an earlier attempt may have ended the process
	}
	if !c.open {
		c.open = true
		close(c.opened)
	}
}

// Send implements deliver.Adapter.
func (c *Adapter) Send(ctx context.Context, to deliver.Address, m deliver.Message) (deliver.ID, error) {
	d, told := c.outgoing(to, m), func() {}
	if m.Page != "" {
		told = c.addUnanswered(d)
	}
	raw, err := d.bytes()
	if err != nil {
		return "", &deliver.Error{Class: deliver.Rejected, Err: err}
	}
	log := c.Log.With().Str("ws", m.Key.Workspace).Str("id", m.Key.ID).Str("what", d.Auto).Logger()
	if err = c.Sender.Send(ctx, d.From, []string{d.To}, raw); err != nil {
		e := failure(err)
		log.Warn().Err(e).Bool("again", e.Class != deliver.Rejected).Msg("email not sent")
		return "", e
	}
	log.Info().Msg("email sent")
	told()
	return deliver.ID(d.MessageID), nil
}

// addUnanswered adds to a card what its reader was not told. told marks it as told.
func (c *Adapter) addUnanswered(d *outgoing) (told func()) {
	sentences, told := c.untold(d.To)
	for _, s := range sentences {
		d.Text += "\n" + s + "\n"
		d.HTML = strings.Replace(d.HTML, "</body>", "<p>"+html.EscapeString(s)+"</p>\n</body>", 1)
	}
	return told
}

// failure classifies an error of the sender.
func failure(err error) *deliver.Error {
	f := &mailbox.Error{Stage: "send the mail", Temporary: true, Err: err}
	errors.As(err, &f)
	e := &deliver.Error{Class: deliver.Temporary, Hint: hints.Of(f), Err: f}
	switch {
	case f.Account:
		e.Class, e.Service = deliver.BadCredentials, true
	case !f.Temporary:
		e.Class = deliver.Rejected
	case f.MaybeSent:
		e.Class = deliver.Unknown
	default:
		e.Service = f.Code == 0 || f.Code == 421
	}
	return e
}

// Edit implements deliver.Adapter. It is never called.
func (c *Adapter) Edit(context.Context, deliver.Address, deliver.ID, deliver.Message) error {
	return &deliver.Error{Class: deliver.Gone, Err: errors.New("an email cannot be edited")}
}

// Reports returns the Report function for the mailbox of that name.
func (c *Adapter) Reports(name string) func(error) {
	return func(err error) {
		in := c.inbox()
		switch {
		case in == nil:
		case err == nil:
			in.Clear("from " + name)
		default:
			in.Warn("from "+name, in.Channel().Name+": cannot receive replies from "+name+": "+err.Error(), hints.Of(err))
		}
	}
}

// inbox is the inbox of the current run, nil before the first.
func (c *Adapter) inbox() *deliver.Inbox {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in
}

// NewID implements deliver.Composer.
func (c *Adapter) NewID(requestID string) deliver.ID {
	return deliver.ID(newMessageID(requestID, NewToken()[:13], c.Addressing.Domain))
}

// NewSecret implements deliver.Composer.
func (c *Adapter) NewSecret() (secret, digest string) {
	token := NewToken()
	return token, tokenDigest(token)
}

// Title implements deliver.Composer.
func (c *Adapter) Title(p *approval.Pending, style chat.Style) string { return headline(style, p) }

// Card implements deliver.Composer.
func (c *Adapter) Card(p *approval.Pending, style chat.Style, token string) (deliver.Message, error) {
	m := &cardMail{
		pending: p, style: style, texts: textsFor(style.Language), ceiling: c.ceiling(p.SourceGroup),
		to: c.Addressing.Address(token), tag: SubjectTag(p.RequestID, ""),
	}
	if m.to == "" {
		m.to, m.tag, m.inText = c.Addressing.own(), SubjectTag(p.RequestID, token), true
	}
	return m.render()
}

// Outcome implements deliver.Composer.
func (c *Adapter) Outcome(rec *approval.Record, style chat.Style) []string {
	return []string{"🔐 " + style.Outcome(rec)}
}

func (c *Adapter) ceiling(ws string) approval.Reversibility {
	if c.Ceiling == nil {
		return ""
	}
	return c.Ceiling(ws)
}

// outgoing is the email of a message. A card begins a thread.
func (c *Adapter) outgoing(to deliver.Address, m deliver.Message) *outgoing {
	d := &outgoing{
		From: c.Addressing.own(), To: string(to.Chat),
		MessageID: string(m.ID), InReplyTo: string(m.ReplyTo), Date: time.Now(), Auto: "auto-generated", Text: strings.Join(m.Lines, "\n") + "\n", HTML: m.Page,
	}
	inSubject := m.Secret
	if m.Secret != "" {
		if d.ReplyTo = c.Addressing.Address(m.Secret); d.ReplyTo != "" {
			inSubject = ""
		}
	}
	d.Subject = strings.TrimSpace(m.Title + " " + SubjectTag(m.Key.ID, inSubject))
	switch {
	case m.Key.ID == "": // about no request
		d.Subject = m.Title
	case m.ID == "": // an outcome; the same ID for every attempt: a mail program shows one copy
		d.MessageID = strings.Replace(d.InReplyTo, "@", "-end@", 1)
		d.References = []string{d.InReplyTo}
	case m.Page == "": // an answer
		d.Auto, d.References = "auto-replied", m.References
		if inSubject != "" {
			d.Text += "\n" + SubjectTag(m.Key.ID, inSubject) + "\n"
		}
	}
	return d
}

// own is the address without a token.
func (a Addressing) own() string { return a.Local + "@" + a.Domain }

// canonical lowers the case of an address's domain. The part before the @ may be
// case-sensitive.
func canonical(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 1 {
		return ""
	}
	return address[:at] + chat.LowerASCII(address[at:])
}
