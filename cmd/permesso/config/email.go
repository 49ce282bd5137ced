package config

import (
	"net"
	"net/mail"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
)

// Email is [channels.email]: how emails are sent and replies received.
type Email struct {
	From          string     // the daemon's address
	SMTP          MailServer // sends mails
	IMAP          MailServer // fetches replies; zero: not used
	Maildir       string     // receives replies on this machine; "": not used
	AuthservID    string     // mail server whose Authentication-Results are trusted; "": none
	DKIM          bool       // the daemon verifies signatures
	TrustRelay    bool       // From is trusted without a check
	SubAddressing bool       // permesso+TOKEN@… is delivered to From
	FollowUp      bool       // approvers get the outcome
	DNS           string     // host:port of a resolver; "": the system's
}

// MailServer is a mail server with its login.
type MailServer struct {
	Address      string // host:port
	Security     string // starttls, tls, none
	Username     string // "": no login
	PasswordFile string // "": PERMESSO_EMAIL_PASSWORD
	CAFile       string // "": the system's authorities
	Mailbox      string // only IMAP; "": INBOX
}

var authservPattern = pattern(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

// emailChannel reads [channels.email].
func (s *section) emailChannel() {
	e := &Email{
		From: s.address("from"), SMTP: s.mailServer("smtp"), IMAP: s.mailServer("imap"), Maildir: s.absolute("maildir"), AuthservID: s.authserv(),
		DKIM: s.flag("dkim", true), TrustRelay: s.flag("trust_relay", false),
		SubAddressing: s.flag("sub_addressing", false), FollowUp: s.flag("follow_up", true), DNS: s.resolver(),
	}
	for _, key := range []string{"from", "smtp"} {
		if !s.has(key) {
			s.fail(s.node.key, key, "permesso email setup finds the right settings", "channel email needs %s", key)
		}
	}
	s.checkIncoming(e)
	s.rejectUnknown()
	s.cfg.Email = e
}

// checkIncoming refuses settings with which no reply could be received or trusted.
func (s *section) checkIncoming(e *Email) {
	if s.has("imap") && e.Maildir != "" {
		s.fail(s.node.children["maildir"].key, "maildir", "remove one of them", "replies are received by imap or by maildir, not both")
	}
	if e.AuthservID == "" && !e.DKIM && !e.TrustRelay {
		s.fail(s.position("dkim"), "dkim", "set dkim = true, or authserv_id to the name of your mail server", "no setting authenticates the sender of a mail")
	}
	if host, _, _ := net.SplitHostPort(e.IMAP.Address); e.TrustRelay && host != "" && !isLoopback(host) {
		s.fail(s.position("trust_relay"), "trust_relay", "set authserv_id or dkim instead", "trust_relay trusts every From, which is safe only with a mail server on this machine")
	}
}

func (s *section) address(key string) string {
	n := s.get(key, text, "")
	if n == nil {
		return ""
	}
	a, err := mail.ParseAddress(n.text)
	if err != nil || a.Address != n.text || strings.ContainsFunc(n.text, func(r rune) bool { return r > unicode.MaxASCII || r <= ' ' || strings.ContainsRune(`"+`, r) }) {
		s.fail(n.val, key, `the bare address: "permesso@example.org"`, "%s must be an email address without + and quotation marks", key)
		return ""
	}
	return canonicalEmail(n.text)
}

func (s *section) mailServer(key string) MailServer {
	sub := s.table(key, key+` = { address = "mail.example.org:587", username = "permesso", password_file = "/path" }`)
	if sub == nil {
		return MailServer{}
	}
	m := MailServer{Address: sub.hostPort("address", ""), Username: sub.line("username", 200), PasswordFile: sub.absolute("password_file"), CAFile: sub.absolute("ca_file")}
	host, port, _ := net.SplitHostPort(m.Address)
	def := "starttls"
	if port == "465" || port == "993" {
		def = "tls"
	}
	m.Security = sub.oneOf("security", def, []string{"starttls", "tls", "none"})
	if m.Security == "none" && host != "" && !isLoopback(host) {
		sub.fail(sub.position("security"), "security", "starttls or tls", "an unencrypted connection is allowed only to this machine")
	}
	switch {
	case !sub.has("address"):
		sub.fail(sub.node.val, "address", `for example address = "mail.example.org:587"`, "%s needs an address", key)
	case key == "imap" && !sub.has("username"):
		sub.fail(sub.node.val, "username", "", "imap needs a username")
	case m.PasswordFile != "" && !sub.has("username"):
		sub.fail(sub.position("password_file"), "password_file", "add username", "password_file needs a username")
	}
	if key == "imap" {
		m.Mailbox = sub.line("mailbox", 200)
	}
	sub.rejectUnknown()
	return m
}

// hostPort returns host:port. If def is not "", it is the default port.
func (s *section) hostPort(key, def string) string {
	n := s.get(key, text, "")
	if n == nil {
		return ""
	}
	full := n.text
	if _, _, err := net.SplitHostPort(full); err != nil && def != "" {
		full = net.JoinHostPort(full, def)
	}
	host, port, err := net.SplitHostPort(full)
	number, bad := strconv.ParseUint(port, 10, 16)
	invalid := strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/@"'\`, r) })
	if err != nil || bad != nil || number == 0 || host == "" || invalid {
		s.fail(n.val, key, `for example "mail.example.org:587"`, "%s must be host:port", key)
		return ""
	}
	return full
}

func (s *section) resolver() string { return s.hostPort("dns", "53") }

func (s *section) absolute(key string) string {
	n := s.get(key, text, "an absolute path")
	if n == nil {
		return ""
	}
	return s.absolutePath(key, n)
}

func (s *section) absolutePath(key string, n *node) string {
	if !filepath.IsAbs(n.text) || filepath.Clean(n.text) != n.text || strings.ContainsFunc(n.text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		s.fail(n.val, key, "", "%s must be an absolute path", key)
		return ""
	}
	return n.text
}

func (s *section) authserv() string {
	n := s.get("authserv_id", text, "")
	if n == nil {
		return ""
	}
	if !authservPattern().MatchString(n.text) {
		s.fail(n.val, "authserv_id", "permesso email test shows what it is", "authserv_id must be the name that your mail server puts into Authentication-Results")
		return ""
	}
	return n.text
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// emailCeiling is the least reversible kind that mail can approve; "": no limit.
func (s *section) emailCeiling() approval.Reversibility {
	all := []string{string(approval.Reversible), string(approval.Partial), string(approval.Irreversible)}
	return approval.Reversibility(s.oneOf("email_ceiling", "", all))
}

// warnUnreachableEmail warns of workspaces whose emails would reach no approver.
func (s *section) warnUnreachableEmail() {
	for _, ws := range sortedKeys(s.cfg.Workspaces) {
		w := s.cfg.Workspaces[ws]
		if !slices.Contains(w.Channels, channelEmail) {
			continue
		}
		at := pos{}
		if all := s.node.children["workspaces"]; all != nil && all.children[ws] != nil {
			at = s.section(all.children[ws], "").position("channels")
		}
		switch {
		case s.cfg.Email == nil:
			s.warnChannels(at, ws, "permesso email setup", "channel email is not configured: no approver is asked by email")
		case !slices.ContainsFunc(w.Approvers, func(name string) bool {
			return s.cfg.Approvers[name].Email != "" && (w.Principal == "" || w.Principal == name)
		}):
			s.warnChannels(at, ws, "[approvers.NAME] email = \"…\"", "no approver of workspace %s has an email address", quote(ws))
		}
	}
}

func (s *section) warnChannels(at pos, ws, hint, format string, args ...any) {
	s.warn(at, "workspaces."+ws+".channels", hint, format, args...)
}
