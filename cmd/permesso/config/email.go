package config

import (
	"net"
	"slices"
	"strconv"
	"strings"
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

// emailChannel reads [channels.email].
func (s *section) emailChannel() {
	e := &Email{
		From: canonicalEmail(s.text("from")), SMTP: s.mailServer("smtp"), IMAP: s.mailServer("imap"), Maildir: s.text("maildir"), AuthservID: s.text("authserv_id"),
		DKIM: s.flag("dkim"), TrustRelay: s.flag("trust_relay"),
		SubAddressing: s.flag("sub_addressing"), FollowUp: s.flag("follow_up"), DNS: hostPort(s.text("dns"), "53"),
	}
	s.require(s.node.key, "permesso email setup finds the right settings", "channel email needs %s", "from", "smtp")
	s.checkIncoming(e)
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

func validFrom(v string) bool { return validEmail(v) && !strings.ContainsAny(v, `"+`) }

func (s *section) mailServer(key string) MailServer {
	sub := s.table(key)
	if sub == nil {
		return MailServer{}
	}
	m := MailServer{
		Address: sub.text("address"), Security: sub.text("security"), Username: sub.text("username"),
		PasswordFile: sub.text("password_file"), CAFile: sub.text("ca_file"),
	}
	host, port, _ := net.SplitHostPort(m.Address)
	if !sub.has("security") && (port == "465" || port == "993") {
		m.Security = "tls"
		sub.showDefault("security", m.Security)
	}
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
		m.Mailbox = sub.text("mailbox")
	}
	return m
}

// hostPort returns v as host:port, "" if it is not valid. If def is not "", it is
// the default port.
func hostPort(v, def string) string {
	if _, _, err := net.SplitHostPort(v); err != nil && def != "" {
		v = net.JoinHostPort(v, def)
	}
	host, port, err := net.SplitHostPort(v)
	invalid := strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/@"'\`, r) })
	if err != nil || !validPort(port) || host == "" || invalid {
		return ""
	}
	return v
}

func validPort(port string) bool {
	number, err := strconv.ParseUint(port, 10, 16)
	return err == nil && number > 0
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// warnUnreachableEmail warns of workspaces whose emails would reach no approver.
func (s *section) warnUnreachableEmail() {
	for name, w := range s.users(channelEmail) {
		at := s.node.at("workspaces", name, "channels").val
		switch {
		case s.cfg.Email == nil:
			s.warn(at, "workspaces."+name+".channels", "permesso email setup", "channel email is not configured: no approver is asked by email")
		case !slices.ContainsFunc(w.Approvers, func(who string) bool {
			return s.cfg.Approvers[who].IDs[channelEmail] != "" && (w.Principal == "" || w.Principal == who)
		}):
			s.warn(at, "workspaces."+name+".channels", "[approvers.NAME] email = \"…\"", "no approver of workspace %s has an email address", quote(name))
		}
	}
}
