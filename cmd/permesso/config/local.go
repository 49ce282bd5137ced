package config

import (
	"slices"
	"strconv"

	"github.com/permesso-dev/permesso/approval"
)

// DefaultSocket is the socket of a daemon that runs as a system user.
const DefaultSocket = "/run/permesso/permesso.sock"

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

// systemUser reports whether uid is one of a service: below 1000, systemd's dynamic
// users, and 65534 (the overflow user).
func systemUser(uid int64) bool {
	return uid > 0 && uid < 1000 || uid >= 61184 && uid <= 65534
}

func (s *section) socket() string {
	n := s.get("socket", text, "")
	if n == nil {
		return ""
	}
	if !socketPath(n.text) {
		s.fail(n.val, "socket", `for example "`+DefaultSocket+`"`, "socket must be an absolute path of at most %d bytes", maxSocket)
		return ""
	}
	return n.text
}

// localUID is the UID of an approver. Handlers run as the daemon's user: if that
// were an approver, an approved action could approve the next request.
func (s *section) localUID() string {
	id := s.number("local", -1, 0, highestUID, uidHint)
	if id < 0 {
		return ""
	}
	if id == int64(s.servedBy) && systemUser(id) {
		s.fail(s.node.children["local"].val, "local", "use the person's own UID: "+uidHint, "local is the UID of the daemon and all tools, which cannot be an approver")
	}
	return strconv.FormatInt(id, 10)
}

// agentUIDs reads one UID or a list of them.
func (s *section) agentUIDs() []string {
	const key = "agent_uid"
	n := s.node.children[key]
	if n == nil || n.kind != array {
		if id := s.number(key, 0, 1, highestUID, uidHint); id > 0 {
			return s.agentUID(nil, n, strconv.FormatInt(id, 10))
		}
		return nil
	}
	s.known = append(s.known, key)
	var uids []string
	for _, item := range n.items {
		id, err := strconv.ParseInt(item.text, 0, 64)
		if item.kind != integer || err != nil || id < 1 || id > highestUID {
			s.fail(item.val, key, uidHint, "%s must hold whole numbers from 1 to %d", key, highestUID)
			continue
		}
		uids = s.agentUID(uids, item, strconv.FormatInt(id, 10))
	}
	return uids
}

func (s *section) agentUID(uids []string, n *node, uid string) []string {
	if name := s.cfg.Approver(approval.Person{Channel: approval.EntranceLocal, ID: uid}); name != "" {
		s.fail(n.val, "agent_uid", "run the agent under its own UID or in a container", "agent_uid belongs to approver %s: the agent could approve itself", quote(name))
	}
	if uid == strconv.Itoa(s.servedBy) {
		s.fail(n.val, "agent_uid", "run the agent under its own UID or in a container", "agent_uid is the UID of the daemon: the agent could bypass the gate")
	}
	return append(uids, uid)
}
