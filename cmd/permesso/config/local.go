package config

import (
	"slices"
	"strconv"

	"github.com/permesso-dev/permesso/approval"
)

// DefaultSocket is where a gate that a system user runs is looked for.
const DefaultSocket = "/run/permesso/permesso.sock"

// maxSocket is the longest path that the kernel binds a socket to.
const maxSocket = 107

const (
	highestUID = 1<<32 - 2
	uidHint    = "the number that `id -u NAME` prints, without quotes"
)

// LocalApprover is the approver whom a local uid belongs to. Unlike MayDecide
// it knows no operator: whoever comes through the socket could not read keys/.
func (c *Config) LocalApprover(uid string) (name string, ok bool) {
	if c == nil || uid == "" || c.isAgent(uid) {
		return "", false
	}
	name = c.identify(approval.Person{Channel: channelLocal, ID: uid})
	return name, name != ""
}

// isAgent says whether an agent of any workspace runs as uid: one that may not
// decide for itself shall not decide for its neighbour either.
func (c *Config) isAgent(uid string) bool {
	for _, uids := range c.AgentUIDs {
		if slices.Contains(uids, uid) {
			return true
		}
	}
	return false
}

// systemUser says whether uid is one of those that services run as: below 1000,
// systemd's dynamic users, and nobody.
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

// localUID is an approver's. A handler runs as the gate's own user: were that
// an approver, what was approved could approve the next.
func (s *section) localUID() string {
	id := s.number("local", -1, 0, highestUID, uidHint)
	if id < 0 {
		return ""
	}
	if id == int64(s.servedBy) && systemUser(id) {
		s.fail(s.node.children["local"].val, "local", "a person has a uid of their own: "+uidHint, "local is the user that runs the gate and every tool: it cannot approve")
	}
	return strconv.FormatInt(id, 10)
}

// agentUIDs is a uid or a list of them.
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
	if name := s.cfg.identify(approval.Person{Channel: channelLocal, ID: uid}); name != "" {
		s.fail(n.val, "agent_uid", "give the agent a uid of its own, or a container", "agent_uid is that of approver %s: the agent could approve itself", quote(name))
	}
	if uid == strconv.Itoa(s.servedBy) {
		s.fail(n.val, "agent_uid", "give the agent a uid of its own, or a container", "agent_uid is the user that runs the gate: no gate holds such an agent back")
	}
	return append(uids, uid)
}
