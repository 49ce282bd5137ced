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
	Sentence   string // what a tool with it does
}

// Capabilities lists the closed set, in display order.
func Capabilities() []Capability { return slices.Clone(capabilities[:]) }

var capabilities = [...]Capability{
	{"fs:read", false, AskPerTarget, "path_glob", "Reads files and lists folders."},
	{"fs:write", true, AskPerTarget, "path_glob", "Creates, changes, moves or deletes files."},
	{"code:exec", true, AskAlways, "exact", "Runs a program or a command, which may do anything."},
	{"network:http", false, AskPerTarget, "host", "Sends HTTP requests to a host and reads its answers."},
	{"llm:local", false, AskNone, "none", "Asks a language model on this machine."},
	{"llm:online", false, AskPerTarget, "none", "Sends text to a language model of another company."},
	{"mail:read", false, AskPerTarget, "exact", "Reads mail in a mailbox."},
	{"mail:send", true, AskAlways, "exact", "Sends mail to recipients."},
	{"channel:in", false, AskNone, "exact", "Reads messages of a chat, a feed or a board."},
	{"channel:out", false, AskPerTarget, "exact", "Sends messages to a chat, a feed or a board."},
	{"time:read", false, AskNone, "none", "Reads the date and the time."},
	{"parse:local", false, AskNone, "none", "Parses data of the request on this machine."},
	{"calendar:read", false, AskPerTarget, "exact", "Reads events of a calendar."},
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
