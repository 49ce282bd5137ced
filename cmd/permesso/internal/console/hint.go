package console

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
)

// commandHint is the advice that only this program can give: it names a command. Other
// packages return the class of the error.
func commandHint(err error) string {
	for _, x := range []struct {
		is   error
		hint string
	}{
		{receipt.ErrNoKey, "run permesso init to create one"},
		{seal.ErrNoKey, "run permesso init to create one"},
		{store.ErrUnsynced, "the decision may have been recorded; check with permesso show ID before retrying"},
		{ipc.ErrLocked, "stop the other daemon, or use another --home"},
	} {
		if errors.Is(err, x.is) {
			return x.hint
		}
	}
	return ""
}

// HintFor is what an operator can do about an error, or "".
func HintFor(err error) string {
	if e, ok := errors.AsType[*Error](err); ok && e.hint != "" {
		return e.hint
	}
	return Hints(hints.Of(err), commandHint(err))
}

// Hints joins hints; empty ones are left out.
func Hints(all ...string) string {
	var some []string
	for _, hint := range all {
		if hint != "" {
			some = append(some, hint)
		}
	}
	return strings.Join(some, "; ")
}

// Advice is the field hint of a log line about an error.
type Advice struct{ Err error }

// MarshalZerologObject implements zerolog.LogObjectMarshaler, for EmbedObject.
func (a Advice) MarshalZerologObject(e *zerolog.Event) {
	if hint := HintFor(a.Err); hint != "" {
		e.Str("hint", hint)
	}
}

// PrintIssue prints an error and its hint. An error without a text has only its hint printed.
func (a *Console) PrintIssue(before string, err error) {
	if err.Error() != "" {
		fmt.Fprintf(a.Err, "%s%v\n", before, err)
	}
	if hint := HintFor(err); hint != "" {
		fmt.Fprintf(a.Err, "hint: %s\n", hint)
	}
}

// Plural gives "1 issue" and "2 issues".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// VerifyFirst adds to an error of a changed audit log the command that shows where.
func VerifyFirst(err error) error {
	for _, bad := range []error{audit.ErrDamaged, audit.ErrTampered, audit.ErrNotProven} {
		if errors.Is(err, bad) {
			return hints.Add(err, Hints("run permesso audit verify for details", hints.Of(err)))
		}
	}
	return err
}
