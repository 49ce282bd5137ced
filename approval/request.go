package approval

import (
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
)

// Request is what an agent wrote. No field carries authority.
type Request struct {
	RequestID    string   `json:"request_id"`
	Type         string   `json:"type"`
	ToolName     string   `json:"tool_name"`
	ActionType   string   `json:"action_type"`
	RequestData  Raw      `json:"request_data"`
	SessionID    string   `json:"session_id"`
	Title        string   `json:"title"`
	Preview      string   `json:"preview"`
	Rationale    string   `json:"rationale"`
	ExpiresInSec int64    `json:"expires_in_sec"` // 0: the workspace's timeout
	Options      []string `json:"options"`
	Proof        Raw      `json:"proof"`
	Resubmits    string   `json:"resubmits"`
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
	if err := codec.Decode(b, r); errors.Is(err, codec.ErrEndsEarly) {
		return nil, ErrIncomplete
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := r.validate(id); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return r, nil
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
	case r.ToolName == "" && r.ActionType == "" && r.Type != TypeQuestion:
		return errors.New("tool_name or action_type is required")
	case r.ToolName != "" && !ValidToolName(r.ToolName):
		return errors.New("tool_name must be 1 to 64 of A-Z a-z 0-9 _ . : -")
	case r.ActionType != "" && !ValidActionType(r.ActionType):
		return errors.New("action_type must be exec_cmd, http_request, write_file, send_message or custom:<name>")
	case r.ExpiresInSec < 0 || r.ExpiresInSec > int64(maxExpiry/time.Second):
		return fmt.Errorf("expires_in_sec must be 1 to %d, or left out", int64(maxExpiry/time.Second))
	case r.Resubmits != "" && !ValidID(r.Resubmits):
		return errors.New("resubmits must be a request id")
	}
	if err := r.validateText(); err != nil {
		return err
	}
	return r.validateShape()
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
	if k := r.Proof.Kind(); k != 0 && k != '{' && k != 'n' {
		return errors.New("proof must be an object")
	} else if k == 'n' {
		r.Proof = nil
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
// predecessor's additional keys. Those are ignored.
type hostRequest struct {
	Request
	ShortID     string `json:"short_id"`
	SourceGroup string `json:"source_group"`
	ChatJID     string `json:"chat_jid"`
	HandlerType string `json:"handler_type"`
	Timestamp   string `json:"timestamp"`
}

// ParseHostRequest reads a request that a host program wrote as a pending.
func ParseHostRequest(b []byte, id string) (*Request, error) {
	h := &hostRequest{}
	if err := codec.Decode(b, h); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := h.validate(id); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return &h.Request, nil
}

// ParseDraft reads a request to be evaluated but not run. If it has no id, it gets
// a placeholder.
func ParseDraft(b []byte) (*Request, error) {
	h := &hostRequest{}
	if err := codec.Decode(b, h); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if h.RequestID == "" {
		h.RequestID = strings.Repeat("0", 16)
	}
	if err := h.validate(h.RequestID); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return &h.Request, nil
}
