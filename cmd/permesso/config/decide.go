package config

import (
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

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
