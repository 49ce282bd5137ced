package approval

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval/codec"
)

// The two types of request.
const (
	TypeAction   = "action"
	TypeQuestion = "question"
)

// ExecutionAgent says, in a request, that the agent itself executes the call, so that no table needs to name the tool;
// in a response, that it does and the gate has run nothing.
const ExecutionAgent = "agent"

// CodeEdit is the code of an approver's answer that has the text to run in place of the one
// that Request.Editable names. Nothing has run: it is the agent that asks for it, anew.
const CodeEdit = "7"

// Limits on what an agent may write, in bytes unless noted.
const (
	MaxRequestSize = 256 << 10 // default of a workspace's limit
	maxToolName    = 64
	maxSession     = 128
	maxTitle       = 300
	maxProse       = 8 << 10
	maxOptions     = 8 // answers a question may offer
	maxOption      = 200
	maxExpiry      = 366 * 24 * time.Hour
	maxMetadata    = 4 << 10
)

// Request is what an agent wrote. No field carries authority.
type Request struct {
	RequestID    string   `json:"request_id"`
	Type         string   `json:"type"`
	ToolName     string   `json:"tool_name"`
	ActionType   string   `json:"action_type"`
	Program      string   `json:"program,omitzero"`   // in Starlark; of tool_name, action_type and program a request has one
	Continues    string   `json:"continues,omitzero"` // with program: the request whose program goes on here
	RequestData  Raw      `json:"request_data"`
	SessionID    string   `json:"session_id"`
	Title        string   `json:"title"`
	Preview      string   `json:"preview"`
	Rationale    string   `json:"rationale"`
	ExpiresInSec int64    `json:"expires_in_sec"` // 0: the workspace's timeout
	Options      []string `json:"options"`
	Execution    string   `json:"execution,omitzero"`   // ExecutionAgent, or "": what the tool's table says
	Editable     string   `json:"editable,omitzero"`    // a text in request_data; the agent takes code 7 for it
	Subagent     string   `json:"subagent,omitzero"`    // of the agent's helpers, which one asks; "": none
	ArgsSubset   []string `json:"args_subset,omitzero"` // without a tool: lists of which a part may be used
	Metadata     Raw      `json:"metadata,omitzero"`    // an object; carried to the record and the response
	Proof        Raw      `json:"proof"`
	Resubmits    string   `json:"resubmits"`
	SourceGroup  string   `json:"-"` // the workspace that a form of the predecessor names; "": none
}

// Errors of ParseRequest.
var (
	// ErrIncomplete means that the bytes may be the beginning of a request.
	ErrIncomplete = errors.New("the request is incomplete: write it under another name and rename it into place")
	// ErrMalformed wraps every error that more bytes cannot fix.
	ErrMalformed = errors.New("malformed request")
)

// ParseRequest reads a request of the given id. Its errors wrap ErrIncomplete or
// ErrMalformed and quote at most a key of the document.
func ParseRequest(b []byte, id string) (*Request, error) {
	r := &Request{}
	err := r.parse(b, r)
	if err == nil {
		err = r.validate(id)
	}
	return r.orError(err)
}

// parse reads b into document, which is or holds r, or into r if b has the flat form.
func (r *Request) parse(b []byte, document any) error {
	err := codec.Decode(b, document)
	if tool, fields, ok := flatForm(b); ok {
		err = r.setFlat(b, tool, fields)
	}
	return err
}

// orError is r, or what a caller of ParseRequest learns of err.
func (r *Request) orError(err error) (*Request, error) {
	switch {
	case errors.Is(err, codec.ErrEndsEarly):
		return nil, ErrIncomplete
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return r, nil
}

// flatType is before the name of the tool in the type of a request in the predecessor's flat
// form: every member but type, request_id and source_group is an argument.
const flatType = "service:"

// flatForm returns the tool and the members of a request in the flat form, as far as it goes.
func flatForm(b []byte) (tool string, fields []codec.Field, ok bool) {
	if !bytes.Contains(b, []byte(flatType)) {
		return "", nil, false // fast path for almost every request
	}
	fields = codec.FirstFields(b) // setFlat reports what is wrong behind them
	for _, f := range fields {
		if text, _ := f.Text(); f.Name == "type" && strings.HasPrefix(text, flatType) {
			return text[len(flatType):], fields, true
		}
	}
	return "", nil, false
}

// setFlat makes r the request that the flat form stands for. The arguments keep their bytes.
func (r *Request) setFlat(b []byte, tool string, fields []codec.Field) error {
	var strict Raw
	if err := codec.Decode(b, &strict); err != nil {
		return err
	}
	*r = Request{ToolName: tool}
	var arguments []codec.Field
	for _, f := range fields {
		text, isText := f.Text()
		switch f.Name {
		case "type":
			continue
		case "request_id":
			r.RequestID = text
			continue
		case "source_group":
			if r.SourceGroup = text; !isText || text == "" {
				return errors.New("source_group must be the name of the workspace")
			}
			continue
		}
		arguments = append(arguments, f)
	}
	r.RequestData = codec.Object(arguments)
	return nil
}

// Encode is the request as an agent would write it, for APIs that receive it in
// another form.
func (r *Request) Encode() ([]byte, error) { return codec.Encode(r) }

func (r *Request) validate(id string) error {
	switch {
	case !ValidID(r.RequestID):
		return errors.New("request_id must be " + IDForm)
	case r.RequestID != id:
		return errors.New("request_id differs from the file's name")
	case r.ToolName == "" && r.ActionType == "" && r.Program == "" && r.Type != TypeQuestion:
		return errors.New("tool_name, action_type or program is required")
	case r.ToolName != "" && !ValidToolName(r.ToolName):
		return errors.New("tool_name must be 1 to 64 of A-Z a-z 0-9 _ . : -")
	case r.ActionType != "" && !ValidActionType(r.ActionType):
		return errors.New("action_type must be exec_cmd, http_request, write_file, send_message or custom:<name>")
	case r.Execution != "" && (r.Execution != ExecutionAgent || r.ToolName == "" || r.Type == TypeQuestion):
		return errors.New("execution must be agent, with a tool_name, or left out")
	case r.Execution == "" && r.Editable+r.Subagent != "":
		return errors.New("editable and subagent go only with execution")
	case r.ExpiresInSec < 0 || r.ExpiresInSec > int64(maxExpiry/time.Second):
		return fmt.Errorf("expires_in_sec must be 1 to %d, or left out", int64(maxExpiry/time.Second))
	case r.Resubmits != "" && !ValidID(r.Resubmits):
		return errors.New("resubmits must be a request id")
	}
	if err := r.validateText(); err != nil {
		return err
	}
	if err := r.validateProgram(); err != nil {
		return err
	}
	return r.validateShape()
}

func (r *Request) validateProgram() error {
	switch {
	case r.Program == "" && r.Continues != "":
		return errors.New("continues goes only with program")
	case r.Program == "":
		return nil
	case r.ToolName != "" || r.ActionType != "" || r.Type == TypeQuestion || r.Execution != "":
		return errors.New("program goes without tool_name, action_type, execution and questions")
	case len(r.RequestData) > 0 && string(r.RequestData) != "{}" && r.RequestData.Kind() != 'n':
		return errors.New("a program has no request_data")
	case len(r.Program) > MaxProgram:
		return fmt.Errorf("program is longer than %d bytes", MaxProgram)
	case !utf8.ValidString(r.Program):
		return errors.New("program must be UTF-8")
	case r.Continues != "" && (!ValidID(r.Continues) || r.RequestID != ContinuationID(r.Continues)):
		return errors.New("continues must be a request id, and request_id the next_request_id of its response")
	}
	return nil
}

func (r *Request) validateText() error {
	for _, f := range []struct {
		name, text string
		max        int
	}{
		{"session_id", r.SessionID, maxSession},
		{"title", r.Title, maxTitle},
		{"preview", r.Preview, maxProse},
		{"rationale", r.Rationale, maxProse},
		{"subagent", r.Subagent, maxToolName},
	} {
		if len(f.text) > f.max {
			return fmt.Errorf("%s is longer than %d bytes", f.name, f.max)
		}
	}
	return nil
}

func (r *Request) validateShape() error {
	switch r.Type {
	case "":
		r.Type = TypeAction
	case TypeAction, TypeQuestion:
	default:
		return errors.New("type must be action or question")
	}
	if r.Type == TypeQuestion && strings.TrimSpace(r.Title) == "" {
		return errors.New("a question needs a title: it is the text of the question")
	}
	if len(r.Options) > 0 && r.Type != TypeQuestion {
		return errors.New("options belong to a question")
	}
	if len(r.Options) > maxOptions {
		return fmt.Errorf("at most %d options", maxOptions)
	}
	for _, o := range r.Options {
		if o == "" || len(o) > maxOption || !utf8.ValidString(o) {
			return fmt.Errorf("an option must be 1 to %d bytes", maxOption)
		}
	}
	switch r.RequestData.Kind() {
	case '{':
	case 0, 'n':
		r.RequestData = Raw("{}")
	default:
		return errors.New("request_data must be an object")
	}
	for name, object := range map[string]*Raw{"proof": &r.Proof, "metadata": &r.Metadata} {
		switch object.Kind() {
		case 'n':
			*object = nil
		case 0, '{':
		default:
			return fmt.Errorf("%s must be an object", name)
		}
	}
	if len(r.Metadata) > maxMetadata {
		return fmt.Errorf("metadata is longer than %d bytes", maxMetadata)
	}
	if r.Editable != "" && !slices.ContainsFunc(codec.FirstFields(r.RequestData), func(f codec.Field) bool {
		_, isText := f.Text()
		return f.Name == r.Editable && isText
	}) {
		return errors.New("editable must name a text in request_data")
	}
	return r.validateSubset()
}

// validateSubset: only where nothing runs here may a receipt stand for a part of a list, and
// never for a part of a command, which is another command.
func (r *Request) validateSubset() error {
	if len(r.ArgsSubset) == 0 {
		return nil
	}
	if r.ToolName != "" || r.Type == TypeQuestion || r.ActionType == "exec_cmd" {
		return errors.New("args_subset is only for an action_type but exec_cmd, without tool_name")
	}
	lists := map[string]bool{}
	for _, f := range codec.FirstFields(r.RequestData) {
		lists[f.Name] = f.Value.Kind() == '['
	}
	for _, name := range r.ArgsSubset {
		if !lists[name] || len(name) > maxToolName || len(r.ArgsSubset) > maxOptions {
			return fmt.Errorf("args_subset must name up to %d lists in request_data, each once, by at most %d bytes", maxOptions, maxToolName)
		}
		lists[name] = false
	}
	return nil
}

// ValidToolName reports whether a tool may be called s.
func ValidToolName(s string) bool {
	if s == "" || len(s) > maxToolName {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_.:-", r)
	})
}

// ActionTypes lists the built-in action types; custom:<name> is valid too.
func ActionTypes() []string {
	return []string{"exec_cmd", "http_request", "write_file", "send_message"}
}

// ValidActionType reports whether s is an action type.
func ValidActionType(s string) bool {
	if name, ok := strings.CutPrefix(s, "custom:"); ok {
		return ValidToolName(name)
	}
	return slices.Contains(ActionTypes(), s)
}

// hostRequest is a request that a host program wrote as a pending, with the
// predecessor's additional keys. All but source_group are ignored.
type hostRequest struct {
	Request
	ShortID     string `json:"short_id"`
	SourceGroup string `json:"source_group"`
	ChatJID     string `json:"chat_jid"`
	HandlerType string `json:"handler_type"`
	Timestamp   string `json:"timestamp"`
	Notified    bool   `json:"notification_sent"`
}

// ParseHostRequest reads a request that a host program wrote as a pending, or an agent as a
// request. Its errors are those of ParseRequest.
func ParseHostRequest(b []byte, id string) (*Request, error) { return parseHost(b, id, "") }

// ParseDraft reads a request to be evaluated but not run. If it has no id, it gets
// a placeholder.
func ParseDraft(b []byte) (*Request, error) { return parseHost(b, "", strings.Repeat("0", 16)) }

// parseHost reads a request of the given id; "" is any, or none, for which placeholder stands.
func parseHost(b []byte, id, placeholder string) (*Request, error) {
	h := &hostRequest{}
	err := h.parse(b, h)
	if h.Request.SourceGroup = cmp.Or(h.SourceGroup, h.Request.SourceGroup); h.RequestID == "" {
		h.RequestID = placeholder
	}
	if err == nil {
		err = h.validate(cmp.Or(id, h.RequestID))
	}
	return h.orError(err)
}
