package mailbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// SMTP submits emails to a mail server. Each Send opens a connection.
type SMTP struct {
	Address     string                 // "host:port"
	Security    string                 // StartTLS, TLS or NoTLS; "": TLS
	Username    string                 // "": no login
	Password    func() (string, error) // read at each login
	AccessToken *AccessToken           // in place of a password; may be nil
	CAFile      string                 // PEM: trust these authorities instead of the system's; "": the system's
	LocalName   string                 // our name in EHLO; "": localhost
	Timeout     time.Duration          // for each answer; 0: 30 s. After the last byte of an email it is five times that.
}

// Check connects and logs in. Its error is an *Error.
func (s *SMTP) Check(ctx context.Context) error {
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	c.quit()
	return nil
}

// Send submits msg, which begins with its header. An empty from is the null sender, to
// which no server replies. Either all recipients get the email or none does. Its error
// is an *Error.
func (s *SMTP) Send(ctx context.Context, from string, to []string, msg []byte) error {
	e, err := newEnvelope(from, to, msg)
	if err != nil {
		return &Error{Stage: "check the email", Err: err}
	}
	// Limits the total time, too: many answers may each stay below the timeout.
	ctx, cancel := context.WithTimeout(ctx, 15*cmp.Or(s.Timeout, smtpTimeout))
	defer cancel()
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	if err := c.send(e); err != nil {
		c.close()
		return err
	}
	c.quit()
	return nil
}

const smtpTimeout = 30 * time.Second

// smtpConn is a connection that has logged in.
type smtpConn struct {
	*smtp.Client
	*session
}

// open connects, secures the connection and logs in.
func (s *SMTP) open(ctx context.Context) (*smtpConn, error) {
	e := endpoint{s.Address, s.Security, s.CAFile, cmp.Or(s.Timeout, smtpTimeout)}
	open, f := e.dial(ctx)
	if f != nil {
		return nil, (&smtpConn{session: &session{ctx: ctx}}).failed("", f)
	}
	c := &smtpConn{session: open}
	if f := c.secure(e); f != nil {
		c.close()
		return nil, c.failed("", f)
	}
	if err := c.login(s); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// secure wraps the connection in a client, with STARTTLS if configured. The library
// has no timeout before that.
func (c *smtpConn) secure(e endpoint) *Error {
	if e.security != StartTLS {
		c.Client = smtp.NewClient(c.conn)
	} else {
		config, f := e.tls()
		if f != nil {
			return f
		}
		err := withTimeout(c.timeout, c.conn, func() (err error) {
			c.Client, err = smtp.NewClientStartTLS(c.conn, config)
			return err
		})
		if err != nil {
			return c.noStartTLS(err)
		}
	}
	c.CommandTimeout, c.SubmissionTimeout = c.timeout, 5*c.timeout
	return nil
}

func (c *smtpConn) noStartTLS(err error) *Error {
	f := &Error{Stage: "secure the connection", Temporary: true, Err: err}
	var reply *smtp.SMTPError
	switch {
	case errors.As(err, &reply):
		f.Temporary = reply.Temporary()
	case errors.Is(err, os.ErrDeadlineExceeded):
		f.Help = "if the port expects TLS from the first byte, set the security to tls"
	case strings.Contains(err.Error(), "doesn't support STARTTLS"):
		// The library has no error value for it. An attacker in between may have removed
		// the offer, so plain text is not an option.
		f.Temporary = false
		f.Help = "the server offers no STARTTLS on this port; check the port (mostly 587; with TLS from the first byte 465)"
	}
	return f
}

// login greets the server and authenticates.
func (c *smtpConn) login(s *SMTP) error {
	// After STARTTLS the TLS handshake happens here.
	if err := c.Hello(cmp.Or(s.LocalName, "localhost")); err != nil {
		if f := (endpoint{}).tlsFault(err); f.Help != "" {
			return c.failed("", f)
		}
		e := c.failed("greet", err)
		e.Account = !e.Temporary
		return e
	}
	if s.Username == "" {
		return nil
	}
	mechanism, err := c.mechanism(s)
	if err == nil {
		err = c.Auth(mechanism)
	}
	if err != nil {
		e := c.failed("log in", err)
		if e.Account = !e.Temporary; e.Account && e.Code != 0 {
			e.Help = "check the user name and the password; some providers require an app password"
			if s.AccessToken != nil {
				e.Help = s.AccessToken.Refused
			}
		}
		return e
	}
	return nil
}

// mechanism selects how to send the password or the access token.
func (c *smtpConn) mechanism(s *SMTP) (m sasl.Client, err error) {
	if s.AccessToken != nil {
		m, c.secrets, err = s.AccessToken.login(c.ctx, s.Username, s.Address, c.SupportsAuth)
		return m, err
	}
	if s.Password == nil {
		return nil, &Error{Stage: "log in", Err: errors.New("a user name is set, but no password")}
	}
	password, err := s.Password()
	if err != nil {
		return nil, &Error{Stage: "log in", Err: fmt.Errorf("read the password: %w", err)}
	}
	c.secrets = []string{password, encode([]byte(password)), encode([]byte("\x00" + s.Username + "\x00" + password))}
	switch {
	case c.SupportsAuth("PLAIN"):
		return sasl.NewPlainClient("", s.Username, password), nil
	case c.SupportsAuth("LOGIN"):
		return &loginClient{s.Username, password}, nil
	}
	return nil, &Error{
		Stage: "log in", Err: errors.New("the server accepts no password (neither AUTH PLAIN nor LOGIN)"),
		Help: "check that this is the submission port",
	}
}

// loginClient implements the LOGIN mechanism, which has no specification: prompts are
// recognized by their first word.
type loginClient struct{ username, password string }

func (*loginClient) Start() (string, []byte, error) { return "LOGIN", nil, nil }

func (l *loginClient) Next(challenge []byte) ([]byte, error) {
	question := strings.ToLower(string(challenge))
	switch {
	case strings.HasPrefix(question, "user"):
		return []byte(l.username), nil
	case strings.HasPrefix(question, "pass"):
		return []byte(l.password), nil
	}
	return nil, errors.New("LOGIN: the prompt asks for neither user name nor password")
}

// send submits one email.
func (c *smtpConn) send(e *envelope) error {
	if err := e.fits(c.Client); err != nil {
		return &Error{Stage: "send the email", Err: err}
	}
	if err := c.Mail(e.from, &smtp.MailOptions{UTF8: e.utf8, Size: int64(len(e.msg))}); err != nil {
		return c.failed("name the sender", err)
	}
	for _, to := range e.to {
		if err := c.Rcpt(to, nil); err != nil {
			return c.failed("name the recipient "+logText(to), err)
		}
	}
	data, err := c.Data()
	if err != nil {
		return c.failed("begin the email", err)
	}
	if err := withTimeout(c.SubmissionTimeout, c.conn, func() error {
		_, err := data.Write(e.msg)
		return err
	}); err != nil {
		return c.failed("send the email", err)
	}
	if err := data.Close(); err != nil {
		lost := c.failed("have the email accepted", err)
		lost.MaybeSent = lost.Code == 0
		return lost
	}
	return nil
}

// failed converts an error. A stage that is known already stays.
func (c *smtpConn) failed(stage string, err error) *Error {
	e := &Error{Stage: stage, Temporary: true}
	known := errors.As(err, &e)
	if known {
		err, e.Account = e.Err, !e.Temporary
	}
	var reply *smtp.SMTPError
	switch {
	case errors.As(err, &reply):
		if e.Code = reply.Code; !known {
			e.Temporary = reply.Code/100 != 5
		}
		err = c.reply(reply)
	case c.ctx.Err() != nil:
		e.Temporary, e.Account, err = true, false, context.Cause(c.ctx)
	case !known:
		err = errors.New(logText(err.Error(), c.secrets...))
	}
	e.Err = err
	return e
}

// reply formats a server's refusal for a log.
func (c *smtpConn) reply(r *smtp.SMTPError) error {
	code := strconv.Itoa(r.Code)
	if r.EnhancedCode[0] > 0 {
		code += fmt.Sprintf(" %d.%d.%d", r.EnhancedCode[0], r.EnhancedCode[1], r.EnhancedCode[2])
	}
	return fmt.Errorf("%s %s", code, logText(r.Message, c.secrets...))
}

// quit says goodbye. An error does not matter: the email is accepted already.
func (c *smtpConn) quit() {
	c.CommandTimeout = min(c.CommandTimeout, 2*time.Second)
	_ = c.Quit()
	c.close()
}

// envelope is an email in the form that SMTP needs.
type envelope struct {
	from     string
	to       []string
	msg      []byte
	utf8     bool // an address or the header is not ASCII
	eightBit bool // any part is not ASCII
}

func newEnvelope(from string, to []string, msg []byte) (*envelope, error) {
	if len(to) == 0 {
		return nil, errors.New("no recipient")
	}
	if from != "" {
		if err := checkAddress(from); err != nil {
			return nil, fmt.Errorf("sender: %w", err)
		}
	}
	for _, a := range to {
		if err := checkAddress(a); err != nil {
			return nil, fmt.Errorf("recipient: %w", err)
		}
	}
	msg, err := wireForm(msg)
	if err != nil {
		return nil, err
	}
	header, _, _ := bytes.Cut(msg, []byte("\r\n\r\n"))
	return &envelope{
		from: from, to: to, msg: msg,
		utf8:     !isASCII(header) || !isASCII([]byte(from+strings.Join(to, ""))),
		eightBit: !isASCII(msg),
	}, nil
}

// fits says whether the server can take the email unchanged.
func (e *envelope) fits(c *smtp.Client) error {
	if ok, _ := c.Extension("SMTPUTF8"); e.utf8 && !ok {
		return errors.New("an address or the header has non-ASCII letters, and the server has no SMTPUTF8")
	}
	if ok, _ := c.Extension("8BITMIME"); e.eightBit && !ok {
		return errors.New("the email has non-ASCII bytes, and the server has no 8BITMIME")
	}
	return nil
}

// wireForm ends every line with CRLF. It refuses a lone CR: some servers take it for
// a line end, and so may see the end of the email earlier than we do.
func wireForm(msg []byte) ([]byte, error) {
	msg = bytes.ReplaceAll(msg, []byte("\r\n"), []byte("\n"))
	if i := bytes.IndexAny(msg, "\r\x00"); i >= 0 {
		return nil, fmt.Errorf("lone CR or NUL at byte %d", i)
	}
	for line := range bytes.Lines(msg) {
		if len(bytes.TrimSuffix(line, []byte("\n"))) > 998 {
			return nil, errors.New("a line is longer than 998 bytes")
		}
	}
	return bytes.ReplaceAll(msg, []byte("\n"), []byte("\r\n")), nil
}

// checkAddress refuses an address that could end the SMTP command. It refuses quoted
// local parts, too: they are never needed.
func checkAddress(a string) error {
	at := strings.LastIndexByte(a, '@')
	bad := func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsGraphic(r) || strings.ContainsRune("<>()[]\\,;:\"\ufffd", r)
	}
	if at < 1 || at == len(a)-1 || len(a) > 254 || at > 64 || strings.ContainsRune(a[:at], '@') || slices.ContainsFunc([]rune(a), bad) {
		return fmt.Errorf("%s is not an address", logText(a))
	}
	return nil
}

func isASCII(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c >= 0x80 }) }
