package config

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

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
		at := func(v string) time.Duration {
			d, _ := time.ParseDuration(strings.Replace(v, ":", "h", 1) + "m") // digits
			return d
		}
		night.From, night.To = at(from), at(to)
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
