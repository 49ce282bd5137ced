package mailbox

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/email/mailserver"
)

const letter = "From: permesso@gate.test\r\nTo: ann@human.test\r\nSubject: may I?\r\n\r\n.a dot first\r\n..two\r\nend\r\n"

func password(s string) func() (string, error) { return func() (string, error) { return s, nil } }

// submission returns a working SMTP.
func submission(v *mailserver.Servers) *SMTP {
	return &SMTP{
		Address: v.SMTP, Security: StartTLS, Username: mailserver.Gate, Password: password(mailserver.Password),
		CAFile: v.CAFile, Timeout: testTimeout,
	}
}

// sendError returns the error as an *Error.
func sendError(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.NotContains(t, fmt.Sprintf("%v %+v %s", err, err, e.Hint()), mailserver.Password)
	return e
}

// TestSMTPAgainstRealServers sends through real servers, with and without success.
func TestSMTPAgainstRealServers(t *testing.T) {
	t.Parallel()
	v := mailserver.Start(t)
	ann := v.Inbox(t, mailserver.Ann)

	for _, tt := range []struct {
		why, address, security string
	}{
		{"STARTTLS", v.SMTP, StartTLS},
		{"TLS from the first byte", v.SMTPS, TLS},
		{"the default security", v.SMTPS, ""},
	} {
		s := submission(v)
		s.Address, s.Security = tt.address, tt.security
		require.NoError(t, s.Check(t.Context()), tt.why)
		require.NoError(t, s.Send(t.Context(), mailserver.Gate, []string{mailserver.Ann}, []byte(letter)), tt.why)
		raw := string(ann.Next(t))
		require.True(t, strings.HasSuffix(raw, "\r\n\r\n.a dot first\r\n..two\r\nend\r\n"), "%s: %s", tt.why, raw)
	}

	refusals := []struct {
		why       string
		change    func(s *SMTP)
		to        string
		temporary bool
		account   bool
		code      int
		want      string // in the error or the hint
	}{
		{"a wrong password", func(s *SMTP) { s.Password = password("nonsense-9") }, "", false, true, 535, "log in: 535"},
		{"no password", func(s *SMTP) { s.Password = nil }, "", false, true, 0, "no password"},
		{"the password file is gone", func(s *SMTP) { s.Password = func() (string, error) { return "", os.ErrNotExist } }, "", false, true, 0, "read the password"},
		{"the authority is not trusted", func(s *SMTP) { s.CAFile = "" }, "", false, true, 0, "CA file"},
		{"the CA file is no certificate", func(s *SMTP) { s.CAFile = os.Args[0] }, "", false, true, 0, "contains no certificate"},
		{"a port that begins with TLS", func(s *SMTP) { s.Address, s.Timeout = v.SMTPS, 2*time.Second }, "", true, false, 0, "security to tls"},
		{"a port that does not", func(s *SMTP) { s.Security = TLS }, "", false, true, 0, "does not speak TLS"},
		{"the port for other servers: no STARTTLS, so no password", func(s *SMTP) { s.Address = v.MX }, "", false, true, 0, "no STARTTLS"},
		{"no encryption, here, and none offered", func(s *SMTP) { s.Address, s.Security = v.MX, NoTLS }, "", false, true, 0, "accepts no password"},
		{"no login where one is needed", func(s *SMTP) { s.Username = "" }, "", false, false, 530, "530"},
		{"greylisted", nil, mailserver.Later, true, false, 451, "later@human.test: 451 4.7.1 <later@human.test> Greylisted"},
		{"an unknown recipient", nil, mailserver.Never, false, false, 550, "never@human.test: 550 5.1.1 <never@human.test> No such user"},
		{"not a relay for other domains", nil, "user@example.org", false, false, 550, "550"},
	}
	for _, tt := range refusals {
		s := submission(v)
		if tt.change != nil {
			tt.change(s)
		}
		to := tt.to
		if to == "" {
			to = mailserver.Ann
		}
		e := sendError(t, s.Send(t.Context(), mailserver.Gate, []string{to}, []byte(letter)))
		require.Equal(t, tt.temporary, e.Temporary, "%s: %v", tt.why, e)
		require.Equal(t, tt.account, e.Account, "%s: %v", tt.why, e)
		require.Equal(t, tt.code, e.Code, "%s: %v", tt.why, e)
		require.Contains(t, e.Error()+"\n"+e.Hint(), tt.want, tt.why)
		require.False(t, e.MaybeSent, tt.why)
	}

	e := sendError(t, submission(v).Send(t.Context(), mailserver.Gate, []string{mailserver.Ann, mailserver.Never}, []byte(letter)))
	require.Equal(t, 550, e.Code)
	e = sendError(t, submission(v).Send(t.Context(), mailserver.Gate, []string{"ænne@human.test"}, []byte(letter)))
	require.False(t, e.Temporary)
	require.Contains(t, e.Error(), "SMTPUTF8")
	eight := strings.Replace(letter, "end", "fine perché", 1)
	require.NoError(t, submission(v).Send(t.Context(), "", []string{mailserver.Ann}, []byte(eight)))
	raw := string(ann.Next(t))
	require.Contains(t, raw, "perché", "8BITMIME; it is the first email: one refused recipient means that none gets it")
	require.Contains(t, raw, "Return-Path: <>\r\n")

	v.StopDovecot()
	e = sendError(t, submission(v).Send(t.Context(), mailserver.Gate, []string{mailserver.Ann}, []byte(letter)))
	require.True(t, e.Temporary, "a server that is down may come back")
	v.StartDovecot(t)
	require.NoError(t, submission(v).Send(t.Context(), mailserver.Gate, []string{mailserver.Ann}, []byte(letter)))
	require.Contains(t, string(ann.Next(t)), "may I?")
}

// step waits for a line with that prefix, "" for none. A reply of "" closes the
// connection, "…" is no answer.
type step struct{ await, reply string }

// script runs a server that follows steps.
func script(t *testing.T, steps ...step) (address string, heard func() string) {
	t.Helper()
	return silent(t, func() {}, steps...)
}

// silent is script, and calls falls at a step without an answer.
func silent(t *testing.T, falls func(), steps ...step) (address string, heard func() string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all strings.Builder
	var wait sync.WaitGroup
	wait.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for _, s := range steps {
			for line := ""; s.await != "" && !strings.HasPrefix(line, s.await); {
				if line, err = in.ReadString('\n'); err != nil {
					return
				}
				all.WriteString(line)
			}
			switch s.reply {
			case "":
				return
			case "…":
				falls()
				_, _ = in.ReadString(0) // until the connection is closed
				return
			}
			fmt.Fprint(conn, s.reply+"\r\n")
		}
		for {
			line, err := in.ReadString('\n')
			all.WriteString(line)
			if err != nil {
				return
			}
			fmt.Fprint(conn, "221 bye\r\n")
		}
	})
	t.Cleanup(func() { l.Close(); wait.Wait() })
	return l.Addr().String(), func() string { l.Close(); wait.Wait(); return all.String() }
}

var (
	hello   = []step{{"", "220 hi"}, {"EHLO", "250-hi\r\n250-AUTH LOGIN\r\n250-SMTPUTF8\r\n250 8BITMIME"}}
	login   = append(hello[:2:2], step{"AUTH LOGIN", "334 VXNlciBOYW1lAA=="}, step{"", "334 UGFzc3dvcmQ6"}, step{"", "235 welcome"})
	sending = append(login[:5:5], step{"MAIL", "250 ok"}, step{"RCPT", "250 ok"}, step{"DATA", "354 go"})
)

func then(steps []step, more ...step) []step { return append(steps[:len(steps):len(steps)], more...) }

// TestSMTPFaults: rare faults of real servers.
func TestSMTPFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		why                           string
		steps                         []step
		temporary, account, maybeSent bool
		code                          int
		want                          string
	}{
		{"no fault, with the LOGIN mechanism", then(sending, step{".", "250 queued"}), false, false, false, 0, ""},
		{"it hangs before the greeting", []step{{"", "…"}}, true, false, false, 0, "timeout"},
		{"it hangs at the recipient", then(login, step{"MAIL", "250 ok"}, step{"RCPT", "…"}), true, false, false, 0, "name the recipient"},
		{"it closes the connection at the sender", then(login, step{"MAIL", ""}), true, false, false, 0, "name the sender"},
		{"too busy to begin with", []step{{"", "421 4.3.2 try later"}}, true, false, false, 421, "greet: 421"},
		{"our address is on a blocklist", []step{{"", "554 5.7.1 go away"}}, false, true, false, 554, "greet: 554"},
		{"the login is down for now", then(hello, step{"AUTH", "454 4.7.0 try later"}), true, false, false, 454, "log in: 454"},
		{"greylisting at DATA", then(login, step{"MAIL", "250 ok"}, step{"RCPT", "250 ok"}, step{"DATA", "450 wait"}), true, false, false, 450, "begin the email: 450"},
		{"the content is refused", then(sending, step{".", "554 5.6.0 spam"}), false, false, false, 554, "have the email accepted: 554"},
		{"the content is refused for now", then(sending, step{".", "451 4.6.0 scanner down"}), true, false, false, 451, "have the email accepted: 451"},
		{"the answer to the last dot is lost", then(sending, step{".", ""}), true, false, true, 0, "have the email accepted"},
		{"the answer to the last dot never comes", then(sending, step{".", "…"}), true, false, true, 0, "have the email accepted"},
		{"a refusal that repeats the password", then(hello, step{"AUTH", "334 VXNlcm5hbWU6"}, step{"", "334 UGFzc3dvcmQ6"},
			step{"", "535-no\x1b[31m \r\n535 " + mailserver.Password + " b3Blbi1zZXNhbWUtNw== is wrong"}), false, true, false, 535, `no\u{001B}[31m [password] [password] is wrong`},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			t.Parallel()
			s := &SMTP{Security: NoTLS, Username: "gate", Password: password(mailserver.Password), Timeout: testTimeout}
			if tt.steps[len(tt.steps)-1].reply == "…" {
				s.Timeout = 2 * time.Second
			}
			address, heard := script(t, tt.steps...)
			s.Address = address
			err := s.Send(t.Context(), mailserver.Gate, []string{mailserver.Ann}, []byte(letter))
			if tt.want == "" {
				require.NoError(t, err)
				require.Contains(t, heard(), "\r\n\r\n..a dot first\r\n...two\r\nend\r\n.\r\n")
				return
			}
			e := sendError(t, err)
			require.Contains(t, e.Error(), tt.want)
			require.Equal(t, tt.temporary, e.Temporary, "%v", e)
			require.Equal(t, tt.account, e.Account, "%v", e)
			require.Equal(t, tt.maybeSent, e.MaybeSent, "%v", e)
			require.Equal(t, tt.code, e.Code, "%v", e)
		})
	}
}

// TestSMTPNeverInPlainText: nothing that a server or an attacker sends before TLS makes
// the client send the password.
func TestSMTPNeverInPlainText(t *testing.T) {
	offered := "250-hi\r\n250-STARTTLS\r\n250 AUTH PLAIN LOGIN"
	tests := []struct {
		why   string
		steps []step
		want  string
	}{
		{"the STARTTLS offer was removed", []step{{"", "220 hi"}, {"EHLO", "250-hi\r\n250 AUTH PLAIN LOGIN"}}, "no STARTTLS"},
		{"it offers STARTTLS and refuses it", []step{{"", "220 hi"}, {"EHLO", offered}, {"STARTTLS", "454 not now"}}, "454"},
		{"it goes on in plain text", []step{{"", "220 hi"}, {"EHLO", offered}, {"STARTTLS", "220 go\r\n250 AUTH PLAIN"}}, "does not speak TLS"},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			address, heard := script(t, tt.steps...)
			s := &SMTP{Address: address, Security: StartTLS, Username: "gate", Password: password(mailserver.Password), Timeout: testTimeout}
			e := sendError(t, s.Send(t.Context(), mailserver.Gate, []string{mailserver.Ann}, []byte(letter)))
			require.Contains(t, e.Error()+e.Hint(), tt.want)
			require.NotContains(t, heard(), "AUTH")
			require.NotContains(t, heard(), "MAIL")
		})
	}
	t.Run("without encryption, only to this machine", func(t *testing.T) {
		for _, address := range []string{"192.0.2.1:25", "mail.example.org:25", "[2001:db8::1]:25"} {
			s := &SMTP{Address: address, Security: NoTLS}
			e := sendError(t, s.Check(t.Context()))
			require.Contains(t, e.Error(), "to this machine only")
			require.False(t, e.Temporary)
		}
		e := sendError(t, (&SMTP{Address: "127.0.0.1:25", Security: "ssl"}).Check(t.Context()))
		require.Contains(t, e.Error(), `security "ssl" is unknown`)
		require.Error(t, (&SMTP{}).Check(t.Context()))
	})
}

// TestSMTPOldTLS: TLS 1.1 is refused.
func TestSMTPOldTLS(t *testing.T) {
	cert, key := mailserver.Certificate(t, t.TempDir())
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	for _, tt := range []struct {
		most uint16
		fits bool
	}{{tls.VersionTLS11, false}, {tls.VersionTLS12, true}} {
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS10, MaxVersion: tt.most})
		require.NoError(t, err)
		defer l.Close()
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "220 hi\r\n")
			lines := bufio.NewScanner(conn)
			for lines.Scan() {
				fmt.Fprint(conn, "250 ok\r\n")
			}
		}()
		err = (&SMTP{Address: l.Addr().String(), CAFile: cert, Timeout: testTimeout}).Check(t.Context())
		if tt.fits {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "protocol version")
		}
	}
}

// TestSMTPCommandInjection: no address and no email can add SMTP commands.
func TestSMTPCommandInjection(t *testing.T) {
	s := &SMTP{Address: "127.0.0.1:1", Security: NoTLS}
	bad := []struct{ why, from, to, msg string }{
		{"a second command", "a@b.test", "ann@human.test>\r\nRCPT TO:<eve@elsewhere.test", letter},
		{"a line feed alone", "a@b.test\nRSET", "ann@human.test", letter},
		{"a parameter", "a@b.test> AUTH=<x", "ann@human.test", letter},
		{"two addresses", "a@b.test", "ann@human.test,eve@elsewhere.test", letter},
		{"two @", "a@b.test", "ann@human.test@elsewhere.test", letter},
		{"no @", "a@b.test", "ann", letter},
		{"an empty local part", "a@b.test", "@human.test", letter},
		{"an invisible character", "a@b.test", "an\u200bn@human.test", letter},
		{"invalid UTF-8", "a@b.test", "ann\xff@human.test", letter},
		{"a source route", "a@b.test", "@x.test:ann@human.test", letter},
		{"an empty recipient", "a@b.test", "", letter},
		{"a local part that is too long", "a@b.test", strings.Repeat("a", 65) + "@human.test", letter},
		{"a lone CR, which some servers take for a line end", "a@b.test", "ann@human.test", "Subject: x\r\n\r\nhi\r.\rMAIL FROM:<x@y.test>\r"},
		{"a NUL", "a@b.test", "ann@human.test", "Subject: x\r\n\r\nhi\x00\r\n"},
		{"a line that a server would cut", "a@b.test", "ann@human.test", "Subject: x\r\n\r\n" + strings.Repeat("x", 999) + "\r\n"},
	}
	for _, tt := range bad {
		e := sendError(t, s.Send(t.Context(), tt.from, []string{tt.to}, []byte(tt.msg)))
		require.Equal(t, "check the email", e.Stage, tt.why)
		require.False(t, e.Temporary, tt.why)
		require.NotContains(t, e.Error(), "\n", tt.why)
	}
	e := sendError(t, s.Send(t.Context(), "a@b.test", nil, []byte(letter)))
	require.Equal(t, "check the email", e.Stage)

	address, heard := script(t, then(sending, step{".", "250 queued"})...)
	s = &SMTP{Address: address, Security: NoTLS, Username: "gate", Password: password("x"), Timeout: testTimeout}
	smuggled := "Subject: x\n\nhi\n.\nMAIL FROM:<x@y.test>\n"
	require.NoError(t, s.Send(t.Context(), "a@b.test", []string{"ann+tok@human.test"}, []byte(smuggled)))
	require.Contains(t, heard(), "Subject: x\r\n\r\nhi\r\n..\r\nMAIL FROM:<x@y.test>\r\n.\r\n", "a dot alone does not end the email")
}

// TestSMTPContext: the daemon stops while it waits for a server.
func TestSMTPContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	down := errors.New("stopping")
	address, _ := silent(t, func() { cancel(down) }, then(sending, step{".", "…"})...)
	s := &SMTP{Address: address, Security: NoTLS, Username: "gate", Password: password("x"), Timeout: testTimeout}
	start := time.Now()
	e := sendError(t, s.Send(ctx, "a@b.test", []string{"ann@human.test"}, []byte(letter)))
	require.ErrorIs(t, e, down)
	require.True(t, e.MaybeSent)
	require.Less(t, time.Since(start), testTimeout)
}
