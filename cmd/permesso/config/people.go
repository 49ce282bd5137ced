package config

import (
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// maxWait limits all timeouts of requests, like the limit of approval for agents.
const maxWait = 366 * 24 * time.Hour

var (
	namePattern = pattern(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	gatePattern = pattern(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
)

const nameRule = "1 to 63 of a-z 0-9 _ and -, beginning with a letter or digit"

func autonomies() []string { return []string{"readonly", "supervised", "full"} }

// file reads the top of the file and all tables. The order matters: names must be
// known before they are used.
func (r *reader) file(root *node) {
	s := r.section(root, "")
	c := r.cfg
	c.GateName = s.gate()
	c.RunBefore = s.duration("run_before", c.RunBefore, time.Second, 24*time.Hour)
	c.LogLevel = s.oneOf("log_level", c.LogLevel, []string{"debug", "info", "warn", "error"})
	c.LogFormat = s.oneOf("log_format", c.LogFormat, []string{"auto", "json", "console"})
	c.Language = s.oneOf("language", c.Language, chat.Languages())
	c.LocalDecisions = s.flag("local_decisions", c.LocalDecisions)
	c.Socket = s.socket()
	c.Listen, c.ListenSet = s.listen()
	c.ListenHosts = s.listenHosts()
	c.UI, c.UISet = s.ui()
	s.approvers()
	s.workspaces()
	s.tools()
	s.provers()
	s.rules()
	s.retention()
	s.checkAdminWorkspaces()
	s.channels()
	s.rejectUnknown()
}

func (s *section) gate() string {
	n := s.get("gate", text, "")
	switch {
	case n == nil:
		s.setDefault("gate", DefaultGateName)
		return DefaultGateName
	case !gatePattern().MatchString(n.text):
		s.fail(n.val, "gate", "", "gate must be a host name: 1 to 63 of a-z 0-9 . and -")
	}
	return n.text
}

func (s *section) approvers() {
	owners := map[string]string{} // id, with its kind -> approver
	s.each("approvers", "write [approvers.NAME]", func(name string, sub *section) {
		if !namePattern().MatchString(name) {
			sub.fail(sub.node.key, "", "", "approver %s: a name is %s", quote(name), nameRule)
		}
		a := approval.Approver{
			Name:     name,
			Telegram: sub.telegramID(),
			Email:    sub.email(),
			Local:    sub.localUID(),
			Language: sub.oneOf("language", s.cfg.Language, chat.Languages()),
		}
		sub.uniqueID(owners, "telegram", a.Telegram, name)
		sub.uniqueID(owners, "email", strings.ToLower(a.Email), name)
		sub.uniqueID(owners, "local", a.Local, name)
		if !sub.has("telegram") && !sub.has("email") && !sub.has("local") {
			sub.warn(sub.node.key, "", "add telegram, email or local", "approver %s has no id, so the gate cannot recognize this person", quote(name))
		}
		sub.rejectUnknown()
		s.cfg.Approvers[name] = a
	})
}

// uniqueID reports an id that two approvers have.
func (s *section) uniqueID(owners map[string]string, key, id, name string) {
	if id == "" {
		return
	}
	if other, taken := owners[key+" "+id]; taken {
		s.fail(s.node.children[key].val, key, "each id belongs to one person", "approver %[2]s already has this %[1]s id", key, quote(other))
		return
	}
	owners[key+" "+id] = name
}

func (s *section) telegramID() string {
	const hint = "the numeric id, without quotes; never a @username, which can change its owner"
	id := s.number("telegram", 0, 1, 1<<52, hint)
	if id == 0 {
		return ""
	}
	return strconv.FormatInt(id, 10)
}

// email takes only ASCII addresses: characters of other scripts that look like
// ASCII must not decide who may approve.
func (s *section) email() string {
	n := s.get("email", text, "")
	if n == nil {
		return ""
	}
	a, err := mail.ParseAddress(n.text)
	if err != nil || a.Address != n.text || strings.ContainsFunc(n.text, func(r rune) bool { return r > unicode.MaxASCII || r <= ' ' }) {
		s.fail(n.val, "email", `the bare address: "ann@example.org"`, "email must be an email address")
		return ""
	}
	return canonicalEmail(n.text)
}

func (s *section) workspaces() {
	if !s.has("workspaces") {
		s.known = append(s.known, "workspaces")
		nothing := s.section(newTable(pos{}), "workspaces."+DefaultWorkspace)
		s.cfg.Workspaces[DefaultWorkspace] = nothing.workspace(DefaultWorkspace)
		return
	}
	s.each("workspaces", "write [workspaces.NAME]", func(name string, sub *section) {
		if !namePattern().MatchString(name) {
			sub.fail(sub.node.key, "", "", "workspace %s: a name is %s", quote(name), nameRule)
		}
		s.cfg.Workspaces[name] = sub.workspace(name)
		if uids := sub.agentUIDs(); len(uids) > 0 {
			s.cfg.AgentUIDs[name] = uids
		}
		if c := sub.emailCeiling(); c != "" {
			s.cfg.EmailCeiling[name] = c
		}
		sub.rejectUnknown()
	})
	if n := s.node.children["workspaces"]; n.kind == table && len(n.order) == 0 {
		s.fail(n.key, "workspaces", "write [workspaces.NAME], or remove it", "no workspace is configured here")
	}
}

func (s *section) workspace(name string) approval.Workspace {
	w := s.cfg.workspace(name)
	w.Autonomy = s.oneOf("autonomy", w.Autonomy, autonomies())
	w.Approvers = s.approverNames()
	w.Principal = s.principal(w.Approvers)
	w.LocalDecisions = s.flag("local_decisions", w.LocalDecisions)
	w.Language = s.oneOf("language", w.Language, chat.Languages())
	w.Channels = s.channelNames()
	w.ChatJID = s.chat(name)
	s.timeouts(&w)
	w.QuietHours = s.quietHours()
	s.limits(&w.Limits)
	s.policySettings(&w)
	if len(w.Approvers) == 0 && !w.LocalDecisions {
		s.warn(s.node.key, "", "add approvers, or set local_decisions = true", "no person may approve in workspace %s", quote(name))
	}
	return w
}

func (s *section) approverNames() []string {
	var names []string
	for _, n := range s.texts("approvers", `a list of names: approvers = ["ann"]`) {
		switch {
		case slices.Contains(names, n.text):
			s.fail(n.val, "approvers", "", "approver %s is listed twice", quote(n.text))
		case s.isDefined(n, "approvers"):
			names = append(names, n.text)
		}
	}
	return names
}

// isDefined reports whether n names one of [approvers]. It does not quote a text
// that cannot be a name.
func (s *section) isDefined(n *node, key string) bool {
	if _, ok := s.cfg.Approvers[n.text]; ok {
		return true
	}
	if !namePattern().MatchString(n.text) {
		s.fail(n.val, key, "", "%s: an approver's name is %s", key, nameRule)
		return false
	}
	s.fail(n.val, key, didYouMean(n.text, sortedKeys(s.cfg.Approvers), "define it: [approvers."+n.text+"]"),
		"approver %s is not defined", quote(n.text))
	return false
}

func (s *section) principal(approvers []string) string {
	n := s.get("principal", text, "the name of one approver")
	if n == nil || !s.isDefined(n, "principal") {
		return ""
	}
	if !slices.Contains(approvers, n.text) {
		s.fail(n.val, "principal", "add it to approvers", "principal %s is not an approver of this workspace", quote(n.text))
	}
	return n.text
}

func (s *section) channelNames() []string {
	const hint = "terminal, CLI and browser need no entry: they are on unless local_decisions = false"
	var names []string
	for _, n := range s.texts("channels", `a list of names: channels = ["telegram"]`) {
		known := channelKinds()
		switch {
		case slices.Contains([]string{"terminal", "cli", "web", "browser"}, n.text):
			s.fail(n.val, "channels", hint, "channels must hold %s", list(known))
		case s.checkAllowed(n, "channels", known):
			names = append(names, n.text)
		}
	}
	return names
}

func (s *section) timeouts(w *approval.Workspace) {
	w.Timeout = s.duration("approval_timeout", w.Timeout, time.Second, maxWait)
	isSet := s.has("approval_timeout_max")
	w.MaxTimeout = s.duration("approval_timeout_max", w.MaxTimeout, time.Second, maxWait)
	if w.MaxTimeout >= w.Timeout {
		return
	}
	if isSet {
		s.fail(s.node.children["approval_timeout_max"].val, "approval_timeout_max", "", "approval_timeout_max is shorter than approval_timeout, which is %s", short(w.Timeout))
	}
	w.MaxTimeout = w.Timeout
}

func (s *section) limits(l *approval.Limits) {
	sub := s.table("limits", "limits = { pending = 32 }")
	if sub == nil {
		sub = s.section(newTable(pos{}), s.fullKey("limits"))
	}
	count := func(key string, field *int, most int64) {
		*field = int(sub.number(key, int64(*field), 1, most, ""))
	}
	count("pending", &l.Pending, 10_000)
	count("ask_per_minute", &l.AskPerMinute, 100_000)
	count("per_minute", &l.PerMinute, 100_000)
	l.RequestSize = sub.size("request_size", l.RequestSize, 1<<10, 16<<20)
	count("running", &l.Running, 1_000)
	sub.rejectUnknown()
}
