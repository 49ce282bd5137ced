package policy

import (
	"slices"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
)

// traits are the four trust properties of one request, with defaults applied.
type traits struct {
	source, secret, sink, dangerous approval.Property
	reads, writes                   bool
	stated                          bool // dangerous is the operator's word, not implied
}

const (
	isTrue    approval.Property = "true"
	isFalse   approval.Property = "false"
	forbidden approval.Property = "forbidden"
)

// implied are the properties that are true for a tool of a capability which states nothing
// else.
var implied = map[string]approval.Trust{
	"fs:read":       {SecretData: isTrue},
	"fs:write":      {DangerousWrites: isTrue},
	"code:exec":     {PublicSource: isTrue, SecretData: isTrue, PublicSink: isTrue, DangerousWrites: isTrue},
	"network:http":  {PublicSource: isTrue, PublicSink: isTrue},
	"llm:online":    {PublicSink: isTrue},
	"mail:read":     {PublicSource: isTrue, SecretData: isTrue},
	"mail:send":     {PublicSink: isTrue, DangerousWrites: isTrue},
	"channel:in":    {PublicSource: isTrue},
	"channel:out":   {PublicSink: isTrue, DangerousWrites: isTrue},
	"calendar:read": {PublicSource: isTrue, SecretData: isTrue},
	"llm:local":     {}, "time:read": {}, "parse:local": {},
}

// Implied lists the properties that are true for a tool of a capability that states nothing
// else, by their keys.
func Implied(capability string) (keys []string) {
	t := implied[capability]
	for _, p := range []struct {
		key string
		is  approval.Property
	}{
		{"public_source", t.PublicSource},
		{"secret_data", t.SecretData},
		{"public_sink", t.PublicSink},
		{"dangerous_writes", t.DangerousWrites},
	} {
		if p.is == isTrue {
			keys = append(keys, p.key)
		}
	}
	return keys
}

// traitsOf applies the default for each unstated property: what the capability implies. A
// tool without a capability has all four. A release-only request has none, but that what
// the agent itself does may be dangerous.
func traitsOf(f *approval.Facts, byRule approval.Trust) traits {
	c, ok := facts.CapabilityNamed(f.Capability)
	defaults, known := implied[c.Name]
	switch {
	case f.Tool == "":
		defaults = approval.Trust{DangerousWrites: isTrue}
	case !known:
		defaults = implied["code:exec"]
	}
	own := f.Trust
	for _, p := range [...]struct {
		own  *approval.Property
		rule approval.Property
	}{
		{&own.PublicSource, byRule.PublicSource},
		{&own.SecretData, byRule.SecretData},
		{&own.PublicSink, byRule.PublicSink},
	} {
		if p.rule != "" && *p.own != forbidden {
			*p.own = p.rule
		}
	}
	if f.Tool == "" && own.DangerousWrites != forbidden {
		own.DangerousWrites = isTrue // people allow what the agent does itself, or a grant
	}
	none := ok && c.Default == facts.AskNone
	read := ok && isRead(c.Name)
	return traits{
		source: stated(own.PublicSource, defaults.PublicSource), secret: stated(own.SecretData, defaults.SecretData),
		sink: stated(own.PublicSink, defaults.PublicSink), dangerous: stated(own.DangerousWrites, defaults.DangerousWrites),
		reads: !ok || none || read || readsAndWrites(c.Name), writes: !ok || !none && !read,
		stated: own.DangerousWrites != "" || !ok,
	}
}

// stated is a property as configured, else its default. An invalid value forbids.
func stated(p, byDefault approval.Property) approval.Property {
	switch p {
	case isTrue, isFalse, forbidden:
		return p
	case "":
		if byDefault == isTrue {
			return isTrue
		}
		return isFalse
	}
	return forbidden
}

func isRead(capability string) bool {
	return slices.Contains([]string{"fs:read", "mail:read", "calendar:read", "time:read"}, capability)
}

// readsAndWrites says whether the capability also returns data from its target.
func readsAndWrites(capability string) bool {
	return slices.Contains([]string{"code:exec", "network:http", "llm:online"}, capability)
}

// forbids names the forbidden property that this request would use, "" if none, and
// the code of the reason.
func (t traits) forbids() (property, reason string) {
	switch {
	case t.reads && t.source == forbidden:
		return "public_source", "forbidden_read"
	case t.reads && t.secret == forbidden:
		return "secret_data", "forbidden_read"
	case t.writes && t.sink == forbidden:
		return "public_sink", "forbidden_write"
	case t.writes && t.dangerous == forbidden:
		return "dangerous_writes", "forbidden_write"
	}
	return "", ""
}

// taints lists the taints that running the request adds to its client.
func (t traits) taints() []string {
	var add []string
	if t.reads && t.source == isTrue {
		add = append(add, grant.TaintCorruption)
	}
	if t.reads && t.secret == isTrue {
		add = append(add, grant.TaintSecret)
	}
	return add
}

// asks says which of the two trust reasons to ask apply. Dangerous writes that only the
// capability implies do not ask: the table does.
func (t traits) asks(tainted map[string]bool) (dangerous, trifecta bool) {
	if !t.writes {
		return false, false
	}
	trifecta = tainted[grant.TaintCorruption] && tainted[grant.TaintSecret] && t.sink == isTrue
	return t.dangerous == isTrue && t.stated, trifecta
}

// ReadsPublicSource says whether running a tool may read public content.
func ReadsPublicSource(t approval.Tool) bool {
	tr := traitsOf(&approval.Facts{Tool: t.Name, KnownTool: true, Capability: t.Capability, Trust: t.Trust}, approval.Trust{})
	return tr.reads && tr.source == isTrue
}

// Table is the base ruling for a level of autonomy and a capability. Each level has
// one rule. An unknown level or capability is a deny.
//
//	readonly    none: allow · fs:read mail:read calendar:read: ask · else deny
//	supervised  none: allow · else ask
//	full        always: ask · else allow
func Table(autonomy, capability string) approval.Outcome {
	c, ok := facts.CapabilityNamed(capability)
	if !ok {
		return approval.Deny
	}
	switch autonomy {
	case grant.Full:
		if c.Default == facts.AskAlways {
			return approval.Ask
		}
		return approval.Allow
	case grant.Supervised:
		if c.Default == facts.AskNone {
			return approval.Allow
		}
		return approval.Ask
	case grant.ReadOnly:
		switch {
		case c.Default == facts.AskNone:
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
	for _, level := range grant.Levels() {
		if grant.LowerLevel(level, autonomy) == autonomy && level != autonomy && Table(level, capability) > have {
			return level
		}
	}
	return ""
}
