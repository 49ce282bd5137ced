package email

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
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
	Address   string                 // "host:port"
	Security  string                 // StartTLS, TLS or NoTLS; "": TLS
	Username  string                 // "": no login
	Password  func() (string, error) // read at each login
	CAFile    string                 // PEM: trust these authorities instead of the system's; "": the system's
	LocalName string                 // our name in EHLO; "": localhost
	Timeout   time.Duration          // for each answer; 0: 30 s. After the last byte of an email it is five times that.
}

// SendError says why an email was not sent, or may not have been.
type SendError struct {
	Stage string // what failed: "connect", "log in", "name the recipient" …
	// Temporary: a retry of the same email may succeed.
	Temporary bool
	// Account: the failure is not about this email. Every other one would fail, too,
	// until the operator fixes the settings or the server.
	Account bool
	// MaybeSent: the complete email was sent, but no answer came. After a retry it may
	// arrive twice.
	MaybeSent bool
	Code      int    // the server's reply, 421, 550 …; 0: none
	hint      string // what to do; may be empty
	Err       error  // never contains the password
}

func (e *SendError) Error() string { return e.Stage + ": " + e.Err.Error() }

func (e *SendError) Unwrap() error { return e.Err }

// Hint is what the operator can do, or "".
func (e *SendError) Hint() string { return e.hint }

// Check connects and logs in. Its error is a *SendError.
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
// is a *SendError.
func (s *SMTP) Send(ctx context.Context, from string, to []string, msg []byte) error {
	e, err := newEnvelope(from, to, msg)
	if err != nil {
		return &SendError{Stage: "check the email", Err: err}
	}
	// Limits the total time, too: many answers may each stay below the timeout.
	ctx, cancel := context.WithTimeout(ctx, 15*s.timeout())
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

func (s *SMTP) timeout() time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return 30 * time.Second
}

// smtpConn is a connection that has logged in.
type smtpConn struct {
	*smtp.Client
	conn    net.Conn
	stop    func() bool
	ctx     context.Context
	timeout time.Duration
	secrets []string
}

// open connects, secures the connection and logs in.
func (s *SMTP) open(ctx context.Context) (*smtpConn, error) {
	e := endpoint{s.Address, s.Security, s.CAFile, s.timeout()}
	conn, stop, f := e.dial(ctx)
	if f != nil {
		return nil, (&smtpConn{ctx: ctx}).faultError(f)
	}
	c := &smtpConn{conn: conn, stop: stop, ctx: ctx, timeout: s.timeout()}
	if f := c.secure(e); f != nil {
		c.close()
		return nil, c.faultError(f)
	}
	if err := c.login(s); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// secure wraps the connection in a client, with STARTTLS if configured. The library
// has no timeout before that.
func (c *smtpConn) secure(e endpoint) *fault {
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

func (c *smtpConn) noStartTLS(err error) *fault {
	f := &fault{stage: "secure the connection", temporary: true, err: err}
	var reply *smtp.SMTPError
	switch {
	case errors.As(err, &reply):
		f.temporary = reply.Temporary()
	case errors.Is(err, os.ErrDeadlineExceeded):
		f.hint = "if the port expects TLS from the first byte, set the security to tls"
	case strings.Contains(err.Error(), "doesn't support STARTTLS"):
		// The library has no error value for it. An attacker in between may have removed
		// the offer, so plain text is not an option.
		f.temporary = false
		f.hint = "the server offers no STARTTLS on this port; check the port (mostly 587; with TLS from the first byte 465)"
	}
	return f
}

// login greets the server and authenticates.
func (c *smtpConn) login(s *SMTP) error {
	name := s.LocalName
	if name == "" {
		name = "localhost"
	}
	// After STARTTLS the TLS handshake happens here.
	if err := c.Hello(name); err != nil {
		if f := (endpoint{}).tlsFault(err); f.hint != "" {
			return c.faultError(f)
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
			e.hint = "check the user name and the password; some providers require an app password"
		}
		return e
	}
	return nil
}

// mechanism selects how to send the password.
func (c *smtpConn) mechanism(s *SMTP) (sasl.Client, error) {
	if s.Password == nil {
		return nil, &fault{stage: "log in", err: errors.New("a user name is set, but no password")}
	}
	password, err := s.Password()
	if err != nil {
		return nil, &fault{stage: "log in", err: fmt.Errorf("read the password: %w", err)}
	}
	encode := base64.StdEncoding.EncodeToString
	c.secrets = []string{password, encode([]byte(password)), encode([]byte("\x00" + s.Username + "\x00" + password))}
	switch {
	case c.SupportsAuth("PLAIN"):
		return sasl.NewPlainClient("", s.Username, password), nil
	case c.SupportsAuth("LOGIN"):
		return &loginClient{s.Username, password}, nil
	}
	return nil, &fault{
		stage: "log in", err: errors.New("the server accepts no password (neither AUTH PLAIN nor LOGIN)"),
		hint: "check that this is the submission port",
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
		return &SendError{Stage: "send the email", Err: err}
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

// failed converts an error of the library.
func (c *smtpConn) failed(stage string, err error) *SendError {
	var f *fault
	if errors.As(err, &f) {
		return c.faultError(f)
	}
	e := &SendError{Stage: stage, Temporary: true, Err: err}
	var reply *smtp.SMTPError
	switch {
	case errors.As(err, &reply):
		e.Code, e.Temporary = reply.Code, reply.Code/100 != 5
		e.Err = c.reply(reply)
	case c.ctx.Err() != nil:
		e.Err = context.Cause(c.ctx)
	default:
		e.Err = errors.New(logText(err.Error(), c.secrets...))
	}
	return e
}

func (c *smtpConn) faultError(f *fault) *SendError {
	e := &SendError{Stage: f.stage, Temporary: f.temporary, Account: !f.temporary, hint: f.hint, Err: f.err}
	var reply *smtp.SMTPError
	if errors.As(f.err, &reply) {
		e.Code = reply.Code
		e.Err = c.reply(reply)
	} else if c.ctx.Err() != nil {
		e.Temporary, e.Account, e.Err = true, false, context.Cause(c.ctx)
	}
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

func (c *smtpConn) close() {
	c.stop()
	c.conn.Close()
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
