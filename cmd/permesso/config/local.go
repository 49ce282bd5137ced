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

// checkLocalUID checks the UID of an approver. Handlers run as the daemon's user: if
// that were an approver, an approved action could approve the next request.
func (s *section) checkLocalUID() {
	if id, set := s.values["local"].(int64); set && id == int64(s.servedBy) && systemUser(id) {
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
