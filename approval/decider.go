package approval

import (
	"errors"
	"fmt"
	"time"
)

// Person is a human decider, known by an id that cannot be chosen freely: a numeric
// chat id, an authenticated address, a local UID.
type Person struct {
	Channel string // the entrance: one of those below, or a channel's name
	ID      string // "123456789", "ann@example.org", "1000"
	Name    string // shown to others: "ann", "operator:root"
}

// The entrances that are no channels.
const (
	EntranceLocal  = "local"  // terminal, CLI and browser of a process that can read HOME
	EntranceSocket = "socket" // a local user who cannot
	EntranceKey    = "key"    // an approver's HTTP API key
)

// StableID is the id that documents and the audit log keep. A local user has the same
// one at every entrance.
func (p Person) StableID() string {
	if p.Channel == EntranceSocket {
		return EntranceLocal + ":" + p.ID
	}
	return p.Channel + ":" + p.ID
}

// DecisionInput is what a person decides about one pending. Only Decide turns it
// into a decision.
type DecisionInput struct {
	Key           Key
	PendingSHA256 string // digest of the pending that was shown; "": the one on disk
	Verdict       Verdict
	Code          string // "1" to "6", "" where no code was used
	Scope         Scope
	Note          string // code 4
	Override      string // code 5
	Feedback      string // a reason, or what request_more asks for
	Text          string // the answer to a question
	By            Person
	Via           string // terminal, cli, telegram, email, web, rest
}

// codes is what each code decides. What is not here is no code.
var codes = map[string]struct {
	verdict Verdict
	scope   Scope
}{
	"1": {Approved, Once}, "2": {Approved, Session}, "3": {verdict: Denied},
	"4": {Approved, Once}, "5": {verdict: Overridden}, "6": {Approved, Always},
}

// CodeDecision is what code "1" to "6" decides, with its text: the reason of 3, the note
// of 4, the change of 5. Any other code has no verdict, and Decide refuses it.
func CodeDecision(code, text string) DecisionInput {
	a := DecisionInput{Code: code, Verdict: codes[code].verdict, Scope: codes[code].scope}
	switch code {
	case "3":
		a.Feedback = text
	case "4":
		a.Note = text
	case "5":
		a.Override = text
	}
	return a
}

// StoredPending is a verified pending as stored on disk.
type StoredPending struct {
	Pending *Pending
	SHA256  string // of the file's bytes
}

// Key names the pending's request.
func (w StoredPending) Key() Key { return Key{w.Pending.SourceGroup, w.Pending.RequestID} }

// The reasons for which Decide refuses. A *Refusal adds the details.
var (
	ErrNotAuthorized = errors.New("nothing here for you")
	ErrUnknown       = errors.New("no such request")
	ErrDecided       = errors.New("already decided")
	ErrTooLate       = errors.New("too late")
	ErrNotApplicable = errors.New("not possible here")
)

// Refusal is returned by a Decide that wrote nothing, or withdrew what it wrote.
type Refusal struct {
	Reason  error     // one of the errors above
	By      string    // the person who decided first, if known
	At      time.Time // when By decided
	Verdict Verdict   // what By decided
	Hint    string
}

func (r *Refusal) Error() string {
	switch {
	case r.By != "" && r.Verdict != "":
		return fmt.Sprintf("%v: %s by %s at %s", r.Reason, r.Verdict, r.By, r.At.UTC().Format(time.RFC3339))
	case r.Hint != "":
		return fmt.Sprintf("%v: %s", r.Reason, r.Hint)
	}
	return r.Reason.Error()
}

func (r *Refusal) Unwrap() error { return r.Reason }

// Workspace is the operator's configuration of one agent's workspace.
type Workspace struct {
	Name           string
	Autonomy       string
	Approvers      []string // names; empty: no approver may decide
	Principal      string   // if set, only this approver decides
	Channels       []string
	LocalDecisions bool // the local operator may decide
	Timeout        time.Duration
	MaxTimeout     time.Duration
	QuietHours     QuietHours
	Language       string
	ChatJID        string
	Limits         Limits
	Sessions       map[string]string // autonomy of single sessions; can only lower it
	BindsSessions  bool              // the host issues session ids; agents cannot choose them
	Secrets        bool              // the agent has the secret taint from the start
	Admin          bool              // the agent must have no tool that reads public content
}

// Limits bound what one workspace may use. Zero means the default.
type Limits struct {
	Pending      int // at once: 32
	AskPerMinute int // 60
	PerMinute    int // all requests: 600
	RequestSize  int // bytes: 256 KiB
	Running      int // handlers at once: 8
}

// WithDefaults replaces zero fields by their defaults.
func (l Limits) WithDefaults() Limits {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&l.Pending, 32)
	def(&l.AskPerMinute, 60)
	def(&l.PerMinute, 600)
	def(&l.RequestSize, MaxRequestSize)
	def(&l.Running, 8)
	return l
}

// Approver is a person who may decide, with every id they may use.
type Approver struct {
	Name     string
	IDs      map[string]string // by Person.Channel: "telegram", "email", "local"
	Language string
}
