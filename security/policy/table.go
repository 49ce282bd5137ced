package policy

import "github.com/permesso-dev/permesso/approval"

// Table is the base ruling for a level of autonomy and a capability. Each level has
// one rule. An unknown level or capability is a deny.
//
//	readonly    none: allow · fs:read mail:read calendar:read: ask · else deny
//	supervised  none: allow · else ask
//	full        always: ask · else allow
func Table(autonomy, capability string) approval.Outcome {
	c, ok := approval.CapabilityNamed(capability)
	if !ok {
		return approval.Deny
	}
	switch autonomy {
	case approval.Full:
		if c.Default == approval.AskAlways {
			return approval.Ask
		}
		return approval.Allow
	case approval.Supervised:
		if c.Default == approval.AskNone {
			return approval.Allow
		}
		return approval.Ask
	case approval.ReadOnly:
		switch {
		case c.Default == approval.AskNone:
			return approval.Allow
		case isPersonalRead(c.Name):
			return approval.Ask
		}
	}
	return approval.Deny
}

func isPersonalRead(capability string) bool {
	return capability == "fs:read" || capability == "mail:read" || capability == "calendar:read"
}

// nextMilderLevel is the lowest level above autonomy at which the table is milder,
// "" if there is none.
func nextMilderLevel(autonomy, capability string) string {
	have := Table(autonomy, capability)
	for _, level := range approval.Levels() {
		if approval.LowerLevel(level, autonomy) == autonomy && level != autonomy && Table(level, capability) > have {
			return level
		}
	}
	return ""
}
