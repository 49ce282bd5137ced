// Package decide is what an entrance tells the gate to decide about a pending, and how
// the gate refuses.
package decide

import (
	"errors"
	"fmt"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// Input is what a person decides about one pending. Only Decide turns it
// into a decision.
type Input struct {
	Key           approval.Key
	PendingSHA256 string // digest of the pending that was shown; "": the one on disk
	Verdict       approval.Verdict
	Code          string // "1" to "7", "" where no code was used
	Scope         approval.Scope
	Note          string // code 4
	Override      string // code 5, and 7
	Feedback      string // a reason, or what request_more asks for
	Text          string // the answer to a question
	Commands      string // of code 6, at a local entrance: the command pattern to remember; "": the same request
	ClaimedBy     string // who has decided, as a host program says
	By            approval.Person
	Via           string // terminal, cli, telegram, email, web, rest
}

// codes is what each code decides. What is not here is no code.
var codes = map[string]struct {
	verdict approval.Verdict
	scope   approval.Scope
}{
	"1": {approval.Approved, approval.Once}, "2": {approval.Approved, approval.Session}, "3": {verdict: approval.Denied},
	"4": {approval.Approved, approval.Once}, "5": {verdict: approval.Overridden},
	"6": {approval.Approved, approval.Always}, approval.CodeEdit: {verdict: approval.Overridden},
}

// ByCode is what code "1" to "7" decides, with its text: the reason of 3, the note
// of 4, the change of 5, the text of 7. Any other code has no verdict, and Decide refuses it.
func ByCode(code, text string) Input {
	a := Input{Code: code, Verdict: codes[code].verdict, Scope: codes[code].scope}
	switch code {
	case "3":
		a.Feedback = text
	case "4":
		a.Note = text
	case "5", approval.CodeEdit:
		a.Override = text
	}
	return a
}

// The reasons for which Decide refuses. A *Refusal adds the details.
var (
	ErrNotAuthorized = errors.New("nothing here for you")
	ErrUnknown       = errors.New("no such request")
	ErrDecided       = errors.New("already decided")
	ErrTooLate       = errors.New("too late")
	ErrChanged       = errors.New("the request changed since it was shown")
	ErrNotApplicable = errors.New("not possible here")
)

// Refusal is returned by a Decide that wrote nothing, or withdrew what it wrote.
type Refusal struct {
	Reason  error            // one of the errors above
	By      string           // the person who decided first, if known
	At      time.Time        // when By decided
	Verdict approval.Verdict // what By decided
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
