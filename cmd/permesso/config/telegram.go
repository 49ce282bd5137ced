package config

import (
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
)

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
	t := &Telegram{
		TokenFile: s.secretPath("token_file"), ServerURL: s.webAddress("server_url", true), Webhook: s.webhook(),
		Feed: s.flag("feed", false),
	}
	s.rejectUnknown()
	s.cfg.Telegram = t
}

func (s *section) webhook() *TelegramWebhook {
	const example = `webhook = { listen = "127.0.0.1:8443", url = "https://gate.example.org/telegram", secret_file = "/path" }`
	sub := s.table("webhook", example)
	if sub == nil {
		return nil
	}
	w := &TelegramWebhook{
		Listen: sub.listenAddress("listen"), URL: sub.webAddress("url", false), SecretFile: sub.secretPath("secret_file"),
	}
	for _, key := range []string{"listen", "url", "secret_file"} {
		if !sub.has(key) {
			sub.fail(sub.node.val, key, example, "a webhook needs %s", key)
		}
	}
	sub.rejectUnknown()
	return w
}

// secretPath returns the path of a file with a secret.
func (s *section) secretPath(key string) string {
	n := s.get(key, text, "an absolute path")
	if n == nil {
		return ""
	}
	if !filepath.IsAbs(n.text) || filepath.Clean(n.text) != n.text || strings.ContainsFunc(n.text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		// Not quoted: it may be the secret itself.
		s.fail(n.val, key, "put the secret into a file that only the daemon can read: chmod 600", "%s must be an absolute path", key)
		return ""
	}
	return n.text
}

// webAddress returns a URL without credentials. If plain is true, http to this
// machine is allowed; otherwise it must be https.
func (s *section) webAddress(key string, plain bool) string {
	n := s.get(key, text, "")
	if n == nil {
		return ""
	}
	u, err := url.Parse(n.text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
		s.fail(n.val, key, `for example "https://gate.example.org/telegram"`, "%s must be a URL without user, query and fragment", key)
		return ""
	case u.Scheme == "http" && (!plain || !loopbackHost(u.Hostname())):
		s.fail(n.val, key, "https", "%s must use https: others could read the token", key)
		return ""
	}
	return strings.TrimRight(n.text, "/")
}

func loopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (s *section) listenAddress(key string) string {
	n := s.get(key, text, "")
	if n == nil {
		return ""
	}
	host, port, err := net.SplitHostPort(n.text)
	number, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || number == 0 || host != "" && net.ParseIP(host) == nil && host != "localhost" {
		s.fail(n.val, key, `for example "127.0.0.1:8443"`, "%s must be an address and a port", key)
		return ""
	}
	return n.text
}

// chat reads the Telegram chat of a workspace.
func (s *section) chat(name string) string {
	sub := s.table("telegram", "telegram = { chat_id = 123456789 }")
	if sub == nil {
		return ""
	}
	id := sub.number("chat_id", 0, -1<<52, 1<<52, "the numeric id of the chat, without quotes")
	thread := sub.number("thread_id", 0, 1, 1<<31-1, "the number of the forum's topic")
	if id == 0 && sub.has("thread_id") && !sub.has("chat_id") {
		sub.fail(sub.node.children["thread_id"].val, "thread_id", "chat_id = -100…", "thread_id needs the chat_id of its group")
	}
	if id > 0 && thread > 0 {
		sub.fail(sub.node.children["thread_id"].val, "thread_id", "", "a private chat has no topics")
	}
	sub.rejectUnknown()
	if id == 0 {
		return ""
	}
	s.cfg.TelegramChats[name] = TelegramChat{id, int(thread)}
	return "telegram:" + strconv.FormatInt(id, 10)
}

var hoursPattern = pattern(`^([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])$`)

// quietHours reads quiet_hours and night_timeout.
func (s *section) quietHours() approval.QuietHours {
	const hint = `from and to, by this machine's clock: "22:00-07:00"`
	var night approval.QuietHours
	if n := s.get("quiet_hours", text, hint); n != nil {
		m := hoursPattern().FindStringSubmatch(n.text)
		if m == nil || n.text[:5] == n.text[6:] {
			s.fail(n.val, "quiet_hours", hint, "quiet_hours must be two different times of day")
			return night
		}
		at := func(h, m string) time.Duration {
			d, _ := time.ParseDuration(h + "h" + m + "m") // digits
			return d
		}
		night.From, night.To = at(m[1], m[2]), at(m[3], m[4])
	}
	night.Timeout = s.duration("night_timeout", 0, time.Second, maxWait)
	if night.Timeout > 0 && !s.has("quiet_hours") {
		s.fail(s.node.children["night_timeout"].key, "night_timeout", hint, "night_timeout needs quiet_hours")
	}
	return night
}

// warnUnreachableTelegram warns of workspaces whose messages would reach no approver.
func (s *section) warnUnreachableTelegram() {
	for _, name := range sortedKeys(s.cfg.Workspaces) {
		w := s.cfg.Workspaces[name]
		if !slices.Contains(w.Channels, channelTelegram) {
			continue
		}
		switch {
		case s.cfg.Telegram == nil:
			s.warn(s.workspacePos(name), "", "permesso telegram setup", "workspace %s uses channel telegram, but there is no [channels.telegram]: no approver is asked there", quote(name))
		case len(w.Approvers) == 0:
			s.warn(s.workspacePos(name), "", "add approvers", "workspace %s uses channel telegram, but has no approvers", quote(name))
		case w.ChatJID == "" && !s.anyTelegram(w.Approvers):
			s.warn(s.workspacePos(name), "", "telegram = { chat_id = … } here, or telegram = … in [approvers.NAME]", "no Telegram chat is configured for workspace %s", quote(name))
		}
	}
}

func (s *section) anyTelegram(names []string) bool {
	for _, name := range names {
		if s.cfg.Approvers[name].Telegram != "" {
			return true
		}
	}
	return false
}

// workspacePos returns the position of a workspace.
func (s *section) workspacePos(ws string) pos {
	if n := s.node.children["workspaces"]; n != nil && n.children[ws] != nil {
		return n.children[ws].key
	}
	return pos{}
}
