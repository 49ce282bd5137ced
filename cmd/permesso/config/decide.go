package config

import (
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// The channels that identify people.
const (
	channelTelegram = "telegram"
	channelEmail    = "email"
	channelLocal    = "local" // terminal, CLI, browser
)

// operator is the name prefix of a local person without an approver entry. No
// approver can have such a name, because names have no colon.
const operator = "operator:"

// MayDecide reports whether p may decide in workspace ws, and the name that other
// people see:
//
//   - A person whose id is in [approvers] is that approver and never the operator.
//     The approver may decide where listed. If a principal is set, only the
//     principal may.
//   - A local person without an approver entry is the operator: a process that can
//     read keys/ could write decisions anyway. The operator may decide everywhere,
//     also if the list is empty or a principal is set.
//   - With local_decisions = false no local person may decide, approver or operator.
//   - A UID of an agent may not decide anywhere.
//
// Everything else is refused: unknown workspaces, unknown channels, empty ids.
func (c *Config) MayDecide(ws string, p approval.Person) (name string, ok bool) {
	if c == nil || ws == "" || p.ID == "" {
		return "", false
	}
	w, ok := c.Workspaces[ws]
	if !ok || p.Channel == channelLocal && (!w.LocalDecisions || c.isAgent(p.ID)) {
		return "", false
	}
	if name = c.identify(p); name == "" {
		return operatorName(p)
	}
	if !slices.Contains(w.Approvers, name) || w.Principal != "" && w.Principal != name {
		return "", false
	}
	return name, true
}

// identify returns the approver with this id, or "". Parse allows one approver per
// id; the order makes the result the same each time even without that check.
func (c *Config) identify(p approval.Person) string {
	for _, name := range sortedKeys(c.Approvers) {
		if matchesID(c.Approvers[name], p) {
			return name
		}
	}
	return ""
}

// matchesID compares ids of one kind. The caller has refused the empty id, so an
// approver's empty field never matches.
func matchesID(a approval.Approver, p approval.Person) bool {
	switch p.Channel {
	case channelTelegram:
		return a.Telegram == p.ID
	case channelEmail:
		return canonicalEmail(a.Email) == canonicalEmail(p.ID)
	case channelLocal:
		return a.Local == p.ID
	}
	return false
}

// operatorName returns the name of a local person without an approver entry.
func operatorName(p approval.Person) (string, bool) {
	switch {
	case p.Channel != channelLocal:
		return "", false
	case strings.HasPrefix(p.Name, operator) && len(p.Name) > len(operator):
		return p.Name, true
	}
	return operator + p.ID, true
}

// canonicalEmail lowers the domain. The part before the @ stays: its meaning is up
// to the receiving server. Only ASCII letters are lowered: Unicode would turn the
// Kelvin sign into a k.
func canonicalEmail(address string) string {
	i := strings.LastIndexByte(address, '@')
	if i < 0 {
		return address
	}
	return address[:i] + strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, address[i:])
}
