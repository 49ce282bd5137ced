package approval

import (
	"errors"
	"fmt"
	"time"
)

// Person is somebody who answers, known by an id that cannot be chosen freely:
// a numeric chat id, an authenticated address, a local uid.
type Person struct {
	Channel string // telegram, email, or local for terminal, CLI and browser
	ID      string // "123456789", "ann@example.org", "1000"
	Name    string // what others are told: "ann", "operator:root"
}

// DecisionInput is what a person wants done with one pending. Only Decide turns it
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

// Waiting is a pending as it lies on disk, verified.
type Waiting struct {
	Pending *Pending
	SHA256  string // of the file's bytes
}

// Key names the request that waits.
func (w Waiting) Key() Key { return Key{w.Pending.SourceGroup, w.Pending.RequestID} }

// The reasons for which Decide refuses. Each is one sentence for the person
// who asked; a *Refusal says it in full.
var (
	ErrNotAuthorized = errors.New("nothing here for you")
	ErrUnknown       = errors.New("no such request")
	ErrDecided       = errors.New("already decided")
	ErrTooLate       = errors.New("too late")
	ErrNotApplicable = errors.New("not possible here")
)

// Refusal is a Decide that wrote nothing, or withdrew what it wrote.
type Refusal struct {
	Reason  error     // one of the errors above
	By      string    // who decided first, where somebody did
	At      time.Time // and when
	Verdict Verdict   // and what
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

// Unwrap gives the reason.
func (r *Refusal) Unwrap() error { return r.Reason }

// Workspace is what the operator says of one agent's home.
type Workspace struct {
	Name           string
	Autonomy       string
	Approvers      []string // names; empty: nobody may approve
	Principal      string   // only this approver decides, where set
	Channels       []string
	LocalDecisions bool // the local operator may decide at a terminal
	Timeout        time.Duration
	MaxTimeout     time.Duration
	QuietHours     QuietHours
	Language       string
	ChatJID        string
	Limits         Limits
	Sessions       map[string]string // autonomy of single sessions; only lowers
	BindsSessions  bool              // the host gives out the session ids, agents cannot choose them
	Secrets        bool              // its agent has secrets from the start
	Admin          bool              // no tool of its agent may read what strangers write
}

// Limits bound what one workspace may ask of the gate. Zero means the default.
type Limits struct {
	Pending      int // waiting at once: 32
	AskPerMinute int // 60
	PerMinute    int // requests in all: 600
	RequestSize  int // bytes: 256 KiB
	Running      int // handlers at once: 8
}

// WithDefaults fills the zero fields in.
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

// Approver is a person on an approver list, with every id they may use.
type Approver struct {
	Name     string
	Telegram string // numeric
	Email    string
	Local    string // uid
	Language string
}
