package email

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// Sender hands a mail in where it is sent on. *SMTP is one; what it knows of a
// failure it says with a *SendError.
type Sender interface {
	Send(ctx context.Context, from string, to []string, msg []byte) error
}

// SenderVerifier says who wrote a mail, and how that was proved. *Authenticator is one;
// its errors are *AuthError.
type SenderVerifier interface {
	Sender(ctx context.Context, raw []byte) (address, how string, err error)
}

// Channel asks by mail, and has what is answered decided. Fill the fields in,
// then Run it. Without a SenderVerifier nobody decides anything.
type Channel struct {
	Addressing Addressing // where replies go; its Local and Domain are our address
	FollowUp   bool       // people are told how it ended
	Sender     Sender
	Boxes      []Mailbox // the ways in; TakeForwarded is another
	Prover     SenderVerifier

	Viewer      chat.Viewer // what waits and is to be asked here
	Records     chat.Records
	Interceptor *chat.Interceptor
	Notebook    chat.SentStore
	Taken       chat.StateStore // the mails that were taken, and the answers to them
	Tests       chat.StateStore // see TestMail; may be nil

	Workspaces func() []string
	People     func(workspace string) []approval.Approver
	Ceiling    func(workspace string) approval.Reversibility // "": mail approves everything; nil: of all workspaces
	Style      func(language string) chat.Style
	Foot       func() string // what a card ends with at the moment it is sent; may be nil

	Changes <-chan approval.Key     // hints that something changed; may be nil
	Problem func(what, hint string) // what people should see to; "" ends it. May be nil
	// Alert has people told by another channel; may be nil.
	Alert func(workspace, text string)
	Log   zerolog.Logger

	Every time.Duration    // how often to look without a hint; 0: 5 s
	Now   func() time.Time // nil: time.Now

	pause    time.Duration // the shortest before another attempt to send; 0: 5 s
	state    state
	weighing sync.Mutex // one mail after the other
	troubles troubles
}

// state is what a channel knows while it runs. mu is never held while somebody
// else is waited for.
type state struct {
	once     sync.Once
	kick     chan struct{} // there is something to send
	mu       sync.Mutex
	pages    pages
	heard    approval.Key // a reply is being acted on: who is told how it ended stands when it is noted
	taken    ledger
	hold     retry // until then nothing is sent: the server is not there, or will not have us
	vanished map[approval.Key]time.Time
	doubted  map[string]time.Time // mails whose proof could not be looked up, by name, and since when
	pruned   time.Time
}

const (
	defaultEvery = 5 * time.Second
	keepPages    = 30 * 24 * time.Hour // how long a late reply is recognised
	pruneEvery   = time.Hour
	vanishAfter  = time.Minute // a request that waits no longer and has no record is none
)

// Run asks, sends and takes mails until ctx ends, or a way in does.
func (c *Channel) Run(ctx context.Context) error {
	c.init()
	if c.Problem != nil {
		c.Problem("", "") // of an earlier life
	}
	var ways sync.WaitGroup
	defer ways.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(c.Boxes))
	for _, b := range c.Boxes {
		ways.Go(func() { ended <- b.Run(ctx, c.receive) })
	}
	changes := c.Changes
	for {
		timer := time.NewTimer(c.look(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case err := <-ended:
			timer.Stop()
			if ctx.Err() != nil {
				return nil //nolint:nilerr // it ended because we do
			}
			if err == nil {
				err = errors.New("a way in for mails has ended")
			}
			return err
		case _, open := <-changes:
			if !open {
				changes = nil
			}
			drain(changes)
		case <-c.state.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (c *Channel) init() {
	c.state.once.Do(func() { c.state.kick = make(chan struct{}, 1) })
}

// wake has Run look for something to send.
func (c *Channel) wake() {
	select {
	case c.state.kick <- struct{}{}:
	default:
	}
}

// drain takes the hints that have piled up: one look serves them all.
func drain(changes <-chan approval.Key) {
	for {
		select {
		case _, open := <-changes:
			if !open {
				return
			}
		default:
			return
		}
	}
}

func (c *Channel) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

func (c *Channel) every() time.Duration {
	if c.Every > 0 {
		return c.Every
	}
	return defaultEvery
}

// look brings mails and notebook into line with what waits, and says when to
// look again.
func (c *Channel) look(ctx context.Context) time.Duration {
	all := c.Workspaces()
	var waiting []approval.Waiting
	var err error
	if len(all) > 0 {
		waiting, err = c.Viewer.Waiting(ctx, all)
	}
	if err == nil {
		err = c.compare(ctx, all, waiting)
	}
	if err == nil {
		c.send(ctx, waiting)
		err = c.prune(ctx)
	}
	if err != nil && ctx.Err() == nil {
		c.Log.Error().Err(err).Msg("email")
		c.trouble("look", "email does not get on: "+err.Error(), "is the disk full?")
	} else {
		c.well("look")
	}
	return c.next()
}

// compare writes down who is to be asked, and who is to be told how it ended.
func (c *Channel) compare(ctx context.Context, all []string, waiting []approval.Waiting) error {
	var tell []func()
	defer func() {
		for _, t := range tell {
			t()
		}
	}()
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if err := c.loadAll(); err != nil {
		return err
	}
	now := map[approval.Key]bool{}
	for _, w := range waiting {
		now[w.Key()] = true
		tell = append(tell, c.failures(w)...)
		if c.now().Before(w.Pending.ExpiresAt) {
			if err := c.ask(w); err != nil {
				return err
			}
		}
	}
	for k, n := range c.state.pages.notes {
		if n.Closed.IsZero() && !now[k] && k != c.state.heard && slices.Contains(all, k.Workspace) {
			if err := c.settle(ctx, k, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// failures tell of whom w could not be asked by mail: once in each life.
func (c *Channel) failures(w approval.Waiting) (tell []func()) {
	n := c.state.pages.notes[w.Key()]
	if n == nil || n.SHA256 != w.SHA256 {
		return nil
	}
	for _, a := range n.Cards {
		if a.State == stateFailed && !a.told {
			tell = append(tell, c.cardFailed(w.Key(), a, errors.New(a.Error)))
		}
	}
	return tell
}

// ask notes everybody who is to be asked about w and is not yet.
func (c *Channel) ask(w approval.Waiting) error {
	k := w.Key()
	n := c.state.pages.notes[k]
	if n == nil || n.SHA256 != w.SHA256 || !n.Closed.IsZero() {
		n = &note{Version: 1, SHA256: w.SHA256}
	}
	before := len(n.Cards)
	for _, p := range c.People(k.Workspace) {
		to := canonical(p.Email)
		if to == "" || n.card(to) != nil || w.Pending.Principal != "" && w.Pending.Principal != p.Name {
			continue
		}
		n.Cards = append(n.Cards, &asking{
			To: to, Approver: p.Name, Language: p.Language, Subject: headline(c.Style(p.Language), w.Pending),
			MessageID: c.messageID(k.ID),
		})
	}
	if len(n.Cards) == before {
		return nil
	}
	return c.save(k, n)
}

func (c *Channel) messageID(id string) string {
	return MessageID(id, NewToken()[:13], c.Addressing.Domain)
}

// settle notes who is to be told how k ended, and closes the note when nobody
// is left.
func (c *Channel) settle(ctx context.Context, k approval.Key, n *note) error {
	rec, err := c.Records.Record(ctx, k)
	if err != nil {
		return err
	}
	if rec == nil {
		return c.missing(k)
	}
	delete(c.state.vanished, k)
	open, changed := false, false
	for _, a := range n.Cards {
		if a.open() {
			a.State, changed = stateFailed, true // too late to ask
			a.Error = "settled before it was sent"
		}
		if a.FollowUp == nil && c.tells(a, rec) {
			a.FollowUp, changed = &delivery{}, true
		}
		open = open || a.FollowUp != nil && a.FollowUp.open()
	}
	if !open {
		n.Closed, changed = c.now().UTC(), true
	}
	if !changed {
		return nil
	}
	return c.save(k, n)
}

// tells says whether a person is to hear how it ended. Who has decided by mail
// was told so in the answer, and hears more only if it went otherwise.
func (c *Channel) tells(a *asking, rec *approval.Record) bool {
	if !c.FollowUp || a.State != stateSent && !a.Maybe {
		return false
	}
	if !a.Used {
		return true
	}
	switch rec.Status {
	case approval.StatusFailed, approval.StatusInterrupted, approval.StatusExpired, approval.StatusCancelled:
		return true
	}
	return false
}

// missing is for a request that neither waits nor has a record: the gate took it
// back, or is about to write the record.
func (c *Channel) missing(k approval.Key) error {
	since, known := c.state.vanished[k]
	if !known {
		if c.state.vanished == nil {
			c.state.vanished = map[approval.Key]time.Time{}
		}
		c.state.vanished[k] = c.now()
		return nil
	}
	if c.now().Sub(since) < vanishAfter {
		return nil
	}
	return c.forget(k)
}

func (c *Channel) forget(k approval.Key) error {
	delete(c.state.vanished, k)
	delete(c.state.pages.notes, k)
	return c.Notebook.Remove(k)
}

// prune forgets what no late reply will come to, and what a record no longer
// tells of.
func (c *Channel) prune(ctx context.Context) error {
	now := c.now()
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if now.Sub(c.state.pruned) < pruneEvery {
		return nil
	}
	c.state.pruned = now
	for k, n := range c.state.pages.notes {
		if n.Closed.IsZero() {
			continue
		}
		rec, err := c.Records.Record(ctx, k)
		if err != nil {
			return err
		}
		if rec == nil || now.Sub(n.Closed) > keepPages {
			if err := c.forget(k); err != nil {
				return err
			}
		}
	}
	return c.pruneTaken(now)
}

// compareKeys orders keys by workspace, then by id.
func compareKeys(a, b approval.Key) int {
	return strings.Compare(a.String(), b.String())
}

// canonical lowers the domain of an address, which has no case; what stands
// before the @ is its own server's business.
func canonical(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 1 {
		return ""
	}
	return address[:at] + lowerASCII(address[at:])
}
