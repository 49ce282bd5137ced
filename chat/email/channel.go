package email

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

// mailSender submits an email to a mail server. *SMTP is one. It describes a failure
// with an *Error, or it counts as temporary.
type mailSender interface {
	Send(ctx context.Context, from string, to []string, msg []byte) error
}

// senderVerifier proves who wrote an email, and says how. *Authenticator is one. Its
// errors are *authentic.Error.
type senderVerifier interface {
	Sender(ctx context.Context, raw []byte) (address, how string, err error)
}

// viewer lists the pending requests of the given workspaces, oldest first.
type viewer interface {
	Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error)
}

// Channel asks approvers by email and applies their replies. Fill in the fields,
// then call Run. Without a senderVerifier no reply decides.
type Channel struct {
	Addressing Addressing // reply addresses; its Local and Domain are the channel's own address
	FollowUp   bool       // send the outcome to the approvers who were asked
	Sender     mailSender
	Mailboxes  []mailbox.Mailbox // where replies come in, besides TakeRaw and TakeForwarded
	Verifier   senderVerifier

	Viewer      viewer // the pending requests of this channel
	Records     chat.Records
	Interceptor *chat.Interceptor
	Sent        chat.SentStore
	Taken       chat.StateStore // the replies that had an effect, and our answers to them
	Tests       chat.StateStore // see TestMail; may be nil

	Workspaces func() []string
	People     func(workspace string) []approval.Approver
	Ceiling    func(workspace string) approval.Reversibility // ""; or nil for all workspaces: email may approve everything
	Style      func(language string) chat.Style
	Foot       func() string // the last line of a card, read when it is sent; may be nil

	Changes <-chan approval.Key     // hints that something changed; may be nil
	Approve string                  // the command that approves a request, without its id, for hints; "": none
	Problem func(what, hint string) // reports what the operator must fix; "" clears it. May be nil
	// Alert sends a text through the other channels; may be nil.
	Alert func(workspace, text string)
	Log   zerolog.Logger

	Every time.Duration    // poll interval without a hint; 0: 5 s
	Now   func() time.Time // nil: time.Now

	retryDelay time.Duration // first delay before a retry; 0: 5 s
	state      state
	replyMu    sync.Mutex // replies are handled one at a time
	problems   problems
}

// state is what a channel keeps while it runs. mu is never held during network I/O.
type state struct {
	once          sync.Once
	wakeup        chan struct{} // wakes Run
	mu            sync.Mutex
	sent          sentRecords
	replyKey      approval.Key // the reply in progress: no follow-up for this key until it is recorded
	handled       handledEmails
	queue         queue
	missingSince  map[approval.Key]time.Time
	unprovedSince map[string]time.Time // emails whose proof could not be looked up, by name, and since when
	lastPrune     time.Time
}

const (
	defaultEvery     = 5 * time.Second
	keepRecords      = 30 * 24 * time.Hour // how long a late reply is recognized
	pruneEvery       = time.Hour
	dropMissingAfter = time.Minute // a request that is neither pending nor recorded is dropped after this time
)

// Run sends cards and takes replies until ctx ends or a mailbox fails.
func (c *Channel) Run(ctx context.Context) error {
	c.init()
	if c.Problem != nil {
		c.Problem("", "") // clear what an earlier process reported
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(c.Mailboxes))
	for _, b := range c.Mailboxes {
		running.Go(func() { ended <- b.Run(ctx, c.receive) })
	}
	changes := c.Changes
	for {
		wait := c.runOnce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the mailbox ended because ctx did
			}
			if err == nil {
				err = errors.New("a mailbox stopped without an error")
			}
			return err
		case _, open := <-changes:
			if !open {
				changes = nil
			}
			chat.DrainHints(changes)
		case <-c.state.wakeup:
		case <-time.After(wait):
		}
	}
}

func (c *Channel) init() {
	c.state.once.Do(func() {
		c.state.wakeup = make(chan struct{}, 1)
		c.state.sent = sentRecords{map[approval.Key]*sentRecord{}, map[string]bool{}}
		c.state.missingSince, c.state.unprovedSince = map[approval.Key]time.Time{}, map[string]time.Time{}
		c.problems.report = func(what, hint string) {
			if what != "" {
				what = "email: " + what
			}
			if c.Problem != nil {
				c.Problem(what, hint)
			}
		}
		c.state.queue = queue{
			transmit: c.transmit, mu: &c.state.mu, now: c.now, problems: &c.problems, log: c.Log,
			firstDelay: cmp.Or(c.retryDelay, firstSendDelay),
		}
	})
}

// wake makes Run check for something to send.
func (c *Channel) wake() {
	select {
	case c.state.wakeup <- struct{}{}:
	default:
	}
}

func (c *Channel) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

// runOnce brings the sent records into line with the pending requests, sends what is
// due, and returns when to run again.
func (c *Channel) runOnce(ctx context.Context) time.Duration {
	all := c.Workspaces()
	var waiting []approval.StoredPending
	var err error
	if len(all) > 0 {
		waiting, err = c.Viewer.Waiting(ctx, all)
	}
	jobs := c.jobs(ctx, waiting)
	if err == nil {
		err = c.updateRecords(ctx, all, waiting)
	}
	if err == nil {
		c.state.queue.send(ctx, jobs)
		err = c.prune(ctx)
	}
	if err != nil && ctx.Err() == nil {
		c.Log.Error().Err(err).Msg("email update failed")
		c.problems.set("loop", "email update failed: "+err.Error(), "check free disk space")
	} else {
		c.problems.clear("loop")
	}
	return c.state.queue.untilNext(jobs, cmp.Or(c.Every, defaultEvery))
}

// updateRecords records whom to ask, and who gets the outcome.
func (c *Channel) updateRecords(ctx context.Context, all []string, waiting []approval.StoredPending) error {
	var reports []func()
	defer func() {
		for _, t := range reports {
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
		reports = append(reports, c.failureReports(w)...)
		if c.now().Before(w.Pending.ExpiresAt) {
			if err := c.addCards(w); err != nil {
				return err
			}
		}
	}
	for k, n := range c.state.sent.records {
		if n.Closed.IsZero() && !now[k] && k != c.state.replyKey && slices.Contains(all, k.Workspace) {
			if err := c.addFollowUps(ctx, k, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// failureReports reports the approvers who cannot be asked about w: once in each process.
func (c *Channel) failureReports(w approval.StoredPending) (reports []func()) {
	n := c.state.sent.records[w.Key()]
	if n == nil || n.SHA256 != w.SHA256 {
		return nil
	}
	for _, a := range n.Cards {
		if a.State == stateFailed && !a.failureReported {
			reports = append(reports, c.cardFailed(w.Key(), a, errors.New(a.Error)))
		}
	}
	return reports
}

// addCards records every approver who must be asked about w and is not yet.
func (c *Channel) addCards(w approval.StoredPending) error {
	k := w.Key()
	n := c.state.sent.records[k]
	if n == nil || n.SHA256 != w.SHA256 || !n.Closed.IsZero() {
		n = &sentRecord{Version: 1, SHA256: w.SHA256}
	}
	before := len(n.Cards)
	for _, p := range c.People(k.Workspace) {
		to := canonical(p.IDs[channelName])
		if to == "" || n.card(to) != nil || w.Pending.Principal != "" && w.Pending.Principal != p.Name {
			continue
		}
		n.Cards = append(n.Cards, &cardCopy{
			To: to, Language: p.Language, Subject: headline(c.Style(p.Language), w.Pending),
			MessageID: c.messageID(k.ID),
		})
	}
	if len(n.Cards) == before {
		return nil
	}
	return c.save(k, n)
}

func (c *Channel) messageID(id string) string {
	return newMessageID(id, NewToken()[:13], c.Addressing.Domain)
}

// addFollowUps records who gets the outcome of k, and closes the sent record when all
// outcomes are sent.
func (c *Channel) addFollowUps(ctx context.Context, k approval.Key, n *sentRecord) error {
	rec, err := c.Records.Record(ctx, k)
	if err != nil {
		return err
	}
	if rec == nil {
		return c.handleMissing(k)
	}
	delete(c.state.missingSince, k)
	open, changed := false, false
	for _, a := range n.Cards {
		if a.open() {
			a.State, changed = stateFailed, true // too late to send it
			a.Error = "settled before it was sent"
		}
		if a.FollowUp == nil && c.wantsFollowUp(a, rec) {
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

// wantsFollowUp says whether an approver gets the outcome. The answer has already told it to
// an approver who decided by email, who gets another email only after a failure.
func (c *Channel) wantsFollowUp(a *cardCopy, rec *approval.Record) bool {
	if !c.FollowUp || a.State != stateSent && !a.MaybeSent {
		return false
	}
	failures := []approval.Status{
		approval.StatusFailed, approval.StatusInterrupted, approval.StatusExpired, approval.StatusCancelled,
	}
	return !a.Used || slices.Contains(failures, rec.Status)
}

// handleMissing handles a request that is neither pending nor recorded: the gate withdrew
// it, or is about to write the record.
func (c *Channel) handleMissing(k approval.Key) error {
	since, known := c.state.missingSince[k]
	switch {
	case !known:
		c.state.missingSince[k] = c.now()
		return nil
	case c.now().Sub(since) < dropMissingAfter:
		return nil
	}
	return c.removeRecord(k)
}

func (c *Channel) removeRecord(k approval.Key) error {
	delete(c.state.missingSince, k)
	delete(c.state.sent.records, k)
	return c.Sent.Remove(k)
}

// prune removes the sent records that no late reply can need, and those whose
// request has no record any more.
func (c *Channel) prune(ctx context.Context) error {
	now := c.now()
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if now.Sub(c.state.lastPrune) < pruneEvery {
		return nil
	}
	c.state.lastPrune = now
	for k, n := range c.state.sent.records {
		if n.Closed.IsZero() {
			continue
		}
		rec, err := c.Records.Record(ctx, k)
		if err != nil {
			return err
		}
		if rec == nil || now.Sub(n.Closed) > keepRecords {
			if err := c.removeRecord(k); err != nil {
				return err
			}
		}
	}
	return c.pruneHandled(now)
}

// compareKeys orders keys by workspace, then by id.
func compareKeys(a, b approval.Key) int {
	return strings.Compare(a.String(), b.String())
}

// canonical lowers the case of an address's domain. The part before the @ may be
// case-sensitive.
func canonical(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 1 {
		return ""
	}
	return address[:at] + chat.LowerASCII(address[at:])
}
