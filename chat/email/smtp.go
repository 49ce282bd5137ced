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

// SMTP submits mails to a server that sends them on. Each Send is a connection
// of its own.
type SMTP struct {
	Address   string                 // "host:port"
	Security  string                 // StartTLS, TLS or NoTLS; "": TLS
	Username  string                 // "": no login
	Password  func() (string, error) // asked at each login
	CAFile    string                 // PEM: trust these authorities instead of the system's; "": the system's
	LocalName string                 // what to call ourselves; "": localhost
	Timeout   time.Duration          // for each answer; 0: 30 s. After a mail's last byte it is five times that.
}

// SendError says why a mail was not sent, or may not have been.
type SendError struct {
	Stage string // what could not be done: "connect", "log in", "name the recipient" …
	// Temporary: the same mail may go through later. Otherwise it never will, as
	// things are.
	Temporary bool
	// Account: it is not about this mail; every other one would fail like it until
	// a person mends the settings, or the server.
	Account bool
	// MaybeSent: all of the mail went out and no answer came back. Sending it again
	// may make it arrive twice.
	MaybeSent bool
	Code      int    // the server's reply, 421, 550 …; 0: none
	Hint      string // what to do about it; may be empty
	Err       error  // never holds the password
}

func (e *SendError) Error() string { return e.Stage + ": " + e.Err.Error() }

func (e *SendError) Unwrap() error { return e.Err }

// Check connects, logs in and leaves. Its error is a *SendError.
func (s *SMTP) Check(ctx context.Context) error {
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	c.quit()
	return nil
}

// Send submits msg, which begins with its header, from one address to others.
// An empty from is the null sender, which nobody answers. All recipients get it or
// none. Its error is a *SendError.
func (s *SMTP) Send(ctx context.Context, from string, to []string, msg []byte) error {
	e, err := newEnvelope(from, to, msg)
	if err != nil {
		return &SendError{Stage: "check the mail", Err: err}
	}
	// No single answer may take too long, nor may many that do not.
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

// open connects, has the connection secured and logs in.
func (s *SMTP) open(ctx context.Context) (*smtpConn, error) {
	e := endpoint{s.Address, s.Security, s.CAFile, s.timeout()}
	conn, stop, f := e.dial(ctx)
	if f != nil {
		return nil, (&smtpConn{ctx: ctx}).faulted(f)
	}
	c := &smtpConn{conn: conn, stop: stop, ctx: ctx, timeout: s.timeout()}
	if f := c.secure(e); f != nil {
		c.close()
		return nil, c.faulted(f)
	}
	if err := c.login(s); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// secure wraps the connection in a client, by way of STARTTLS where asked. The
// library sets no time-out of ours before that.
func (c *smtpConn) secure(e endpoint) *fault {
	if e.security != StartTLS {
		c.Client = smtp.NewClient(c.conn)
	} else {
		config, f := e.tls()
		if f != nil {
			return f
		}
		err := within(c.timeout, c.conn, func() (err error) {
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
		f.hint = "does that port want TLS from the first byte? then the security is tls"
	case strings.Contains(err.Error(), "doesn't support STARTTLS"):
		// The library has no value for it. Maybe somebody on the way took the offer
		// out; going on in plain text is what he would want.
		f.temporary = false
		f.hint = "the server offers no STARTTLS there; is it the right port (587)? one for TLS from the first byte is mostly 465"
	}
	return f
}

// login greets again, now in private, and shows the password.
func (c *smtpConn) login(s *SMTP) error {
	name := s.LocalName
	if name == "" {
		name = "localhost"
	}
	// After STARTTLS this is where hands are shaken.
	if err := c.Hello(name); err != nil {
		if f := (endpoint{}).tlsFault(err); f.hint != "" {
			return c.faulted(f)
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
			e.Hint = "check the user name and the password; some providers want a password made for this program"
		}
		return e
	}
	return nil
}

// mechanism picks how to show the password: it is seen by the server only.
func (c *smtpConn) mechanism(s *SMTP) (sasl.Client, error) {
	if s.Password == nil {
		return nil, &fault{stage: "log in", err: errors.New("there is a user name and no password")}
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
		stage: "log in", err: errors.New("the server takes no password (neither AUTH PLAIN nor LOGIN)"),
		hint: "is it the port for submission?",
	}
}

// loginClient speaks the LOGIN mechanism, which nobody ever specified: the
// questions are told by a word in them, not by their exact form.
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
	return nil, errors.New("LOGIN: asked for neither user name nor password")
}

// send goes through one mail.
func (c *smtpConn) send(e *envelope) error {
	if err := e.fits(c.Client); err != nil {
		return &SendError{Stage: "send the mail", Err: err}
	}
	if err := c.Mail(e.from, &smtp.MailOptions{UTF8: e.utf8, Size: int64(len(e.msg))}); err != nil {
		return c.failed("name the sender", err)
	}
	for _, to := range e.to {
		if err := c.Rcpt(to, nil); err != nil {
			return c.failed("name the recipient "+said(to), err)
		}
	}
	data, err := c.Data()
	if err != nil {
		return c.failed("begin the mail", err)
	}
	if err := within(c.SubmissionTimeout, c.conn, func() error {
		_, err := data.Write(e.msg)
		return err
	}); err != nil {
		return c.failed("send the mail", err)
	}
	if err := data.Close(); err != nil {
		lost := c.failed("have the mail accepted", err)
		lost.MaybeSent = lost.Code == 0
		return lost
	}
	return nil
}

// failed makes an error of what the library returned.
func (c *smtpConn) failed(stage string, err error) *SendError {
	var f *fault
	if errors.As(err, &f) {
		return c.faulted(f)
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
		e.Err = errors.New(said(err.Error(), c.secrets...))
	}
	return e
}

func (c *smtpConn) faulted(f *fault) *SendError {
	e := &SendError{Stage: f.stage, Temporary: f.temporary, Account: !f.temporary, Hint: f.hint, Err: f.err}
	var reply *smtp.SMTPError
	if errors.As(f.err, &reply) {
		e.Code = reply.Code
		e.Err = c.reply(reply)
	} else if c.ctx.Err() != nil {
		e.Temporary, e.Account, e.Err = true, false, context.Cause(c.ctx)
	}
	return e
}

// reply is a server's refusal as it came, fit for a log.
func (c *smtpConn) reply(r *smtp.SMTPError) error {
	code := strconv.Itoa(r.Code)
	if r.EnhancedCode[0] > 0 {
		code += fmt.Sprintf(" %d.%d.%d", r.EnhancedCode[0], r.EnhancedCode[1], r.EnhancedCode[2])
	}
	return fmt.Errorf("%s %s", code, said(r.Message, c.secrets...))
}

// quit leaves politely; the mail is accepted whatever comes now.
func (c *smtpConn) quit() {
	c.CommandTimeout = min(c.CommandTimeout, 2*time.Second)
	_ = c.Quit()
	c.close()
}

func (c *smtpConn) close() {
	c.stop()
	c.conn.Close()
}

// envelope is a mail that can be put into SMTP's commands.
type envelope struct {
	from     string
	to       []string
	msg      []byte
	utf8     bool // an address or the header is not ASCII
	eightBit bool // nor is something else
}

func newEnvelope(from string, to []string, msg []byte) (*envelope, error) {
	if len(to) == 0 {
		return nil, errors.New("it has no recipient")
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

// fits says whether the server can take such a mail unchanged.
func (e *envelope) fits(c *smtp.Client) error {
	if ok, _ := c.Extension("SMTPUTF8"); e.utf8 && !ok {
		return errors.New("an address or the header holds letters beyond ASCII, and the server has no SMTPUTF8")
	}
	if ok, _ := c.Extension("8BITMIME"); e.eightBit && !ok {
		return errors.New("the mail holds bytes beyond ASCII, and the server has no 8BITMIME")
	}
	return nil
}

// wireForm ends every line with CRLF. A lone CR is refused: some servers take it
// for the end of a line, and so for a mail's end what we do not.
func wireForm(msg []byte) ([]byte, error) {
	msg = bytes.ReplaceAll(msg, []byte("\r\n"), []byte("\n"))
	if i := bytes.IndexAny(msg, "\r\x00"); i >= 0 {
		return nil, fmt.Errorf("a lone CR, or a NUL, at byte %d", i)
	}
	for line := range bytes.Lines(msg) {
		if len(bytes.TrimSuffix(line, []byte("\n"))) > 998 {
			return nil, errors.New("a line is longer than 998 bytes")
		}
	}
	return bytes.ReplaceAll(msg, []byte("\n"), []byte("\r\n")), nil
}

// checkAddress lets no address pass that could end the command it stands in.
// Quoted local parts are none that we would ever need.
func checkAddress(a string) error {
	at := strings.LastIndexByte(a, '@')
	bad := func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsGraphic(r) || strings.ContainsRune("<>()[]\\,;:\"\ufffd", r)
	}
	if at < 1 || at == len(a)-1 || len(a) > 254 || at > 64 || strings.ContainsRune(a[:at], '@') || slices.ContainsFunc([]rune(a), bad) {
		return fmt.Errorf("%s is no address", said(a))
	}
	return nil
}

func isASCII(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c >= 0x80 }) }
