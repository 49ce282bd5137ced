package approval

import (
	"errors"
	"fmt"
	"time"
)

// Version is the version that every document of ours carries.
const Version = 1

// Outcome is what policy rules. The zero value denies.
type Outcome uint8

// The three outcomes, ordered from strict to mild.
const (
	Deny Outcome = iota
	Ask
	Allow
)

func (o Outcome) String() string {
	switch o {
	case Ask:
		return "ask"
	case Allow:
		return "allow"
	}
	return "deny"
}

// MarshalText writes deny, ask or allow.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads deny, ask or allow and refuses everything else.
func (o *Outcome) UnmarshalText(b []byte) error {
	switch string(b) {
	case "deny":
		*o = Deny
	case "ask":
		*o = Ask
	case "allow":
		*o = Allow
	default:
		return errors.New("an outcome is deny, ask or allow")
	}
	return nil
}

// Ruling is policy's answer, with the rule that decided and every reason.
type Ruling struct {
	Outcome Outcome   `json:"outcome"`
	Rule    string    `json:"rule"`
	Reasons []string  `json:"reasons"`
	Change  []string  `json:"change,omitempty"`  // what would make it milder
	Grant   string    `json:"consent,omitempty"` // id of the grant that lifted an ask
	Secrets []Finding `json:"secrets,omitempty"`
	Taints  []string  `json:"taints,omitempty"` // what running it adds to its client
	Proven  string    `json:"proven,omitempty"` // what the rule that allowed it rests on, and whose word that is
	Exact   string    `json:"exact,omitempty"`  // digest of a command line that may be remembered
	Cost    int64     `json:"cost,omitzero"`
}

// Prose is what the agent says of its own request. It is shown as prose,
// quoted and labelled, and believed by nobody.
type Prose struct {
	Title     string `json:"title"`
	Preview   string `json:"preview"`
	Rationale string `json:"rationale"`
}

// Pending is a request that waits for a person: the facts as the host sees
// them, and exactly what would run.
type Pending struct {
	Version         int               `json:"version"`
	RequestID       string            `json:"request_id"`
	ShortID         string            `json:"short_id"`
	Type            string            `json:"type"`
	ToolName        string            `json:"tool_name"`
	SourceGroup     string            `json:"source_group"` // the workspace
	ChatJID         string            `json:"chat_jid"`
	RequestData     Raw               `json:"request_data"`
	Timestamp       time.Time         `json:"timestamp"` // when it was asked
	RequestSHA256   string            `json:"request_sha256"`
	ToolSHA256      string            `json:"tool_sha256"` // "": an unknown tool, or none
	SessionID       string            `json:"session_id"`
	ClientID        string            `json:"client_id"`
	AskOn           string            `json:"ask_on"` // the one channel that asks; "": all of the workspace's
	ActionType      string            `json:"action_type"`
	Capability      string            `json:"capability"`
	Target          string            `json:"target"`
	Reversibility   Reversibility     `json:"reversibility"`
	Verb            map[string]string `json:"verb"` // by language
	Summary         string            `json:"summary"`
	Territory       string            `json:"territory_concession"`
	Principal       string            `json:"principal"` // approver's name; "": any on the list
	Channel         string            `json:"channel"`   // with Sender: whom a grant is bound to
	Sender          string            `json:"sender_id"`
	Ruling          Ruling            `json:"ruling"`
	ExpiresAt       time.Time         `json:"expires_at"`
	RecurrenceCount int               `json:"recurrence_count"`
	Agent           Prose             `json:"agent"`
	Options         []string          `json:"options"`
	Resubmits       string            `json:"resubmits"`
	Proof           Raw               `json:"proof"`
	Facts           Evidence          `json:"facts"`
}

// Encode is P's body, to be sealed.
func (p *Pending) Encode() ([]byte, error) { return marshal(p) }

// ParsePending reads the body of a P whose seal was verified.
func ParsePending(body []byte, k Key) (*Pending, error) {
	p := &Pending{}
	if err := unmarshal(body, p); err != nil {
		return nil, fmt.Errorf("parse pending: %w", err)
	}
	if p.RequestID != k.ID || p.SourceGroup != k.Workspace || p.Version != Version || p.Timestamp.IsZero() || p.ExpiresAt.IsZero() {
		return nil, errors.New("parse pending: not the document of this request")
	}
	return p, nil
}

// Verdict is what was decided.
type Verdict string

// The seven verdicts. The empty one is none of them and counts as denied.
const (
	Approved    Verdict = "approved"
	Denied      Verdict = "denied"
	Answered    Verdict = "answered"
	Overridden  Verdict = "overridden"
	RequestMore Verdict = "request_more"
	Cancelled   Verdict = "cancelled"
	Expired     Verdict = "expired"
)

// Scope says for how long an approval speaks.
type Scope string

// The three scopes.
const (
	Once    Scope = "once"
	Session Scope = "session"
	Always  Scope = "always"
)

// Decision is the document in the slot: the one answer to a pending.
type Decision struct {
	Version       int       `json:"version"`
	RequestID     string    `json:"request_id"`
	Approved      bool      `json:"approved"`
	Verdict       Verdict   `json:"verdict"`
	Code          string    `json:"code"`
	Scope         Scope     `json:"scope"`
	Note          string    `json:"note"`
	Override      string    `json:"override"`
	Feedback      string    `json:"feedback"`
	Answer        string    `json:"answer"`
	PendingSHA256 string    `json:"pending_sha256"`
	RunBefore     time.Time `json:"run_before,omitzero"`
	DecidedBy     string    `json:"decided_by"`
	DecidedByID   string    `json:"decided_by_id"`
	Via           string    `json:"via"`
	DecidedAt     time.Time `json:"decided_at"`
}

// Encode is D's body, to be sealed.
func (d *Decision) Encode() ([]byte, error) { return marshal(d) }

// ParseDecision reads the body of a D whose seal was verified, and refuses one
// that contradicts itself.
func ParseDecision(body []byte, k Key) (*Decision, error) {
	d := &Decision{}
	if err := unmarshal(body, d); err != nil {
		return nil, fmt.Errorf("parse decision: %w", err)
	}
	if err := d.Check(k); err != nil {
		return nil, fmt.Errorf("parse decision: %w", err)
	}
	return d, nil
}

// Check refuses a decision that contradicts itself or is another request's.
func (d *Decision) Check(k Key) error {
	switch d.Verdict {
	case Approved, Denied, Answered, Overridden, RequestMore, Cancelled, Expired:
	default:
		return errors.New("unknown verdict")
	}
	switch {
	case d.Version != Version || d.RequestID != k.ID:
		return errors.New("not the decision of this request")
	case d.Approved != (d.Verdict == Approved):
		return errors.New("approved and verdict contradict each other")
	case d.DecidedAt.IsZero() || d.PendingSHA256 == "":
		return errors.New("decided_at or pending_sha256 is missing")
	case d.Approved && d.RunBefore.IsZero():
		return errors.New("run_before is missing")
	}
	return nil
}

// Claim is the receipt file: durable before the effect, and enough to finish
// the record from it alone.
type Claim struct {
	Version       int       `json:"version"`
	RequestID     string    `json:"request_id"`
	Workspace     string    `json:"workspace"`
	ToolName      string    `json:"tool_name"`
	ActionType    string    `json:"action_type"`
	RequestSHA256 string    `json:"request_sha256"`
	PendingSHA256 string    `json:"pending_sha256"`
	ArgsSHA256    string    `json:"args_sha256"`
	ToolSHA256    string    `json:"tool_sha256"`
	ClientID      string    `json:"client_id"` // when policy allowed it and it did not come from the folder
	Request       Raw       `json:"request"`   // when policy allowed it
	Pending       Raw       `json:"pending"`   // when a person did
	Decision      Raw       `json:"decision"`  // the person's
	Ruling        *Ruling   `json:"ruling"`    // policy's
	Facts         *Evidence `json:"facts"`     // what policy allowed it by; a pending has its own
	RequestedAt   time.Time `json:"requested_at"`
	ClaimedAt     time.Time `json:"claimed_at"`
	Receipt       string    `json:"receipt"` // signed note
}

// Encode is R's body, to be sealed.
func (c *Claim) Encode() ([]byte, error) { return marshal(c) }

// ParseClaim reads the body of an R whose seal was verified.
func ParseClaim(body []byte, k Key) (*Claim, error) {
	c := &Claim{}
	if err := unmarshalOuter(body, c); err != nil {
		return nil, fmt.Errorf("parse receipt: %w", err)
	}
	if c.RequestID != k.ID || c.Workspace != k.Workspace || c.Version != Version || c.ClaimedAt.IsZero() {
		return nil, errors.New("parse receipt: not the document of this request")
	}
	return c, nil
}

// Status is how a request ended.
type Status string

// Every status a response can carry.
const (
	StatusApproved     Status = "approved"
	StatusAutoApproved Status = "auto_approved"
	StatusDenied       Status = "denied"
	StatusAutoRejected Status = "auto_rejected"
	StatusExpired      Status = "expired"
	StatusCancelled    Status = "cancelled"
	StatusRequestMore  Status = "request_more"
	StatusOverridden   Status = "overridden"
	StatusAnswered     Status = "answered"
	StatusFailed       Status = "failed"
	StatusInterrupted  Status = "interrupted"
	StatusMalformed    Status = "malformed"
)

// Record is the whole story of a settled request, with the exact bytes of its
// response.
type Record struct {
	Version       int       `json:"version"`
	RequestID     string    `json:"request_id"`
	Workspace     string    `json:"workspace"`
	Status        Status    `json:"status"`
	RequestSHA256 string    `json:"request_sha256"`
	PendingSHA256 string    `json:"pending_sha256"`
	ClientID      string    `json:"client_id"` // where nobody was asked and it did not come from the folder
	Request       Raw       `json:"request"`   // where nobody was asked
	Pending       Raw       `json:"pending"`   // where somebody was
	Decision      Raw       `json:"decision"`  // D, verbatim
	Ruling        *Ruling   `json:"ruling"`
	Facts         *Evidence `json:"facts"` // where nobody was asked: what policy went by
	Receipt       string    `json:"receipt"`
	RequestedAt   time.Time `json:"requested_at"`
	DecidedAt     time.Time `json:"decided_at,omitzero"`
	StartedAt     time.Time `json:"started_at,omitzero"`
	EndedAt       time.Time `json:"ended_at"`
	Response      Raw       `json:"response"`
}

// Encode is C's body, to be sealed.
func (r *Record) Encode() ([]byte, error) { return marshal(r) }

// ParseRecord reads the body of a C whose seal was verified.
func ParseRecord(body []byte, k Key) (*Record, error) {
	r := &Record{}
	if err := unmarshalOuter(body, r); err != nil {
		return nil, fmt.Errorf("parse record: %w", err)
	}
	if r.RequestID != k.ID || r.Workspace != k.Workspace || r.Version != Version || r.EndedAt.IsZero() || r.Response.Kind() != '{' {
		return nil, errors.New("parse record: not the document of this request")
	}
	return r, nil
}

// ResponseDecision is the part of a response that says who decided what.
type ResponseDecision struct {
	Code     *string `json:"code"`
	Note     *string `json:"note"`
	Override *string `json:"override"`
	By       *string `json:"by"`
	Via      *string `json:"via"`
	Auto     bool    `json:"auto"`
}

// Response is what the agent reads. Every key is always there.
type Response struct {
	Version          int              `json:"version"`
	RequestID        string           `json:"request_id"`
	RequestSHA256    string           `json:"request_sha256"`
	Status           Status           `json:"status"`
	Result           Raw              `json:"result"`
	Error            *string          `json:"error"`
	Decision         ResponseDecision `json:"decision"`
	Feedback         *string          `json:"feedback"`
	RequiredResponse *string          `json:"required_response"`
	Receipt          *string          `json:"receipt"`
	RespondedAt      time.Time        `json:"responded_at"`
}

// Encode is S: the exact bytes that the record keeps and the agent reads.
func (r *Response) Encode() ([]byte, error) { return marshal(r) }

// ParseResponse reads a response.
func ParseResponse(b []byte) (*Response, error) {
	r := &Response{}
	if err := unmarshalOuter(b, r); err != nil {
		return nil, fmt.Errorf("parse response: %w", err)
	}
	if !ValidID(r.RequestID) || r.Status == "" || r.Version != Version {
		return nil, errors.New("parse response: not a response")
	}
	return r, nil
}
