package approval

import (
	"time"

	"github.com/permesso-dev/permesso/approval/codec"
)

// Facts is the input of policy: a request as the host sees it. The zero Facts is an
// unknown, release-only request of a readonly workspace, which no rule can allow.
type Facts struct {
	RequestID  string
	Workspace  string
	Autonomy   string // the lower of the workspace's and the session's
	Tool       string // "": release-only, nothing runs
	KnownTool  bool   // the operator has configured Tool
	ByAgent    bool   // the agent itself executes it
	Unlisted   bool   // and no table declares Tool with these arguments
	ActionType string // of a release-only request: the client's claim
	Capability string // one of Capabilities, or ""
	Target     string
	Trust      Trust // as configured: "" is unstated
	SessionID  string
	Subagent   string // the agent's word for its helper that asks; "": none
	ClientID   string
	Principal  string              // the approver it is made for; "": any
	ToolSHA256 string              // of a configured tool
	Targeted   bool                // the tool has a target, even if Target is ""
	AnyExec    bool                // a release-only exec_cmd can be remembered as a whole
	Secrets    string              // of a configured tool: allow, deny; else a secret asks
	Declared   map[string]Argument // of a configured tool
	Cost       codec.Cost          // of this request, for the budgets
	Args       Raw                 // request_data, verbatim
	Agent      Prose               // searched for secrets; carries no authority
	Question   bool                // type question
	Evidence   Evidence            // host facts and proof; of a step of a program, the host facts of all its steps
	Program    *ProgramFacts       // the program whose step it is; nil: none
	Opaque     []string            // arguments that are not in Args, because their values are not known yet
	Now        time.Time
}

// ProgramFacts is what policy knows of the program of a step.
type ProgramFacts struct {
	SHA256 string         // of its Plan
	Tools  []string       // that its plan calls, each once, sorted
	Steps  int            // calls of its plan that have not run
	Calls  map[string]int // of these, by tool
	Whole  bool           // the plan reaches the end of the program
}
