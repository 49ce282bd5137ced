package approval

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval/codec"
)

// Version is the version of every document that the daemon writes.
const Version = 1

// Outcome is the outcome of a policy ruling. The zero value denies.
type Outcome uint8

// The three outcomes, ordered from strict to permissive.
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

// MarshalText gives deny, ask or allow.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText refuses everything but deny, ask and allow.
func (o *Outcome) UnmarshalText(b []byte) error {
	switch string(b) {
	case "deny":
		*o = Deny
	case "ask":
		*o = Ask
	case "allow":
		*o = Allow
	default:
		return errors.New("outcome must be deny, ask or allow")
	}
	return nil
}

// Ruling is policy's result, with the rule that decided and every reason.
type Ruling struct {
	Outcome Outcome    `json:"outcome"`
	Rule    string     `json:"rule"`
	Reasons []Reason   `json:"reasons"`
	Change  []Reason   `json:"change,omitempty"`  // what would make it less strict
	Grant   string     `json:"consent,omitempty"` // id of the grant that replaced an ask by allow
	Secrets []Finding  `json:"secrets,omitempty"`
	Taints  []string   `json:"taints,omitempty"` // taints that running it adds to the client
	Proven  Reason     `json:"proven,omitzero"`  // the evidence that the allowing rule used, and its source
	Exact   string     `json:"exact,omitempty"`  // digest of a command line that a grant may name
	Cost    codec.Cost `json:"cost,omitzero"`
	Soft    bool       `json:"soft,omitzero"` // asked, and a grant that covers it would allow it
	// Links are the paths of the request that lead elsewhere on this machine, by the path as
	// written. "" stands for one that cannot be resolved.
	Links map[string]string `json:"links,omitzero"`
}

// Reason is the first of its reasons with this code, the zero Reason if there is none.
func (r Ruling) Reason(code string) Reason {
	for _, x := range r.Reasons {
		if x.Code == code {
			return x
		}
	}
	return Reason{}
}

// Terms are what a grant allows: requests that differ from the one it was given for only
// where the form says so.
type Terms struct {
	Form       string   `json:"form"` // one of grant.Forms
	Workspace  string   `json:"workspace"`
	ClientID   string   `json:"client_id"`
	SessionID  string   `json:"session_id,omitzero"`  // "": any
	Tool       string   `json:"tool,omitzero"`        // "": release-only, it opens no tool
	ToolSHA256 string   `json:"tool_sha256,omitzero"` // the tool's definition
	ActionType string   `json:"action_type,omitzero"` // of a release-only request
	TargetKind string   `json:"target_kind,omitzero"` // exact, host, path_glob
	Target     string   `json:"target,omitzero"`
	Digest     string   `json:"digest,omitzero"` // of the request, or of its arguments but the command
	Words      []string `json:"words,omitzero"`  // a command's pattern, see policy.MatchWords
}

// Offer is what an approval with a scope would remember. The sentence on the card is made
// of it, and so is the grant: a decision carries the digest of the pending that holds it.
type Offer struct {
	Scope  Scope  `json:"scope"` // session, always, or commands: a suggested pattern
	Terms  Terms  `json:"terms,omitzero"`
	Hours  int    `json:"hours,omitzero"`   // how long the grant is valid
	Would  int    `json:"would,omitzero"`   // of the last Of requests of the client, this many would not have been asked
	Of     int    `json:"of,omitzero"`      // the number of the last requests of the client that were asked
	WhyNot Reason `json:"why_not,omitzero"` // not zero: it is not offered
}

// Finding is a secret found in a payload. It never holds the secret's text.
type Finding struct {
	Kind   string `json:"kind"`   // "aws-access-token"
	Where  string `json:"where"`  // "request_data.body", "rationale", "request_data.a + request_data.b"
	Length int    `json:"length"` // bytes
}

// RedactedName stands in a Finding's Where for a member's name that is a secret.
const RedactedName = "[redacted]"

// Prose is what the agent says about its own request. It is shown quoted and
// labelled, and carries no authority.
type Prose struct {
	Title     string `json:"title"`
	Preview   string `json:"preview"`
	Rationale string `json:"rationale"`
}

// Pending is a request that waits for a person: the facts derived by the host, and
// exactly what would run. The members after facts are absent in documents of the first
// version.
type Pending struct {
	Version         int               `json:"version"`
	RequestID       string            `json:"request_id"`
	ShortID         string            `json:"short_id"`
	Type            string            `json:"type"`
	ToolName        string            `json:"tool_name"`
	SourceGroup     string            `json:"source_group"` // the workspace
	ChatJID         string            `json:"chat_jid"`
	RequestData     Raw               `json:"request_data"`
	Timestamp       time.Time         `json:"timestamp"` // when the approver was asked
	RequestSHA256   string            `json:"request_sha256"`
	ToolSHA256      string            `json:"tool_sha256"` // "": an unknown tool, or none
	SessionID       string            `json:"session_id"`
	ClientID        string            `json:"client_id"`
	AskOn           string            `json:"ask_on"` // the only channel that sends a card; "": all of the workspace's
	ActionType      string            `json:"action_type"`
	Capability      string            `json:"capability"`
	Target          string            `json:"target"`
	Reversibility   Reversibility     `json:"reversibility"`
	Verb            map[string]string `json:"verb"` // by language
	Summary         string            `json:"summary"`
	Territory       string            `json:"territory_concession"`
	Principal       string            `json:"principal"` // an approver's name; "": any approver of the workspace
	Ruling          Ruling            `json:"ruling"`
	ExpiresAt       time.Time         `json:"expires_at"`
	RecurrenceCount int               `json:"recurrence_count"`
	Agent           Prose             `json:"agent"`
	Options         []string          `json:"options"`
	Resubmits       string            `json:"resubmits"`
	Proof           Raw               `json:"proof"`
	Facts           Evidence          `json:"facts"`
	Runs            Runs              `json:"runs,omitzero"`
	SummaryParts    []Part            `json:"summary_parts,omitzero"` // Summary's template; Text of an argument is ""
	OwnDomains      []string          `json:"own_domains,omitzero"`   // recipients elsewhere are outsiders; empty: unknown
	ObjectSize      *int64            `json:"object_size,omitzero"`   // bytes of the tool's Size; nil: unknown
	Before          *FileBefore       `json:"before,omitzero"`        // nil: nothing is written, or it could not be read
	Offers          []Offer           `json:"offers,omitzero"`        // by scope: session, always
	Metadata        Raw               `json:"metadata,omitzero"`      // the agent's, verbatim
	ArgsSubset      []string          `json:"args_subset,omitzero"`   // see Request
	Editable        string            `json:"editable,omitzero"`      // see Request
	Subagent        string            `json:"subagent,omitzero"`      // see Request
	Plan            *Plan             `json:"plan,omitzero"`          // of a program; nil: the request has none
}

// Runs is the finished invocation: exactly what an approval of the request starts. The
// zero Runs says that nothing runs on this host.
type Runs struct {
	Kind     string              `json:"kind"`              // the handler's
	Server   string              `json:"server,omitzero"`   // of an MCP call: the name of the server, which is a command or a URL
	Tool     string              `json:"tool,omitzero"`     // of an MCP call: as the server calls it
	Argv     [][]Part            `json:"argv,omitzero"`     // of a command: its elements
	Dir      string              `json:"dir,omitzero"`      // of a command; "": a new empty folder
	Method   string              `json:"method,omitzero"`   // of an HTTP request, as are those below
	URL      []Part              `json:"url,omitzero"`      // values are percent-encoded
	Headers  []Header            `json:"headers,omitzero"`  // sorted by name
	Body     []Part              `json:"body,omitzero"`     // JSON; values are JSON; empty: none, or request_data
	WithArgs bool                `json:"with_args"`         // request_data, byte for byte, is the standard input, the body, or the arguments of an MCP call
	Args     map[string]Argument `json:"args,omitzero"`     // the declared types
	Unlisted bool                `json:"unlisted,omitzero"` // of HandlerAgent: the table does not declare this, or there is none
}

// Part is a piece of an invocation: the operator's text, or the value of an argument.
type Part struct {
	Text string `json:"text"`
	Arg  string `json:"arg,omitzero"` // the argument's name; "": the operator's text
}

// Header is one header of an HTTP request. A secret is named by its file.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	File  string `json:"file,omitzero"` // "": Value is all of it; else the content of this file follows
}

// FileBefore is the text of a file that an approval would replace, when the request came.
type FileBefore struct {
	Arg    string `json:"arg"`    // the argument with the new text
	Exists bool   `json:"exists"` // there was such a file
	Text   string `json:"text"`
}

// Encode returns the body to be sealed.
func (p *Pending) Encode() ([]byte, error) { return codec.Encode(p) }

// Offer returns what an approval with this scope would remember. ok is false if nothing is
// offered; WhyNot may say why.
func (p *Pending) Offer(s Scope) (o Offer, ok bool) {
	for _, o := range p.Offers {
		if o.Scope == s {
			return o, o.WhyNot.IsZero() && o.Terms.Form != ""
		}
	}
	return Offer{}, false
}

// CannotBeUndone reports whether a person has to confirm an approval: the action cannot be undone, or it is not known
// whether it can.
func (p *Pending) CannotBeUndone() bool {
	return p.Type != TypeQuestion && p.Reversibility != Reversible && p.Reversibility != Partial
}

// IsNamed reports whether a person who types digits means p: the beginning of its short
// id, or of its id (see BeginsID), unless that could be the short id of another request.
func (p *Pending) IsNamed(typed string) bool {
	digits := strings.ReplaceAll(typed, "-", "")
	return strings.HasPrefix(p.ShortID, typed) ||
		BeginsID(p.RequestID, typed) && (strings.HasPrefix(digits, p.ShortID) || len(digits) >= 16)
}

// Named returns those of all that a person who types digits may mean: the one whose id or
// short id this is, else all that IsNamed fits.
func Named(all []StoredPending, typed string) (fit []StoredPending) {
	var exact []StoredPending
	for _, w := range all {
		switch {
		case typed == w.Pending.RequestID, typed == w.Pending.ShortID:
			exact = append(exact, w)
		case w.Pending.IsNamed(typed):
			fit = append(fit, w)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return fit
}

// ParsePending reads the body of a P whose seal was verified.
func ParsePending(body []byte, k Key) (*Pending, error) {
	return codec.Document("pending", body, func(p *Pending) error {
		if p.RequestID != k.ID || p.SourceGroup != k.Workspace || p.Version != Version || p.Timestamp.IsZero() || p.ExpiresAt.IsZero() {
			return errors.New("id, workspace or version does not match, or a time is missing")
		}
		return nil
	})
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

// Scope says what an approval covers besides this request.
type Scope string

// The scopes. Commands is the scope of an offer only: a decision says always, and has the
// pattern.
const (
	Once     Scope = "once"
	Session  Scope = "session"
	Always   Scope = "always"
	Commands Scope = "commands"
)

// Decision is the document in the slot: the only decision about a pending.
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
	Commands      []string  `json:"commands,omitzero"` // the pattern to remember, instead of the same request
	PendingSHA256 string    `json:"pending_sha256"`
	RunBefore     time.Time `json:"run_before,omitzero"`
	DecidedBy     string    `json:"decided_by"`
	DecidedByID   string    `json:"decided_by_id"`
	ClaimedBy     string    `json:"claimed_by,omitzero"` // who has decided, as the host program said that DecidedBy ran
	Via           string    `json:"via"`
	DecidedAt     time.Time `json:"decided_at"`
}

// ByAgent reports whether the agent itself cancelled its request.
func (d *Decision) ByAgent() bool {
	return d.Verdict == Cancelled && (d.DecidedByID == "agent" || strings.HasPrefix(d.DecidedByID, "client:"))
}

// MaxCancelReason is the maximum length of the reason of a cancel, in bytes.
const MaxCancelReason = 300

// CancelReason is the reason of a cancel in the form in which it is kept: UTF-8, and cut if it
// is too long.
func CancelReason(text string) string {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "\uFFFD")
	if len(text) > MaxCancelReason {
		text = strings.ToValidUTF8(text[:MaxCancelReason], "") + "…"
	}
	return text
}

// Encode returns the body to be sealed.
func (d *Decision) Encode() ([]byte, error) { return codec.Encode(d) }

// ParseDecision reads the body of a D whose seal was verified, and refuses an
// inconsistent one.
func ParseDecision(body []byte, k Key) (*Decision, error) {
	return codec.Document("decision", body, func(d *Decision) error { return d.Check(k) })
}

// Check refuses a decision that is inconsistent or belongs to another request.
func (d *Decision) Check(k Key) error {
	switch d.Verdict {
	case Approved, Denied, Answered, Overridden, RequestMore, Cancelled, Expired:
	default:
		return errors.New("unknown verdict")
	}
	switch {
	case d.Version != Version || d.RequestID != k.ID:
		return errors.New("version or request_id does not match")
	case d.Approved != (d.Verdict == Approved):
		return errors.New("approved and verdict contradict each other")
	case d.DecidedAt.IsZero() || d.PendingSHA256 == "":
		return errors.New("decided_at or pending_sha256 is missing")
	case d.Approved && d.RunBefore.IsZero():
		return errors.New("run_before is missing")
	case len(d.Commands) > 0 && (!d.Approved || d.Scope != Always):
		return errors.New("commands is only for an approval with the scope always")
	}
	return nil
}

// Claim is the document R: durable before the effect, and enough to write the
// record from it alone.
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
	ClientID      string    `json:"client_id"` // if policy allowed it and it came over the API
	Request       Raw       `json:"request"`   // if policy allowed it
	Pending       Raw       `json:"pending"`   // if a person approved it
	Decision      Raw       `json:"decision"`  // if a person approved it
	Ruling        *Ruling   `json:"ruling"`    // if policy allowed it
	Facts         *Evidence `json:"facts"`     // what policy used; a pending has its own
	RequestedAt   time.Time `json:"requested_at"`
	ClaimedAt     time.Time `json:"claimed_at"`
	Receipt       string    `json:"receipt"` // signed note
	ArgsSubset    []string  `json:"args_subset,omitzero"`
	ProgramSHA256 string    `json:"-"`             // for the receipt: of a program's text; args_sha256 is that of its plan
	Plan          *Plan     `json:"plan,omitzero"` // of a program that policy allowed
	Step          *Step     `json:"step,omitzero"` // of a step of a program: the call with the values that run
}

// Encode returns the body to be sealed.
func (c *Claim) Encode() ([]byte, error) { return codec.Encode(c) }

// ParseClaim reads the body of an R whose seal was verified.
func ParseClaim(body []byte, k Key) (*Claim, error) {
	c := &Claim{}
	if err := codec.DecodeOuter(body, c); err != nil {
		return nil, fmt.Errorf("parse receipt: %w", err)
	}
	if c.RequestID != k.ID || c.Workspace != k.Workspace || c.Version != Version || c.ClaimedAt.IsZero() {
		return nil, errors.New("parse receipt: id, workspace or version does not match, or claimed_at is missing")
	}
	return c, nil
}

// Status is the outcome of a request.
type Status string

// The statuses of a response.
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

// Record is the history of a settled request, with the exact bytes of its response.
type Record struct {
	Version       int       `json:"version"`
	RequestID     string    `json:"request_id"`
	Workspace     string    `json:"workspace"`
	Status        Status    `json:"status"`
	RequestSHA256 string    `json:"request_sha256"`
	PendingSHA256 string    `json:"pending_sha256"`
	ClientID      string    `json:"client_id"` // if no approver was asked and it came over the API
	Request       Raw       `json:"request"`   // if it was claimed and no approver was asked
	Pending       Raw       `json:"pending"`   // if an approver was asked
	Decision      Raw       `json:"decision"`  // D, verbatim
	Ruling        *Ruling   `json:"ruling"`
	Facts         *Evidence `json:"facts"` // with Request: what policy used
	Receipt       string    `json:"receipt"`
	RequestedAt   time.Time `json:"requested_at"`
	DecidedAt     time.Time `json:"decided_at,omitzero"`
	StartedAt     time.Time `json:"started_at,omitzero"`
	EndedAt       time.Time `json:"ended_at"`
	Response      Raw       `json:"response"`
	Outline       *Outline  `json:"outline,omitzero"` // of a request that was refused at once, instead of its bytes
	Plan          *Plan     `json:"plan,omitzero"`    // of a program that policy allowed
	Step          *Step     `json:"step,omitzero"`    // of a step of a program
}

// Outline is what a record keeps of a request that was refused at once. An agent can write such
// requests as fast as it likes: their arguments and texts are not kept.
type Outline struct {
	ToolName   string `json:"tool_name"`
	ActionType string `json:"action_type"`
	SessionID  string `json:"session_id"`
	Size       int    `json:"size"` // of the request, in bytes
}

// Encode returns the body to be sealed.
func (r *Record) Encode() ([]byte, error) { return codec.Encode(r) }

// ShortID is the short id under which an approver was asked, else the beginning of the id.
func (r *Record) ShortID() string {
	var p struct {
		ShortID string `json:"short_id"`
	}
	if r.Pending != nil && codec.DecodeOwn(r.Pending, &p) == nil && p.ShortID != "" {
		return p.ShortID
	}
	return ShortID(r.RequestID)
}

// ParseRecord reads the body of a C whose seal was verified.
func ParseRecord(body []byte, k Key) (*Record, error) {
	r := &Record{}
	if err := codec.DecodeOuter(body, r); err != nil {
		return nil, fmt.Errorf("parse record: %w", err)
	}
	if r.RequestID != k.ID || r.Workspace != k.Workspace || r.Version != Version || r.EndedAt.IsZero() || r.Response.Kind() != '{' {
		return nil, errors.New("parse record: id, workspace or version does not match, or ended_at or response is missing")
	}
	return r, nil
}

// ResponseDecision is the part of a response that describes the decision.
type ResponseDecision struct {
	Code     *string `json:"code"`
	Note     *string `json:"note"`
	Override *string `json:"override"`
	By       *string `json:"by"`
	Via      *string `json:"via"`
	Auto     bool    `json:"auto"`
}

// Response is what the agent reads. Every member is always present.
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
	Metadata         Raw              `json:"metadata"`           // the request's, verbatim
	Execution        string           `json:"execution,omitzero"` // ExecutionAgent: approved, and the agent runs it; "": the gate has
	Log              *LogHead         `json:"log,omitzero"`       // the newest checkpoint then; nil: there was none
	RespondedAt      time.Time        `json:"responded_at"`
}

// LogHead is a checkpoint of the audit log.
type LogHead struct {
	Size int64  `json:"size"` // in entries
	Root string `json:"root"` // hash of the tree (RFC 6962), base64
}

// Encode is S: the exact bytes that the record keeps and the agent reads.
func (r *Response) Encode() ([]byte, error) { return codec.Encode(r) }

// ParseResponse reads a response.
func ParseResponse(b []byte) (*Response, error) {
	r := &Response{}
	if err := codec.DecodeOuter(b, r); err != nil {
		return nil, fmt.Errorf("parse response: %w", err)
	}
	if !ValidDocument(r.RequestID) || r.Status == "" || r.Version != Version {
		return nil, errors.New("parse response: request_id, status or version is missing")
	}
	return r, nil
}
