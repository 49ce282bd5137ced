package mailbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/emersion/go-sasl"
)

// Only this file uses the IMAP library, which is a beta. Its commands have no timeout,
// so each is called through do, which has one. FETCH asks for nothing that the server
// must parse first, such as ENVELOPE: an email that the library cannot read in that
// form would end every connection.

// imapConn is a connection that has logged in.
type imapConn struct {
	*session
	client       *imapclient.Client
	countChanged chan struct{} // signals that the number of emails changed; capacity 1
	likely       func(header []byte) bool
}

// selected is a mailbox as the server describes it.
type selected struct {
	validity, next, count uint32 // next may be 0
}

// connect dials and logs in.
func (b *IMAP) connect(ctx context.Context) (*imapConn, error) {
	e := b.endpoint()
	s, f := e.dial(ctx)
	if f != nil {
		return nil, f
	}
	c := &imapConn{session: s, countChanged: make(chan struct{}, 1), likely: b.Likely}
	if err := c.greet(e); err != nil {
		c.close()
		return nil, err
	}
	if err := c.login(b); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// greet waits for the greeting and starts TLS if it begins after the greeting.
func (c *imapConn) greet(e endpoint) error {
	options := &imapclient.Options{UnilateralDataHandler: &imapclient.UnilateralDataHandler{Mailbox: c.changed}}
	if e.security != StartTLS {
		c.client = imapclient.New(c.conn, options)
		return c.doWithTimeout("greet", func() error { return c.client.WaitGreeting() })
	}
	config, f := e.tls()
	if f != nil {
		return f
	}
	options.TLSConfig = config
	err := withTimeout(c.timeout, c.conn, func() (err error) {
		// It refuses a server that needs no login any more.
		c.client, err = imapclient.NewStartTLS(c.conn, options)
		return err
	})
	if err == nil {
		return nil
	}
	failed := c.error("secure the connection", e.tlsFault(err))
	var reply *imap.Error
	if errors.As(err, &reply) {
		failed.Temporary = false
		failed.Help = "the server has no STARTTLS on this port; for TLS from the first byte (mostly port 993) set the security to tls"
	} else if failed.Help == "" {
		failed.Help = "if the port expects TLS from the first byte, set the security to tls"
	}
	return failed
}

func (c *imapConn) login(b *IMAP) error {
	if b.AccessToken != nil {
		return c.loginWithToken(b)
	}
	if b.Password == nil {
		return &Error{Stage: "log in", Err: errors.New("no password is set")}
	}
	password, err := b.Password()
	if err != nil {
		return &Error{Stage: "log in", Err: fmt.Errorf("read the password: %w", err)}
	}
	c.secrets = []string{password, encode([]byte("\x00" + b.Username + "\x00" + password))}
	err = c.doWithTimeout("log in", func() error {
		caps := c.client.Caps()
		switch {
		case caps.Has(imap.AuthCap("PLAIN")):
			return c.client.Authenticate(sasl.NewPlainClient("", b.Username, password))
		case caps.Has(imap.CapLoginDisabled):
			return &imap.Error{Type: imap.StatusResponseTypeNo, Text: "the server accepts no password"}
		}
		return c.client.Login(b.Username, password).Wait()
	})
	return refused(err, "check the user name and the password; some providers require an app password, or IMAP to be enabled")
}

func (c *imapConn) loginWithToken(b *IMAP) error {
	offers := func(mechanism string) bool { return c.client.Caps().Has(imap.AuthCap(mechanism)) }
	m, secrets, err := b.AccessToken.login(c.ctx, b.Username, b.Address, offers)
	if err != nil {
		return err
	}
	c.secrets = secrets
	return refused(c.doWithTimeout("log in", func() error { return c.client.Authenticate(m) }), b.AccessToken.Refused)
}

// refusedByServer says whether the server answered with an error on a working connection.
func refusedByServer(err error) bool {
	var reply *imap.Error
	return errors.As(err, &reply) && reply.Type != imap.StatusResponseTypeBye
}

// refused marks a NO as final, unless the server says that it is busy: a retry would
// get the same answer.
func refused(err error, hint string) error {
	var reply *imap.Error
	var e *Error
	if errors.As(err, &reply) && errors.As(err, &e) && reply.Type == imap.StatusResponseTypeNo {
		switch reply.Code {
		case imap.ResponseCodeUnavailable, imap.ResponseCodeInUse, imap.ResponseCodeLimit, imap.ResponseCodeServerBug:
		default:
			e.Temporary, e.Help = false, hint
		}
	}
	return err
}

// open selects the mailbox, read-only.
func (c *imapConn) open(mailbox string) (selected, error) {
	var data *imap.SelectData
	err := c.doWithTimeout("open the mailbox "+logText(mailbox), func() (err error) {
		data, err = c.client.Select(mailbox, &imap.SelectOptions{ReadOnly: true}).Wait()
		return err
	})
	if err != nil {
		return selected{}, refused(err, "check the name of the mailbox; new emails are in INBOX")
	}
	if data.UIDValidity == 0 {
		return selected{}, &Error{Stage: "open the mailbox", Err: errors.New("the server keeps no permanent numbers for emails (no UIDVALIDITY)")}
	}
	return selected{data.UIDValidity, uint32(data.UIDNext), data.NumMessages}, nil
}

// uidsFrom returns the UIDs of the emails from that one on, in order.
func (c *imapConn) uidsFrom(uid uint32) ([]uint32, error) {
	// The server also returns the last UID if it is below the range.
	uids, err := c.search(&imap.SearchCriteria{UID: []imap.UIDSet{{imap.UIDRange{Start: imap.UID(uid)}}}})
	return slices.DeleteFunc(uids, func(u uint32) bool { return u < uid }), err
}

func (c *imapConn) search(criteria *imap.SearchCriteria) ([]uint32, error) {
	// The search finds every change up to now.
	select {
	case <-c.countChanged:
	default:
	}
	var data *imap.SearchData
	err := c.doWithTimeout("search", func() (err error) {
		data, err = c.client.UIDSearch(criteria, nil).Wait()
		return err
	})
	if err != nil {
		return nil, err
	}
	var uids []uint32
	for _, u := range data.AllUIDs() {
		uids = append(uids, uint32(u))
	}
	slices.Sort(uids)
	return slices.Compact(uids), nil
}

// arrivedSince describes the emails that arrived at that time or later, and maybe some older
// ones: the server compares days in its own time zone.
func (c *imapConn) arrivedSince(t time.Time) ([]imapMail, error) {
	criteria := &imap.SearchCriteria{}
	if day := t.UTC().AddDate(0, 0, -2); day.Year() >= 1970 {
		criteria.Since = day
	}
	uids, err := c.search(criteria)
	if err != nil {
		return nil, err
	}
	return c.describeAll(uids)
}

// describeAll describes any number of emails.
func (c *imapConn) describeAll(uids []uint32) (mails []imapMail, _ error) {
	for chunk := range slices.Chunk(uids, 500) {
		var set imap.UIDSet
		for _, uid := range chunk {
			set.AddNum(imap.UID(uid))
		}
		found, err := c.describe(set)
		if err != nil {
			return nil, err
		}
		mails = append(mails, found...)
	}
	return mails, nil
}

// newest describes the last maxSeen of count emails.
func (c *imapConn) newest(count uint32) ([]imapMail, error) {
	if count == 0 {
		return nil, nil
	}
	return c.describe(imap.SeqSet{imap.SeqRange{Start: max(count, maxSeen) - maxSeen + 1, Stop: count}})
}

// knownFields requests what emailDigest and Likely need.
var knownFields = &imap.FetchItemBodySection{
	Specifier: imap.PartSpecifierHeader, Peek: true,
	HeaderFields: []string{"Message-ID", "In-Reply-To", "References", "Subject", "To", "Cc"},
}

func (c *imapConn) describe(set imap.NumSet) ([]imapMail, error) {
	var mails []imapMail
	err := c.fetchAll(set, &imap.FetchOptions{UID: true, InternalDate: true, RFC822Size: true, BodySection: []*imap.FetchItemBodySection{knownFields}}, maxHeader,
		func(m fetched) {
			if m.uid != 0 {
				known := m.facts(m.body)
				known.Likely = c.likely(m.body)
				mails = append(mails, known)
			}
		})
	slices.SortFunc(mails, func(a, b imapMail) int { return int(a.UID) - int(b.UID) })
	return mails, err
}

// fetch reads an email, or its header if it is too large. It asks for the size first
// but does not rely on it: it never requests more than the limit. in is nil if the
// email no longer exists. facts contains what is known, also after an error.
func (c *imapConn) fetch(uid uint32) (in *Incoming, facts imapMail, err error) {
	set := imap.UIDSetNum(imap.UID(uid))
	var about *fetched
	err = c.fetchAll(set, &imap.FetchOptions{UID: true, InternalDate: true, RFC822Size: true}, 0, func(m fetched) {
		if m.uid == uid {
			about = &m
		}
	})
	if err != nil || about == nil {
		return nil, facts, err
	}
	part := &imap.FetchItemBodySection{Peek: true, Partial: &imap.SectionPartial{Size: MaxMail + 1}}
	if about.size > MaxMail {
		part = &imap.FetchItemBodySection{Peek: true, Specifier: imap.PartSpecifierHeader, Partial: &imap.SectionPartial{Size: maxHeader}}
	}
	found := false
	err = c.fetchAll(set, &imap.FetchOptions{UID: true, BodySection: []*imap.FetchItemBodySection{part}}, MaxMail+1, func(m fetched) {
		if m.uid == uid && m.hasBody {
			about.body, found = m.body, true
		}
	})
	if err != nil || !found {
		return nil, facts, err
	}
	in = &Incoming{Raw: about.body}
	if about.size > MaxMail || len(about.body) > MaxMail {
		in.TooLarge, in.Raw = true, headerOf(about.body)
	}
	return in, about.facts(headerOf(about.body)), nil
}

// fetched is the FETCH result of one email.
type fetched struct {
	uid     uint32
	date    time.Time
	size    int64
	body    []byte
	hasBody bool
}

// facts is what we remember of it.
func (m *fetched) facts(header []byte) imapMail {
	date := int64(0)
	if !m.date.IsZero() {
		date = m.date.Unix()
	}
	return imapMail{UID: m.uid, Date: date, Digest: emailDigest(header, m.date, m.size)}
}

// fetchAll runs a FETCH and passes each result on. No literal may have more than limit
// bytes.
func (c *imapConn) fetchAll(set imap.NumSet, options *imap.FetchOptions, limit int64, each func(fetched)) error {
	return c.doWithTimeout("fetch", func() error {
		cmd := c.client.Fetch(set, options)
		for {
			msg := cmd.Next()
			if msg == nil {
				return cmd.Close()
			}
			m, err := c.collect(msg, limit)
			if err != nil {
				// Not cmd.Close: it would go on reading in parallel with the library's
				// own reader.
				return err
			}
			each(m)
		}
	})
}

// collect reads the result of one email. After an error the connection is closed.
func (c *imapConn) collect(msg *imapclient.FetchMessageData, limit int64) (m fetched, err error) {
	for item := msg.Next(); item != nil; item = msg.Next() {
		switch item := item.(type) {
		case imapclient.FetchItemDataUID:
			m.uid = uint32(item.UID)
		case imapclient.FetchItemDataInternalDate:
			m.date = item.Time
		case imapclient.FetchItemDataRFC822Size:
			m.size = item.Size
		case imapclient.FetchItemDataBodySection:
			m.hasBody = true
			if m.body, err = c.literal(item.Literal, limit); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

// literal reads a text. The library's reader waits until it is read completely, or
// fails.
func (c *imapConn) literal(r imap.LiteralReader, limit int64) ([]byte, error) {
	if r == nil {
		return nil, nil
	}
	if r.Size() > limit {
		c.conn.Close()
		_, _ = io.Copy(io.Discard, r) // drain what is buffered
		return nil, fmt.Errorf("the server sends %d bytes, requested were at most %d", r.Size(), limit)
	}
	text, err := io.ReadAll(r)
	if err == nil && int64(len(text)) < r.Size() {
		err = io.ErrUnexpectedEOF // the library treats a closed connection as the end of the text
	}
	if err != nil {
		c.conn.Close()
	}
	return text, err
}

// wait returns nil when it is time for a scan: emails arrived, or d is over. Without
// IDLE on the server, d is at most pollInterval.
func (c *imapConn) wait(ctx context.Context, d time.Duration) error {
	var idle *imapclient.IdleCommand
	if c.client.Caps().Has(imap.CapIdle) {
		if err := c.doWithTimeout("wait for emails", func() (err error) {
			idle, err = c.client.Idle()
			return err
		}); err != nil {
			return err
		}
	} else {
		d = min(d, pollInterval)
	}
	select {
	case <-c.countChanged:
	case <-time.After(d):
	case <-c.client.Closed():
	case <-ctx.Done():
	}
	if idle == nil {
		return c.noop()
	}
	return c.doWithTimeout("wait for emails", func() error {
		if err := idle.Close(); err != nil {
			return err
		}
		return idle.Wait()
	})
}

// noop lets the server look for new emails: some do not while they search.
func (c *imapConn) noop() error {
	return c.doWithTimeout("check the mailbox", func() error { return c.client.Noop().Wait() })
}

func (c *imapConn) changed(data *imapclient.UnilateralDataMailbox) {
	if data.NumMessages == nil {
		return
	}
	select {
	case c.countChanged <- struct{}{}:
	default:
	}
}

// doWithTimeout runs one exchange with a timeout. Its error names the stage.
func (c *imapConn) doWithTimeout(stage string, exchange func() error) error {
	if err := withTimeout(c.timeout, c.conn, exchange); err != nil {
		return c.error(stage, err)
	}
	return nil
}

// error is an Error with the server's text formatted for a log.
func (c *imapConn) error(stage string, err error) *Error {
	if c.ctx.Err() != nil {
		return &Error{Stage: stage, Temporary: true, Err: context.Cause(c.ctx)}
	}
	e := Error{Stage: stage, Temporary: true, Err: err}
	if known := (*Error)(nil); errors.As(err, &known) {
		e = *known
	}
	var reply *imap.Error
	if errors.As(err, &reply) {
		e.Temporary = reply.Type != imap.StatusResponseTypeBad
	}
	e.Err = &rewordedError{logText(e.Err.Error(), c.secrets...), err}
	return &e
}

// rewordedError is an error with another text.
type rewordedError struct {
	text string
	err  error
}

func (e *rewordedError) Error() string { return e.text }

func (e *rewordedError) Unwrap() error { return e.err }
