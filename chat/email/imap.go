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

// IMAP is a mailbox on a server, watched with IDLE. It is a Box.
//
// Every mail that comes in is taken, whoever reads, moves or marks mails besides;
// what came more than an hour before the first start is left alone, however late
// the first connection is. Nothing is ever deleted, and
// without MarkSeen the mailbox is not even opened for writing.
type IMAP struct {
	Address  string                 // "host:port"
	Security string                 // StartTLS, TLS or NoTLS; "": TLS
	Username string                 //
	Password func() (string, error) // asked at each login
	CAFile   string                 // PEM: trust these authorities instead of the system's; "": the system's
	Mailbox  string                 // "": INBOX
	State    State                  // where we are; needed

	TakeOld  bool // at the first start, mails that are there already are taken, too
	MarkSeen bool // what was taken gets the flag \Seen

	// Report is told nil after each look at the mailbox that found all in order,
	// and otherwise what is wrong; may be nil. The connection's troubles are
	// *MailboxError.
	Report func(error)

	Timeout time.Duration // for each answer; 0: 30 s
	// Idle is how long we wait at most for the server to tell us of mails before
	// we look ourselves; 0: 1 minute. Some servers forget to tell, and some routers
	// forget connections that are silent for five.
	Idle time.Duration
	Now  func() time.Time // nil: time.Now

	pause time.Duration // the shortest before trying again; 0: 1 s
}

const (
	longestPause = time.Minute      // between two tries to connect
	refusedPause = 5 * time.Minute  // … where they are refused: providers lock accounts
	mailPause    = 10 * time.Minute // between two tries with one mail
	noIdle       = 15 * time.Second // between two looks where there is no IDLE
)

var _ Mailbox = (*IMAP)(nil)

// Check logs in, opens the mailbox and leaves. Its error is a *MailboxError.
func (b *IMAP) Check(ctx context.Context) error {
	c, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	_, err = c.open(b.mailbox(), true)
	return err
}

// Run is Box's. It returns early only when the state cannot be read, or the
// settings exclude a connection.
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

// longest is the longest pause after such an error.
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

// imapReader is one Run.
type imapReader struct {
	*IMAP
	take    func(context.Context, Incoming) error
	state   imapState
	dirty   bool             // state is newer than what was saved
	unsaved error            // … because of this
	retries map[uint32]retry // of state.Open
	waiting waiting          // the open mails, as the last look left them
	healthy bool             // this session has looked at everything once
}

// session is one connection. It returns only with an error.
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

// look takes what is due: the new mails first, or one that breaks the connection
// each time would keep them out.
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

// lookForNew stops where too many mails are open: then the fault is not in them,
// and more of them can wait.
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

// one takes a mail. It returns an error when the connection or ctx is done for;
// what is wrong with the mail is noted.
func (r *imapReader) one(ctx context.Context, c *imapConn, uid uint32) error {
	in, facts, err := c.fetch(uid)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		// Maybe it is this mail that breaks the connection, so it waits in any case.
		r.postpone(uid, facts)
		if !refusedByServer(err) {
			return err
		}
		r.waiting.add(err)
		return nil
	case in == nil:
		r.settle(uid, imapMail{}) // somebody deleted it
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

// whose tells mailboxes apart: many servers give every account's first one the same
// UIDVALIDITY.
func (b *IMAP) whose() string {
	host, _, _ := net.SplitHostPort(b.Address) // whatever is wrong with it, connect says
	sum := sha256.Sum256([]byte(host + "\n" + b.Username + "\n" + b.mailbox()))
	return hex.EncodeToString(sum[:4])
}

// nextLook is how long the server may be silent.
func (r *imapReader) nextLook() time.Duration {
	wait := r.idle()
	for _, m := range r.state.Open {
		wait = min(wait, max(0, r.retries[m.UID].at.Sub(r.now())))
	}
	return wait
}
