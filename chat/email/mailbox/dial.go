package mailbox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/chat"
)

// The values of SMTP.Security and IMAP.Security. The zero value means TLS.
const (
	StartTLS = "starttls" // TLS begins after a plain greeting; a server without STARTTLS is refused
	TLS      = "tls"      // TLS from the first byte
	NoTLS    = "none"     // no encryption; only for this machine
)

// endpoint is a server and how to authenticate it.
type endpoint struct {
	address  string // "host:port"
	security string
	caFile   string // PEM; trusted instead of the system's authorities
	timeout  time.Duration
}

// Error says why emails cannot be received, or why one was not sent or may not have
// been.
type Error struct {
	Stage string // what failed: "connect", "log in", "name the recipient" …
	// Temporary: a retry of the same may succeed. Otherwise the operator must fix something.
	Temporary bool
	// Account: the failure is not about this email. Every other one would fail, too,
	// until the operator fixes the settings or the server.
	Account bool
	// MaybeSent: the complete email was sent, but no answer came. After a retry it may
	// arrive twice.
	MaybeSent bool
	Code      int    // the reply of an SMTP server, 421, 550 …; 0: none
	Help      string // what the operator can do; may be empty
	Err       error  // never contains a password
}

func (e *Error) Error() string { return e.Stage + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Hint is what the operator can do, or "".
func (e *Error) Hint() string { return e.Help }

// check refuses settings that cannot work.
func (e endpoint) check() *Error {
	host, port, err := net.SplitHostPort(e.address)
	if err == nil && (host == "" || port == "") {
		err = errors.New("the host or the port is missing")
	}
	if err != nil {
		return &Error{Stage: "connect", Err: fmt.Errorf("address %q: %w", e.address, err), Help: `write it as "host:port"`}
	}
	switch e.security {
	case "", TLS, StartTLS:
		return nil
	case NoTLS:
		if ip := net.ParseIP(host); host == "localhost" || ip.IsLoopback() {
			return nil
		}
		return &Error{
			Stage: "connect", Err: fmt.Errorf("%s: an unencrypted connection is allowed to this machine only", e.address),
			Help: "set the security to starttls or tls",
		}
	}
	return &Error{Stage: "connect", Err: fmt.Errorf("security %q is unknown", e.security), Help: "use starttls, tls, or none for localhost"}
}

// session is a connection to a server.
type session struct {
	conn    net.Conn
	stop    func() bool
	ctx     context.Context
	timeout time.Duration
	secrets []string // what must not be logged
}

// close ends the connection. The IMAP library's own Close would wait for its reader.
func (s *session) close() {
	s.stop()
	s.conn.Close()
}

// dial connects, with the TLS handshake if TLS comes first. The end of ctx closes the
// connection.
func (e endpoint) dial(ctx context.Context) (*session, *Error) {
	if f := e.check(); f != nil {
		return nil, f
	}
	config, f := e.tls()
	if f != nil {
		return nil, f
	}
	limited, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	dialer := net.Dialer{KeepAlive: 30 * time.Second}
	conn, err := dialer.DialContext(limited, "tcp", e.address)
	if err != nil {
		return nil, &Error{Stage: "connect", Temporary: true, Err: err, Help: "check the address, and whether the server is up"}
	}
	if at, ok := conn.RemoteAddr().(*net.TCPAddr); e.security == NoTLS && (!ok || !at.IP.IsLoopback()) {
		conn.Close()
		return nil, &Error{Stage: "connect", Err: fmt.Errorf("%s is another machine", e.address), Help: "set the security to starttls or tls"}
	}
	if e.security == TLS || e.security == "" {
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(limited); err != nil {
			conn.Close()
			return nil, e.tlsFault(err)
		}
		conn = secure
	}
	return &session{conn: conn, stop: context.AfterFunc(ctx, func() { conn.Close() }), ctx: ctx, timeout: e.timeout}, nil
}

func (e endpoint) tls() (*tls.Config, *Error) {
	host, _, _ := net.SplitHostPort(e.address)
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if e.caFile == "" {
		return config, nil
	}
	pem, err := os.ReadFile(e.caFile)
	if err != nil {
		return nil, &Error{Stage: "secure the connection", Err: fmt.Errorf("read the CA file: %w", err)}
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, &Error{Stage: "secure the connection", Err: fmt.Errorf("%s contains no certificate", e.caFile), Help: "use a PEM file"}
	}
	return config, nil
}

// tlsFault explains a failed TLS handshake.
func (e endpoint) tlsFault(err error) *Error {
	f := &Error{Stage: "secure the connection", Err: err, Temporary: true}
	var untrusted *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted):
		f.Temporary = false
		f.Help = "use the server name in the certificate, or set the CA file to the authority that signed it"
	case errors.As(err, &noTLS):
		f.Temporary = false
		f.Help = "the port does not speak TLS; set the security to starttls"
	}
	return f
}

// withTimeout runs one exchange with a server. If it takes longer than d, the connection is
// closed.
func withTimeout(d time.Duration, conn net.Conn, exchange func() error) error {
	late := false
	done := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		defer close(done)
		late = true
		conn.Close()
	})
	err := exchange()
	if !timer.Stop() {
		<-done
	}
	if late && err != nil {
		return fmt.Errorf("no answer for %s: %w", d, os.ErrDeadlineExceeded)
	}
	return err
}

// logText formats a server's text for a log: one line, limited length, invisible
// characters escaped, and without the password, which some servers repeat.
func logText(text string, secrets ...string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "[password]")
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return chat.Escape(text)
}
