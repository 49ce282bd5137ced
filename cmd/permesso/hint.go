package main

import (
	"errors"
	"strings"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc"
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
		{approval.ErrUnsynced, "the decision may have been recorded; check with permesso show ID before retrying"},
		{ipc.ErrLocked, "stop the other daemon, or use another --home"},
	} {
		if errors.Is(err, x.is) {
			return x.hint
		}
	}
	return ""
}

// hintFor is what an operator can do about an error, or "".
func hintFor(err error) string {
	var e *exit
	if errors.As(err, &e) && e.hint != "" {
		return e.hint
	}
	return hints(approval.Hint(err), commandHint(err))
}

// hints joins advice.
func hints(all ...string) string {
	var some []string
	for _, hint := range all {
		if hint != "" {
			some = append(some, hint)
		}
	}
	return strings.Join(some, "; ")
}

// advice is the field hint of a log line about an error.
type advice struct{ err error }

// MarshalZerologObject implements zerolog.LogObjectMarshaler, for EmbedObject.
func (a advice) MarshalZerologObject(e *zerolog.Event) {
	if hint := hintFor(a.err); hint != "" {
		e.Str("hint", hint)
	}
}
