package approval

import "slices"

// Consent says how often a capability wants a person by default.
type Consent string

// The three kinds of default consent.
const (
	ConsentNone      Consent = "none"
	ConsentPerTarget Consent = "per_target"
	ConsentAlways    Consent = "always"
)

// Capability is one entry of the closed set of things a tool can be.
type Capability struct {
	Name       string
	Critical   bool
	Default    Consent
	TargetKind string // exact, host, path_glob, none
}

// Capabilities lists the closed set, in the order it is shown.
func Capabilities() []Capability { return slices.Clone(capabilities[:]) }

var capabilities = [...]Capability{
	{"fs:read", false, ConsentPerTarget, "path_glob"},
	{"fs:write", true, ConsentPerTarget, "path_glob"},
	{"code:exec", true, ConsentAlways, "exact"},
	{"network:http", false, ConsentPerTarget, "host"},
	{"llm:local", false, ConsentNone, "none"},
	{"llm:online", false, ConsentPerTarget, "none"},
	{"mail:read", false, ConsentPerTarget, "exact"},
	{"mail:send", true, ConsentAlways, "exact"},
	{"channel:in", false, ConsentNone, "exact"},
	{"channel:out", false, ConsentPerTarget, "exact"},
	{"time:read", false, ConsentNone, "none"},
	{"parse:local", false, ConsentNone, "none"},
	{"calendar:read", false, ConsentPerTarget, "exact"},
}
