package config

import (
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// The channels by which people are recognised.
const (
	channelTelegram = "telegram"
	channelEmail    = "email"
	channelLocal    = "local" // terminal, CLI, browser
)

// operator begins the name of a local person whom no approver entry names. No
// approver can be called so: the colon is not allowed there.
const operator = "operator:"

// MayDecide says whether p may decide in workspace ws, and by which name
// others are told of it:
//
//   - Somebody whose id stands in [approvers] is that person and nobody else.
//     They decide where they are listed, and with a principal set only as the
//     principal.
//   - A local person whom no approver entry claims is the operator: whoever
//     can read keys/ could write decisions anyhow. They decide everywhere,
//     also where the list is empty or a principal is set.
//   - With local_decisions = false nobody decides locally, by either road.
//   - A uid that an agent runs as decides nothing anywhere, whatever else is
//     said of it.
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

// identify is the approver whom the id belongs to, or "". Parse lets an id
// belong to one only; the order keeps the answer steady all the same.
func (c *Config) identify(p approval.Person) string {
	for _, name := range sortedKeys(c.Approvers) {
		if matchesID(c.Approvers[name], p) {
			return name
		}
	}
	return ""
}

// owns compares ids of one kind. The caller has refused the empty id, so an
// approver's empty field matches nobody.
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

// operatorName is the name of a local person without an entry of their own.
func operatorName(p approval.Person) (string, bool) {
	switch {
	case p.Channel != channelLocal:
		return "", false
	case strings.HasPrefix(p.Name, operator) && len(p.Name) > len(operator):
		return p.Name, true
	}
	return operator + p.ID, true
}

// canonicalEmail lowers the domain, which has no case; the part before the @
// is the receiving server's business and stays. Only ASCII letters are
// lowered: Unicode would fold the Kelvin sign into a k.
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
