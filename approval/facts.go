package approval

// Facts is what policy judges: a request as the host sees it. The zero Facts
// is an unknown, release-only request, which no rule can allow.
type Facts struct {
	Workspace  string
	Tool       string // "": release-only, nothing runs here
	KnownTool  bool   // the operator has configured Tool
	ActionType string // of a release-only request: the client's claim
	Capability string // one of Capabilities, or ""
	Target     string
	SessionID  string
	ClientID   string
	Args       Raw  // request_data, verbatim
	Question   bool // the request asks a person something
}
