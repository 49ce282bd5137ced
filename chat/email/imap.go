package email

import (
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
// late the first connection is. Nothing is deleted. Without MarkSeen the mailbox is
// opened read-only.
type IMAP struct {
	Address  string // "host:port"
	Security string // StartTLS, TLS or NoTLS; "": TLS
	Username string
	Password func() (string, error) // read at each login
	CAFile   string                 // PEM: trust these authorities instead of the system's; "": the system's
	Mailbox  string                 // "": INBOX
	State    State                  // the position in the mailbox; required

	TakeOld  bool // at the first start, take existing emails, too
	MarkSeen bool // set the flag \Seen on every email that was taken

	// Report gets nil after each scan without an error, else the error; may be nil.
	// Connection errors are *MailboxError.
	Report func(error)

	Timeout time.Duration // for each answer; 0: 30 s
	// Idle is how long to wait for a notification before the next scan; 0: 1 minute.
	// Some servers forget to notify, and some routers drop connections that are silent
	// for five minutes.
	Idle time.Duration
	Now  func() time.Time // nil: time.Now

	pause time.Duration // first delay before a retry; 0: 1 s
}

const (
	longestPause = time.Minute      // between two attempts to connect
	refusedPause = 5 * time.Minute  // the same after a refusal: providers lock accounts
	mailPause    = 10 * time.Minute // between two attempts with one email
	noIdle       = 15 * time.Second // between two scans if the server has no IDLE
)

var _ Mailbox = (*IMAP)(nil)

// Check logs in and opens the mailbox. Its error is a *MailboxError.
func (b *IMAP) Check(ctx context.Context) error {
	c, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	_, err = c.open(b.mailbox(), true)
	return err
}

// Run implements Mailbox. It returns early only if the state is unreadable or the
// settings make a connection impossible.
func (b *IMAP) Run(ctx context.Context, take func(context.Context, Incoming) error) error {
	if f := b.endpoint().check(); f != nil {
		return b.error(f.stage, f)
	}
	r := &imapReader{IMAP: b, take: take, retries: map[uint32]retry{}}
	if err := r.load(); err != nil {
		return err
	}
	var failures retry
	for ctx.Err() == nil {
		r.healthy = false
		err := r.session(ctx)
		if ctx.Err() != nil {
			break
		}
		b.report(err)
		if r.healthy {
			failures = retry{}
		}
		failures = failures.again(b.now(), b.shortest(), b.longest(err))
		sleep(ctx, failures.at.Sub(b.now()))
	}
	return context.Cause(ctx)
}

// longest is the maximum delay after such an error.
func (b *IMAP) longest(err error) time.Duration {
	var e *MailboxError
	if errors.As(err, &e) && !e.Temporary {
		return refusedPause
	}
	return longestPause
}

func (b *IMAP) endpoint() endpoint {
	return endpoint{b.Address, b.Security, b.CAFile, b.timeout()}
}

func (b *IMAP) mailbox() string {
	if b.Mailbox == "" {
		return "INBOX"
	}
	return b.Mailbox
}

func (b *IMAP) timeout() time.Duration {
	if b.Timeout > 0 {
		return b.Timeout
	}
	return 30 * time.Second
}

func (b *IMAP) idle() time.Duration {
	if b.Idle > 0 {
		return b.Idle
	}
	return time.Minute
}

func (b *IMAP) shortest() time.Duration {
	if b.pause > 0 {
		return b.pause
	}
	return time.Second
}

func (b *IMAP) now() time.Time {
	if b.Now != nil {
		return b.Now()
	}
	return time.Now()
}

func (b *IMAP) report(err error) {
	if b.Report != nil {
		b.Report(err)
	}
}

// imapReader is the state of one Run.
type imapReader struct {
	*IMAP
	take    func(context.Context, Incoming) error
	state   imapState
	dirty   bool             // state has changes that are not saved
	unsaved error            // why the last save failed
	retries map[uint32]retry // of state.Open
	waiting waiting          // the open emails after the last scan
	healthy bool             // this session has finished one scan
}

// session handles one connection. It always returns an error.
func (r *imapReader) session(ctx context.Context) error {
	c, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	selected, err := c.open(r.mailbox(), !r.MarkSeen)
	if err != nil {
		return err
	}
	if err := r.arrive(c, selected); err != nil {
		return err
	}
	for {
		if err := r.look(ctx, c); err != nil {
			return err
		}
		r.healthy = true
		r.report(errors.Join(r.waiting.trouble(), r.unsaved))
		if err := c.wait(ctx, r.nextLook()); err != nil {
			return err
		}
	}
}

// look takes what is due. New emails come first: otherwise one email that breaks the
// connection each time would block them.
func (r *imapReader) look(ctx context.Context, c *imapConn) error {
	r.save()
	r.waiting = waiting{}
	before := slices.Clone(r.state.Open)
	if err := r.lookForNew(ctx, c); err != nil {
		return err
	}
	for _, m := range before {
		if r.retries[m.UID].at.After(r.now()) {
			r.waiting.add(nil)
			continue
		}
		if err := r.one(ctx, c, m.UID); err != nil {
			return err
		}
	}
	return nil
}

// lookForNew takes new emails, but stops while too many are open: then the failure is
// not in the emails.
func (r *imapReader) lookForNew(ctx context.Context, c *imapConn) error {
	uids, err := c.from(r.state.Next)
	if err != nil {
		return err
	}
	for _, uid := range uids {
		if len(r.state.Open) >= maxOpen {
			return nil
		}
		if err := r.one(ctx, c, uid); err != nil {
			return err
		}
	}
	return nil
}

// one takes an email. It returns an error only if the connection or ctx has ended. A
// failure of the email itself is recorded.
func (r *imapReader) one(ctx context.Context, c *imapConn, uid uint32) error {
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
		r.waiting.add(err)
		return nil
	case in == nil:
		r.settle(uid, imapMail{}) // deleted meanwhile
		return nil
	}
	in.Name = fmt.Sprintf("imap %d/%d of %s", r.state.UIDValidity, uid, r.whose())
	if err := hand(ctx, r.take, *in); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.waiting.add(err)
		r.postpone(uid, facts)
		return nil
	}
	r.settle(uid, facts)
	if r.MarkSeen {
		return c.markSeen(uid)
	}
	return nil
}

// whose identifies the account: many servers give every account's INBOX the same
// UIDVALIDITY.
func (b *IMAP) whose() string {
	host, _, _ := net.SplitHostPort(b.Address) // endpoint.check reports a bad address
	sum := sha256.Sum256([]byte(host + "\n" + b.Username + "\n" + b.mailbox()))
	return hex.EncodeToString(sum[:4])
}

// nextLook is the time until the next scan.
func (r *imapReader) nextLook() time.Duration {
	wait := r.idle()
	for _, m := range r.state.Open {
		wait = min(wait, max(0, r.retries[m.UID].at.Sub(r.now())))
	}
	return wait
}
