package config

import (
	"cmp"
	"iter"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// channelKinds lists the channels that a file may name: in [channels.NAME], and in
// a workspace's list.
func channelKinds() []string { return []string{channelTelegram, channelEmail, channelNtfy} }

// channels reads [channels.NAME]. Unknown channels are refused: otherwise approvers
// would wait for messages that are never sent.
func (s *section) channels() {
	if n := s.node.children["channels"]; n != nil && (n.kind != table || len(n.order) == 0) {
		s.fail(n.key, "channels", "write [channels.telegram]", "no channel is configured here")
	}
	s.each("channels", func(name string, sub *section) {
		switch name {
		case channelTelegram:
			sub.telegramChannel()
		case channelEmail:
			sub.emailChannel()
		case channelNtfy:
			sub.ntfyChannel()
		}
	})
	s.warnUnreachableEmail()
	s.warnUnreachableTelegram()
	s.warnUnconfiguredNtfy()
	s.warnUnused()
}

// warnUnused warns of a channel that no workspace uses, and of approvers whom no message
// reaches.
func (s *section) warnUnused() {
	s.each("channels", func(name string, sub *section) {
		for range s.users(name) {
			return
		}
		s.warn(sub.node.key, "channels."+name, "channels = ["+quote(name)+"] in [workspaces.NAME]", "channel %s is configured, but no workspace uses it", name)
	})
	s.each("workspaces", func(ws string, sub *section) {
		for _, name := range s.cfg.Workspaces[ws].Approvers {
			ids := s.cfg.Approvers[name].IDs
			kinds := sortedKeys(ids)
			if len(kinds) == 0 || ids[approval.EntranceLocal] != "" || slices.ContainsFunc(kinds, func(kind string) bool { return slices.Contains(s.cfg.Workspaces[ws].Channels, kind) }) {
				continue
			}
			s.warn(sub.position("approvers"), "workspaces."+ws+".approvers", "channels = ["+quote(kinds[0])+"] in [workspaces."+ws+"]",
				"approver %s is never asked in workspace %s: it does not use %s", quote(name), quote(ws), list(kinds))
		}
	})
}

// MissingFor lists the keys without which an approver gets no message on a channel whose id
// the approver has.
func (c *Config) MissingFor(approver string) (keys []string) {
	configured := map[string]bool{channelTelegram: c.Telegram != nil, channelEmail: c.Email != nil}
	for _, channel := range sortedKeys(configured) {
		if c.Approvers[approver].IDs[channel] == "" {
			continue
		}
		if !configured[channel] {
			keys = append(keys, "channels."+channel)
		}
		for _, ws := range sortedKeys(c.Workspaces) {
			if w := c.Workspaces[ws]; slices.Contains(w.Approvers, approver) && !slices.Contains(w.Channels, channel) {
				keys = append(keys, "workspaces."+ws+".channels")
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// users yields the workspaces that use a channel, by name.
func (s *section) users(channel string) iter.Seq2[string, approval.Workspace] {
	return func(yield func(string, approval.Workspace) bool) {
		for _, name := range sortedKeys(s.cfg.Workspaces) {
			if w := s.cfg.Workspaces[name]; slices.Contains(w.Channels, channel) && !yield(name, w) {
				return
			}
		}
	}
}

// Email is [channels.email]: how emails are sent and replies received.
type Email struct {
	From          string     // the daemon's address
	SMTP          MailServer // sends mails
	IMAP          MailServer // fetches replies; zero: not used
	OAuth         OAuth      // for the servers with a username and without a password_file; zero: not used
	Maildir       string     // receives replies on this machine; "": not used
	AuthservID    string     // mail server whose Authentication-Results are trusted; "": none
	Unnamed       bool       // that server writes no name
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

// OAuth is an authorization server, and the client that its operator registered there.
type OAuth struct {
	Provider         string // google, microsoft, other
	ClientID         string // "": OAuth is not used
	ClientSecretFile string // "": the client has no secret
	AuthURL          string // for a code in the browser of this machine; "": not possible
	TokenURL         string
	DeviceURL        string // for a code that is typed on any device; "": not possible
	Scope            string // with spaces between several
}

// MailProvider is what is known of a provider that accepts no password.
type MailProvider struct {
	SMTP, IMAP string // addresses
	OAuth      OAuth
}

// MailProviders are the providers, by the value of provider. For any other one the
// configuration has the addresses.
var MailProviders = map[string]MailProvider{
	"google": {SMTP: "smtp.gmail.com:465", IMAP: "imap.gmail.com:993", OAuth: OAuth{ //nolint:gosec // public addresses
		AuthURL: "https://accounts.google.com/o/oauth2/v2/auth", TokenURL: "https://oauth2.googleapis.com/token", Scope: "https://mail.google.com/",
	}},
	"microsoft": {SMTP: "smtp.office365.com:587", IMAP: "outlook.office365.com:993", OAuth: OAuth{
		TokenURL: microsoft + "token", DeviceURL: microsoft + "devicecode",
		Scope: "https://outlook.office.com/IMAP.AccessAsUser.All https://outlook.office.com/SMTP.Send offline_access",
	}},
}

const microsoft = "https://login.microsoftonline.com/common/oauth2/v2.0/"

// oauth reads the table oauth, and fills in what is known of its provider.
func (s *section) oauth() OAuth {
	sub := s.table("oauth")
	if sub == nil {
		return OAuth{}
	}
	o := OAuth{
		Provider: sub.text("provider"), ClientID: sub.text("client_id"), ClientSecretFile: sub.text("client_secret_file"),
		AuthURL: sub.text("auth_url"), TokenURL: sub.text("token_url"), DeviceURL: sub.text("device_url"), Scope: sub.text("scope"),
	}
	sub.require(sub.node.val, sub.self.Hint, "oauth needs %s", "provider", "client_id")
	known, ok := MailProviders[o.Provider]
	if ok && o.AuthURL+o.DeviceURL == "" {
		o.AuthURL, o.DeviceURL = known.OAuth.AuthURL, known.OAuth.DeviceURL
	}
	o.TokenURL, o.Scope = cmp.Or(o.TokenURL, known.OAuth.TokenURL), cmp.Or(o.Scope, known.OAuth.Scope)
	if o.TokenURL == "" || o.Scope == "" || o.AuthURL+o.DeviceURL == "" {
		sub.fail(sub.node.val, "provider", "its documentation has the addresses", "provider other needs token_url, scope, and auth_url or device_url")
	}
	return o
}

// emailChannel reads [channels.email].
func (s *section) emailChannel() {
	e := &Email{
		From: canonicalEmail(s.text("from")), SMTP: s.mailServer("smtp"), IMAP: s.mailServer("imap"), OAuth: s.oauth(), Maildir: s.text("maildir"), AuthservID: s.text("authserv_id"),
		Unnamed: s.flag("authserv_unnamed"), DKIM: s.flag("dkim"), TrustRelay: s.flag("trust_relay"),
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
	if e.AuthservID != "" && e.Unnamed {
		s.fail(s.position("authserv_unnamed"), "authserv_unnamed", "remove one of them", "a server writes its name into Authentication-Results, or it does not")
	}
	if e.AuthservID == "" && !e.Unnamed && !e.DKIM && !e.TrustRelay {
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

// Telegram is [channels.telegram]: the bot that asks approvers.
type Telegram struct {
	TokenFile string           // "": PERMESSO_TELEGRAM_TOKEN
	ServerURL string           // of your own Bot API server; "": Telegram's
	Webhook   *TelegramWebhook // nil: the daemon polls for updates
	Feed      bool             // also report what policy allowed
}

// TelegramWebhook is where Telegram delivers updates.
type TelegramWebhook struct {
	Listen     string // host:port
	URL        string
	SecretFile string
}

// TelegramChat is the chat of a workspace.
type TelegramChat struct {
	ChatID   int64
	ThreadID int // a topic of the group; 0: none
}

// telegramChannel reads [channels.telegram].
func (s *section) telegramChannel() {
	t := &Telegram{TokenFile: s.text("token_file"), ServerURL: strings.TrimRight(s.text("server_url"), "/"), Feed: s.flag("feed")}
	if sub := s.table("webhook"); sub != nil {
		t.Webhook = &TelegramWebhook{Listen: sub.text("listen"), URL: strings.TrimRight(sub.text("url"), "/"), SecretFile: sub.text("secret_file")}
		sub.require(sub.node.val, sub.self.Hint, "a webhook needs %s", "listen", "url", "secret_file")
	}
	s.cfg.Telegram = t
}

// webAddress checks a URL without credentials. If plain is true, http to this
// machine is allowed; otherwise it must be https.
func webAddress(plain bool) func(string) string {
	return func(v string) string {
		u, err := url.Parse(v)
		switch {
		case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
			return "must be a URL without user, query and fragment"
		case u.Scheme == "http" && (!plain || !isLoopback(u.Hostname())):
			return "must use https: others could read the token"
		}
		return ""
	}
}

func validListenAddress(v string) bool {
	host, port, err := net.SplitHostPort(v)
	return err == nil && validPort(port) && (host == "" || net.ParseIP(host) != nil || host == "localhost")
}

// chat reads the Telegram chat of a workspace.
func (s *section) chat(name string) string {
	sub := s.table("telegram")
	if sub == nil {
		return ""
	}
	id, thread := sub.number("chat_id"), sub.number("thread_id")
	if id == 0 && sub.has("thread_id") && !sub.has("chat_id") {
		sub.fail(sub.position("thread_id"), "thread_id", "chat_id = -100…", "thread_id needs the chat_id of its group")
	}
	if id > 0 && thread > 0 {
		sub.fail(sub.position("thread_id"), "thread_id", "", "a private chat has no topics")
	}
	if id == 0 {
		return ""
	}
	s.cfg.TelegramChats[name] = TelegramChat{id, int(thread)}
	return "telegram:" + strconv.FormatInt(id, 10)
}

const quietHint = `from and to, by this machine's clock: "22:00-07:00"`

// quietHours reads quiet_hours and night_timeout.
func (s *section) quietHours() approval.QuietHours {
	night := approval.QuietHours{Timeout: s.duration("night_timeout")}
	if v := s.text("quiet_hours"); v != "" {
		from, to, _ := strings.Cut(v, "-")
		if from == to {
			s.fail(s.position("quiet_hours"), "quiet_hours", quietHint, "quiet_hours must be two different times of day")
		}
		night.From, night.To = timeOfDay(from), timeOfDay(to)
	}
	if night.Timeout > 0 && !s.has("quiet_hours") {
		s.fail(s.node.children["night_timeout"].key, "night_timeout", quietHint, "night_timeout needs quiet_hours")
	}
	return night
}

// warnUnreachableTelegram warns of workspaces whose messages would reach no approver.
func (s *section) warnUnreachableTelegram() {
	for name, w := range s.users(channelTelegram) {
		at := s.node.at("workspaces", name).key
		switch {
		case s.cfg.Telegram == nil:
			s.warn(at, "", "permesso telegram setup", "workspace %s uses channel telegram, but there is no [channels.telegram]: no approver is asked there", quote(name))
		case len(w.Approvers) == 0:
			s.warn(at, "", "add approvers", "workspace %s uses channel telegram, but has no approvers", quote(name))
		case w.ChatJID == "" && !slices.ContainsFunc(w.Approvers, func(name string) bool { return s.cfg.Approvers[name].IDs[channelTelegram] != "" }):
			s.warn(at, "", "telegram = { chat_id = … } here, or telegram = … in [approvers.NAME]", "no Telegram chat is configured for workspace %s", quote(name))
		}
	}
}
