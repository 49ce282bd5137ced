package approval

import "time"

// Facts is what policy judges: a request as the host sees it. The zero Facts
// is an unknown, release-only request of a readonly workspace, which no rule
// can allow.
type Facts struct {
	RequestID  string
	Workspace  string
	Autonomy   string // of the workspace or, where that is lower, of the session
	Tool       string // "": release-only, nothing runs here
	KnownTool  bool   // the operator has configured Tool
	ActionType string // of a release-only request: the client's claim
	Capability string // one of Capabilities, or ""
	Target     string
	Trust      Trust // as configured: "" is unstated
	SessionID  string
	ClientID   string
	Principal  string // the approver it is made for, "": nobody in particular
	Channel    string // with Sender: whom a grant is bound to
	Sender     string
	Bound      bool     // the host itself gives out session ids
	Cost       int64    // of the tool, in the operator's units
	Args       Raw      // request_data, verbatim
	Agent      Prose    // searched for secrets, believed by nobody
	Question   bool     // the request asks a person something
	Evidence   Evidence // what the gate derived, and what a proof says
	Now        time.Time
}
