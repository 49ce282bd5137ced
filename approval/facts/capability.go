package facts

import "slices"

// AskMode says how often a capability needs a person's approval by default.
type AskMode string

// The three ask modes.
const (
	AskNone      AskMode = "none"
	AskPerTarget AskMode = "per_target"
	AskAlways    AskMode = "always"
)

// Capability is one entry of the closed set of tool capabilities.
type Capability struct {
	Name       string
	Critical   bool
	Default    AskMode
	TargetKind string // exact, host, path_glob, none
}

// Capabilities lists the closed set, in display order.
func Capabilities() []Capability { return slices.Clone(capabilities[:]) }

var capabilities = [...]Capability{
	{"fs:read", false, AskPerTarget, "path_glob"},
	{"fs:write", true, AskPerTarget, "path_glob"},
	{"code:exec", true, AskAlways, "exact"},
	{"network:http", false, AskPerTarget, "host"},
	{"llm:local", false, AskNone, "none"},
	{"llm:online", false, AskPerTarget, "none"},
	{"mail:read", false, AskPerTarget, "exact"},
	{"mail:send", true, AskAlways, "exact"},
	{"channel:in", false, AskNone, "exact"},
	{"channel:out", false, AskPerTarget, "exact"},
	{"time:read", false, AskNone, "none"},
	{"parse:local", false, AskNone, "none"},
	{"calendar:read", false, AskPerTarget, "exact"},
}

// CapabilityNamed returns the capability of this name.
func CapabilityNamed(name string) (Capability, bool) {
	for i := range capabilities {
		if capabilities[i].Name == name {
			return capabilities[i], true
		}
	}
	return Capability{}, false
}
