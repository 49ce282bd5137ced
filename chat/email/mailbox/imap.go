package mailbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// IMAP is a Mailbox on a server, watched with IDLE.
//
// Every new email is taken, also one that another program reads, moves or marks.
// Emails that arrived more than an hour before the first start are skipped, however
// late the first connection is. Nothing is deleted, and the mailbox is opened read-only.
type IMAP struct {
	Address     string // "host:port"
	Security    string // StartTLS, TLS or NoTLS; "": TLS
	Username    string
	Password    func() (string, error) // read at each login
	AccessToken *AccessToken           // in place of a password; may be nil
	CAFile      string                 // PEM: trust these authorities instead of the system's; "": the system's
	Mailbox     string                 // "": INBOX
	State       State                  // the position in the mailbox; required

	// Likely says whether the header of an email looks like an answer. If many emails are new,
	// these come first. nil: none.
	Likely func(header []byte) bool

	// Report gets nil after each scan without an error, else the error; may be nil.
	// Connection errors are *Error.
	Report func(error)

	Timeout time.Duration // for each answer; 0: 30 s
	// Idle is how long to wait for a notification before the next scan; 0: 1 minute.
	// Some servers forget to notify, and some routers drop connections that are silent
	// for five minutes.
	Idle time.Duration
	Now  func() time.Time // nil: time.Now

	retryDelay time.Duration // first delay before a retry; 0: 1 s
}

const (
	maxReconnectDelay = time.Minute      // between two attempts to connect
	refusedDelay      = 5 * time.Minute  // the same after a refusal: providers lock accounts
	maxEmailDelay     = 10 * time.Minute // between two attempts with one email
	pollInterval      = 15 * time.Second // between two scans if the server has no IDLE
)

var _ Mailbox = (*IMAP)(nil)

// Check logs in and opens the mailbox. Its error is an *Error.
func (b *IMAP) Check(ctx context.Context) error {
	b = b.withDefaults()
	c, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	_, err = c.open(b.Mailbox)
	return err
}

// Run implements Mailbox. It returns early only if the state is unreadable or the
// settings make a connection impossible.
func (b *IMAP) Run(ctx context.Context, take func(context.Context, Incoming) error) error {
	b = b.withDefaults()
	if f := b.endpoint().check(); f != nil {
		return f
	}
	r := &imapReader{IMAP: b, position: position[imapState]{store: b.State, what: "mailbox"}, take: take, retries: map[uint32]Retry{}}
	if err := r.load(); err != nil {
		return err
	}
	defer r.flush()
	var failures Retry
	for ctx.Err() == nil {
		r.healthy = false
		err := r.session(ctx)
		if ctx.Err() != nil {
			break
		}
		b.Report(err)
		if r.healthy {
			failures = Retry{}
		}
		failures = failures.Next(b.Now(), b.retryDelay, b.maxDelay(err))
		select {
		case <-ctx.Done():
		case <-time.After(failures.At.Sub(b.Now())):
		}
	}
	return context.Cause(ctx)
}

// maxDelay is the maximum delay after such an error.
func (b *IMAP) maxDelay(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) && !e.Temporary {
		return refusedDelay
	}
	return maxReconnectDelay
}

func (b *IMAP) endpoint() endpoint {
	return endpoint{b.Address, b.Security, b.CAFile, b.Timeout}
}

// withDefaults is a copy in which every field is set.
func (b *IMAP) withDefaults() *IMAP {
	c := *b
	c.Mailbox, c.Timeout, c.Idle = cmp.Or(b.Mailbox, "INBOX"), cmp.Or(b.Timeout, 30*time.Second), cmp.Or(b.Idle, time.Minute)
	if c.Likely == nil {
		c.Likely = func([]byte) bool { return false }
	}
	c.retryDelay, c.Now, c.Report = cmp.Or(b.retryDelay, time.Second), nowFunc(b.Now), reporter(b.Report)
	return &c
}

// imapReader is the state of one Run.
type imapReader struct {
	*IMAP
	take func(context.Context, Incoming) error
	position[imapState]
	retries map[uint32]Retry // of state.Open
	failed  failedEmails     // the open emails after the last scan
	single  bool             // a request for many headers has failed
	healthy bool             // this session has finished one scan
}

// session handles one connection. It always returns an error.
func (r *imapReader) session(ctx context.Context) error {
	c, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	selected, err := c.open(r.Mailbox)
	if err != nil {
		return err
	}
	if err := r.syncState(c, selected); err != nil {
		return err
	}
	for {
		if err := r.takeDue(ctx, c); err != nil {
			return err
		}
		r.healthy = true
		r.flush()
		r.Report(errors.Join(r.failed.summary(), r.unsaved))
		if err := c.wait(ctx, r.untilNextScan()); err != nil {
			return err
		}
	}
}

// takeDue takes what is due. New emails come first: otherwise one email that breaks the
// connection each time would block them.
func (r *imapReader) takeDue(ctx context.Context, c *imapConn) error {
	r.save()
	r.failed = failedEmails{}
	before := slices.Clone(r.state.Open)
	slices.SortStableFunc(before, func(a, b imapMail) int { return b.likely() - a.likely() })
	if err := r.takeNew(ctx, c); err != nil {
		return err
	}
	for i, m := range before {
		if i%lookInterval == lookInterval-1 {
			if err := errors.Join(c.noop(), r.takeNew(ctx, c)); err != nil {
				return err
			}
		}
		retry, failed := r.retries[m.UID]
		switch {
		case retry.At.After(r.Now()):
			r.failed.add(nil)
			continue
		case !failed && len(r.retries) >= maxOpen:
			continue
		}
		if err := r.takeOne(ctx, c, m.UID); err != nil {
			return err
		}
	}
	return nil
}

// takeNew takes new emails, but stops while too many have failed: then the failure is
// not in the emails. Of many new ones it takes the likely answers, and leaves the others open.
func (r *imapReader) takeNew(ctx context.Context, c *imapConn) error {
	uids, err := c.uidsFrom(r.state.Next)
	if err != nil {
		return err
	}
	if len(uids) > manyNew && !r.single {
		if uids, err = r.likelyAnswers(c, uids); err != nil {
			return err
		}
	}
	for _, uid := range uids {
		if len(r.retries) >= maxOpen {
			return nil
		}
		if err := r.takeOne(ctx, c, uid); err != nil {
			return err
		}
	}
	return nil
}

// likelyAnswers returns the new emails that look like answers. The others are open then.
func (r *imapReader) likelyAnswers(c *imapConn, uids []uint32) (likely []uint32, err error) {
	mails, err := c.describeAll(uids)
	if err != nil {
		r.single = true // one of them may be what breaks the connection
		return nil, err
	}
	for _, m := range mails {
		if m.Likely {
			likely = append(likely, m.UID)
		}
	}
	r.state.Open = append(r.state.Open, mails...)
	r.advance(uids[len(uids)-1])
	r.save()
	return likely, nil
}

// takeOne takes an email. It returns an error only if the connection or ctx has ended. A
// failure of the email itself is recorded.
func (r *imapReader) takeOne(ctx context.Context, c *imapConn, uid uint32) error {
	in, facts, err := c.fetch(uid)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		// This email may be what breaks the connection, so it is postponed in any case.
		r.postpone(uid, facts)
		if !refusedByServer(err) {
			return err
		}
		r.failed.add(err)
		return nil
	case in == nil:
		r.markDone(uid, imapMail{}) // deleted meanwhile
		return nil
	}
	in.Name = fmt.Sprintf("imap %d/%d of %s", r.state.UIDValidity, uid, r.accountID())
	if err := callTake(ctx, r.take, *in); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.failed.add(err)
		r.postpone(uid, facts)
		return nil
	}
	r.markDone(uid, facts)
	return nil
}

// accountID identifies the account: many servers give every account's INBOX the same
// UIDVALIDITY.
func (b *IMAP) accountID() string {
	host, _, _ := net.SplitHostPort(b.Address) // endpoint.check reports a bad address
	sum := sha256.Sum256([]byte(host + "\n" + b.Username + "\n" + b.Mailbox))
	return hex.EncodeToString(sum[:4])
}

// untilNextScan is the time until the next scan.
func (r *imapReader) untilNextScan() time.Duration {
	wait := r.Idle
	for _, m := range r.state.Open {
		if retry, failed := r.retries[m.UID]; failed || len(r.retries) < maxOpen {
			wait = min(wait, max(0, retry.At.Sub(r.Now())))
		}
	}
	return wait
}
