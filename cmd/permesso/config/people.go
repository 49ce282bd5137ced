package config

import (
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat"
)

const dayLong = 24 * time.Hour

// maxWait limits all timeouts of requests, like the limit of approval for agents.
const maxWait = 366 * dayLong

var namePattern = pattern(`^[a-z0-9][a-z0-9_-]{0,62}$`)

const nameRule = "1 to 63 of a-z 0-9 _ and -, beginning with a letter or digit"

func validName(name string) bool { return namePattern().MatchString(name) }

// checkName reports an invalid name of a table.
func (s *section) checkName(what, name string) {
	if !validName(name) {
		s.fail(s.node.key, "", "", what+" %s: a name is %s", quote(name), nameRule)
	}
}

// file reads the top of the file and all tables. The order matters: names must be
// known before they are used.
func (r *reader) file(root *node) {
	s := r.section(root, "", permessoKeys())
	c := r.cfg
	c.GateName, c.RunBefore = s.text("gate"), s.duration("run_before")
	c.LogLevel, c.LogFormat, c.Language = s.text("log_level"), s.text("log_format"), s.text("language")
	c.LocalDecisions = s.flag("local_decisions")
	c.Socket = s.text("socket")
	c.Listen, c.ListenSet = s.listen(), s.has("listen")
	c.ListenHosts = s.texts("listen_hosts")
	c.Elicitation = s.text("elicitation")
	c.UI, c.UISet = s.ui(), s.has("ui")
	s.approvers()
	s.workspaces()
	s.mcpServers()
	s.tools()
	s.provers()
	s.rules()
	s.retention()
	s.checkAdminWorkspaces()
	s.channels()
	s.webhooks()
	s.adviseRules()
	s.adviseTools()
}

func (s *section) approvers() {
	owners := map[string]string{} // id, with its kind -> approver
	s.each("approvers", func(name string, sub *section) {
		sub.checkName("approver", name)
		a := approval.Approver{Name: name, IDs: map[string]string{}, Language: sub.text("language"), Autonomy: sub.text("autonomy")}
		written := false
		for _, k := range sub.self.Keys {
			if k.Name == "language" || k.Name == "autonomy" {
				continue
			}
			written = written || sub.has(k.Name)
			if id := approverID(sub.values[k.Name]); id != "" {
				sub.uniqueID(owners, k.Name, strings.ToLower(id), name)
				a.IDs[k.Name] = id
			}
		}
		sub.checkLocalUID()
		if !written {
			sub.warn(sub.node.key, "", "add telegram, email or local", "approver %s has no id, so the gate cannot recognize this person", quote(name))
		}
		s.cfg.Approvers[name] = a
	})
}

// approverID is an approver's id on one channel, "" if there is none.
func approverID(value any) string {
	switch v := value.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case string:
		return canonicalEmail(v)
	}
	return ""
}

// uniqueID reports an id that two approvers have.
func (s *section) uniqueID(owners map[string]string, key, id, name string) {
	if other, taken := owners[key+" "+id]; taken {
		s.fail(s.position(key), key, "each id belongs to one person", "approver %[2]s already has this %[1]s id", key, quote(other))
		return
	}
	owners[key+" "+id] = name
}

// validEmail takes only ASCII addresses: characters of other scripts that look like
// ASCII must not decide who may approve.
func validEmail(v string) bool {
	a, err := mail.ParseAddress(v)
	return err == nil && a.Address == v && !strings.ContainsFunc(v, func(r rune) bool { return r > unicode.MaxASCII || r <= ' ' })
}

// emptyTable and defaultWorkspace are tables that need not be written.
func emptyTable() *node { return newTable(pos{}) }

func defaultWorkspace() *node {
	n := emptyTable()
	n.set(DefaultWorkspace, emptyTable())
	return n
}

func (s *section) workspaces() {
	s.each("workspaces", func(name string, sub *section) {
		sub.checkName("workspace", name)
		s.cfg.Workspaces[name] = sub.workspace(name)
		if uids := sub.agentUIDs(); len(uids) > 0 {
			s.cfg.AgentUIDs[name] = uids
		}
		if c := sub.text("email_ceiling"); c != "" {
			s.cfg.EmailCeiling[name] = approval.Reversibility(c)
		}
	})
	if n := s.node.children["workspaces"]; n != nil && n.kind == table && len(n.order) == 0 {
		s.fail(n.key, "workspaces", "write [workspaces.NAME], or remove it", "no workspace is configured here")
	}
}

func (s *section) workspace(name string) approval.Workspace {
	w := approval.Workspace{
		Name: name, Autonomy: s.text("autonomy"), Approvers: s.approverNames(), Channels: s.channelNames(),
		LocalDecisions: s.flag("local_decisions"), Language: s.text("language"),
		ChatJID: s.chat(name), QuietHours: s.quietHours(), Limits: s.limits(),
		Secrets: s.flag("contains_secrets"), Admin: s.flag("admin"),
		NoFolder: !s.flag("folder"), BindsSessions: s.flag("binds_sessions"),
		RememberExec: s.text("remember_exec_cmd") == "any", ReleaseTrust: s.releaseTrust(),
		Sessions: values[string](s, "sessions"), OwnDomains: s.texts("own_domains"),
	}
	w.Principal = s.principal(w.Approvers)
	if level := s.cfg.Approvers[w.Principal].Autonomy; level != "" {
		w.Autonomy = grant.LowerLevel(w.Autonomy, level)
	}
	s.timeouts(&w)
	s.policyLimits(name)
	if w.BindsSessions && !w.NoFolder {
		const hint = "add folder = false, and give the agent's host a key: permesso key create"
		s.fail(s.position("binds_sessions"), "binds_sessions", hint,
			"binds_sessions needs folder = false: an agent that writes request files chooses its session ids itself")
	}
	switch here := s.localApprovers(); {
	case len(w.Approvers) > 0:
	case !w.LocalDecisions:
		s.warn(s.node.key, "", "add approvers, or set local_decisions = true", "no person may approve in workspace %s", quote(name))
	case len(here) > 0:
		s.warn(s.node.key, "", "approvers = ["+quote(here[0])+"] in [workspaces."+name+"]", "workspace %s names no approvers: %s, whose UID is in [approvers], may not decide there", quote(name), list(here))
	}
	return w
}

// localApprovers are those with a UID.
func (s *section) localApprovers() []string {
	return slices.DeleteFunc(sortedKeys(s.cfg.Approvers), func(name string) bool { return s.cfg.Approvers[name].IDs[approval.EntranceLocal] == "" })
}

func (s *section) approverNames() []string {
	var names []string
	for _, n := range s.items("approvers") {
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
	if !validName(n.text) {
		s.fail(n.val, key, "", "%s: an approver's name is %s", key, nameRule)
		return false
	}
	s.fail(n.val, key, didYouMean(n.text, sortedKeys(s.cfg.Approvers), "define it: [approvers."+n.text+"]"),
		"approver %s is not defined", quote(n.text))
	return false
}

func (s *section) principal(approvers []string) string {
	name := s.text("principal")
	n := s.node.children["principal"]
	if n == nil || n.kind != text || !s.isDefined(n, "principal") {
		return ""
	}
	if !slices.Contains(approvers, name) {
		s.fail(n.val, "principal", "add it to approvers", "principal %s is not an approver of this workspace", quote(name))
	}
	return name
}

func (s *section) channelNames() []string {
	const hint = "terminal, CLI and browser need no entry: they are on unless local_decisions = false"
	var names []string
	for _, n := range s.items("channels") {
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
	w.Timeout, w.MaxTimeout = s.duration("approval_timeout"), s.duration("approval_timeout_max")
	if w.MaxTimeout >= w.Timeout {
		return
	}
	if s.has("approval_timeout_max") {
		s.fail(s.position("approval_timeout_max"), "approval_timeout_max", "", "approval_timeout_max is shorter than approval_timeout, which is %s", short(w.Timeout))
	}
	w.MaxTimeout = w.Timeout
}

func (s *section) limits() approval.Limits {
	l := s.table("limits")
	if l == nil {
		return approval.Limits{}.WithDefaults()
	}
	return approval.Limits{
		Pending: int(l.number("pending")), AskPerMinute: int(l.number("ask_per_minute")), PerMinute: int(l.number("per_minute")),
		RequestSize: int(l.number("request_size")), Running: int(l.number("running")), Stored: l.number("stored"),
	}
}

// Where a daemon that runs as a system user has its approver socket, its HOME and its
// configuration. The system unit repeats them.
const (
	DefaultSocket = "/run/permesso/permesso.sock"
	SystemHome    = "/var/lib/permesso"
	SystemFile    = "/etc/permesso/permesso.toml"
)

// maxSocket is the longest path of a Unix socket in bytes.
const maxSocket = 107

const (
	highestUID = 1<<32 - 2
	uidHint    = "the number that `id -u NAME` prints, without quotes"
)

// IsAgent reports whether an agent of any workspace runs as uid: an agent may not
// decide requests of other agents either.
func (c *Config) IsAgent(uid string) bool {
	for _, uids := range c.AgentUIDs {
		if slices.Contains(uids, uid) {
			return true
		}
	}
	return false
}

// AgentsOf returns the UIDs of a workspace's agents.
func (c *Config) AgentsOf(ws string) (uids []uint32) {
	for _, text := range c.AgentUIDs[ws] {
		if uid, err := strconv.ParseUint(text, 10, 32); err == nil { // the configuration was checked
			uids = append(uids, uint32(uid))
		}
	}
	return uids
}

// overflowUID is what a process sees in place of a UID that is not mapped into its namespace.
const overflowUID = 65534

// systemUser reports whether uid is one of a service: below 1000, systemd's dynamic
// users, and 65534 (the overflow user).
func systemUser(uid int64) bool {
	return uid > 0 && uid < 1000 || uid >= 61184 && uid <= overflowUID
}

// checkLocalUID checks the UID of an approver: the socket refuses 65534. Handlers run as the daemon's user: if
// that were an approver, an approved action could approve the next request.
func (s *section) checkLocalUID() {
	id, set := s.values["local"].(int64)
	switch {
	case !set:
	case id == overflowUID:
		s.fail(s.position("local"), "local", "use the person's own UID: "+uidHint, "local = 65534 is no person: it stands for every UID that is not known here")
	case id == int64(s.servedBy) && systemUser(id):
		s.fail(s.position("local"), "local", "use the person's own UID: "+uidHint, "local is the UID of the daemon and all tools, which cannot be an approver")
	}
}

// agentUIDs returns the UIDs of agents, of which none may decide.
func (s *section) agentUIDs() (uids []string) {
	const hint = "run the agent under its own UID or in a container"
	for _, n := range s.items("agent_uid") {
		id, _ := strconv.ParseInt(n.text, 0, 64) // in range
		uid := strconv.FormatInt(id, 10)
		if name := s.cfg.Approver(approval.Person{Channel: approval.EntranceLocal, ID: uid}); name != "" {
			s.fail(n.val, "agent_uid", hint, "agent_uid belongs to approver %s: the agent could approve itself", quote(name))
		}
		if uid == strconv.Itoa(s.servedBy) {
			s.fail(n.val, "agent_uid", hint, "agent_uid is the UID of the daemon: the agent could bypass the gate")
		}
		uids = append(uids, uid)
	}
	return uids
}

// The channels that identify people.
const (
	channelTelegram = "telegram"
	channelEmail    = "email"
)

// Approver returns the approver with the person's id, or "". An API key names its
// approver by itself. Parse allows one approver per id; the order makes the result the
// same each time even without that check.
func (c *Config) Approver(p approval.Person) string {
	if p.ID == "" {
		return ""
	}
	for _, name := range sortedKeys(c.Approvers) {
		if p.Channel == approval.EntranceKey && name == p.Name || matchesID(c.Approvers[name], p) {
			return name
		}
	}
	return ""
}

// matchesID compares the ids of one channel. The caller has refused the empty id, so an
// id that the approver does not have never matches.
func matchesID(a approval.Approver, p approval.Person) bool {
	channel := p.Channel
	if channel == approval.EntranceSocket {
		channel = approval.EntranceLocal
	}
	return canonicalEmail(a.IDs[channel]) == canonicalEmail(p.ID)
}

// canonicalEmail lowers the domain. The part before the @ stays: its meaning is up
// to the receiving server. Only ASCII letters are lowered: Unicode would turn the
// Kelvin sign into a k.
func canonicalEmail(address string) string {
	i := strings.LastIndexByte(address, '@')
	if i < 0 {
		return address
	}
	return address[:i] + chat.LowerASCII(address[i:])
}
