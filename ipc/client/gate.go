package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// Gate is a way to a gate. Files and *REST are the two there are.
type Client interface {
	// Ask hands a request over. By HTTP the gate has it then; in a folder it is
	// found there. A RequestID is a fresh one where it is empty; the same one again,
	// with the same request, is the same request.
	Ask(ctx context.Context, r approval.Request) (Submitted, error)
	// Await returns how a request ended, once it has. An end for other bytes than
	// were asked for is ErrIDConflict.
	Await(ctx context.Context, a Submitted) (*approval.Response, error)
	// Cancel takes a request back that nobody has decided yet. By HTTP it says
	// whether that was in time, with ErrNotPending; in a folder, Await does.
	Cancel(ctx context.Context, a Submitted) error
}

// Asked is a request that was handed over. Only its ID is needed to wait for it;
// the rest is what its end must be for, in hex, "" where that is not known.
type Submitted struct {
	ID            string // 16 to 64 hex digits
	RequestSHA256 string // of the bytes in the folder
	ArgsSHA256    string // of request_data
	Tool          string
}

// The ways in which a gate, or the way to it, says no.
var (
	// ErrIDConflict says that an answer is for other bytes than ours.
	ErrIDConflict = errors.New("the response is for another request under this id")
	// ErrKey says that there is no key, or none that the gate knows, or that it may
	// not do this.
	ErrKey = errors.New("no valid key")
	// ErrInvalid says that the request will never be taken as it is.
	ErrInvalid = errors.New("the gate does not take the request")
	// ErrNotFound says that there is no such request, or that it is somebody else's.
	ErrNotFound = errors.New("there is no such request")
	// ErrNotPending says that a request is over, or decided: too late to take back.
	ErrNotPending = errors.New("the request no longer waits")
	// ErrUnreachable says that for all our patience no gate answered, or only that
	// it has no time. What was sent may have been accepted: the same request under
	// the same RequestID finds out.
	ErrUnreachable = errors.New("the gate cannot be reached")
	// ErrNoGate says that something answers that is no gate.
	ErrNoGate = errors.New("what answers there is no gate")
)

// Refused is an answer of the gate's HTTP door that is none of those one hopes for.
// errors.Is finds ErrKey, ErrInvalid, ErrNotFound, ErrNotPending or ErrUnreachable
// in it.
type Refused struct {
	Status int           // of HTTP
	Detail string        // one sentence of the gate's
	After  time.Duration // when it may be worth trying again; 0: it does not say
}

func (e *Refused) Error() string { return fmt.Sprintf("the gate answers %d: %s", e.Status, e.Detail) }

// Is implements the interface of errors.Is.
func (e *Refused) Is(target error) bool {
	switch e.Status {
	case 401, 403:
		return target == ErrKey
	case 404:
		return target == ErrNotFound
	case 409, 410:
		return target == ErrNotPending
	case 429:
		return target == ErrUnreachable
	}
	if e.Status >= 500 {
		return target == ErrUnreachable
	}
	return target == ErrInvalid
}

// NotApproved is the end of a request by which nothing may be done. errors.Is finds
// one of the errors below in it.
type NotApproved struct{ Response *approval.Response }

// The ends of a request by which nothing may be done.
var (
	ErrDenied      = errors.New("denied")      // by a person, by policy, or because it was malformed
	ErrExpired     = errors.New("expired")     // nobody answered in time
	ErrCancelled   = errors.New("cancelled")   // by whoever asked
	ErrOverridden  = errors.New("overridden")  // code 5: do what Decision.Override says, and ask for that
	ErrRequestMore = errors.New("more wanted") // Feedback says what a person wants to know
	ErrFailed      = errors.New("failed")      // approved, and started at most: see Error
)

func (e *NotApproved) Error() string {
	text := e.Unwrap().Error()
	for _, more := range []*string{e.Response.Decision.Override, e.Response.Feedback, e.Response.Error} {
		if more != nil {
			return text + ": " + *more
		}
	}
	return text
}

// Unwrap gives one of the errors above. A status that nobody knows is a no.
func (e *NotApproved) Unwrap() error {
	switch e.Response.Status {
	case approval.StatusExpired:
		return ErrExpired
	case approval.StatusCancelled:
		return ErrCancelled
	case approval.StatusOverridden:
		return ErrOverridden
	case approval.StatusRequestMore:
		return ErrRequestMore
	case approval.StatusFailed, approval.StatusInterrupted:
		return ErrFailed
	case approval.StatusApproved, approval.StatusAutoApproved, approval.StatusAnswered,
		approval.StatusDenied, approval.StatusAutoRejected, approval.StatusMalformed:
	}
	return ErrDenied
}

// Approved is nil where a response says that the action may be done, or was.
// Everything else is a *NotApproved: an answer to a question approves nothing.
func Approved(r *approval.Response) error {
	if r.Status == approval.StatusApproved || r.Status == approval.StatusAutoApproved {
		return nil
	}
	return &NotApproved{r}
}

// FromEnv is the gate that the environment names: PERMESSO_URL and PERMESSO_KEY, or
// the folders of PERMESSO_REQUESTS and PERMESSO_RESPONSES, or those in their usual
// places.
func FromEnv(env func(string) string) (Client, error) {
	if url := env("PERMESSO_URL"); url != "" {
		r := &REST{URL: url, Key: env("PERMESSO_KEY")}
		return r, r.Check()
	}
	f := Files{Requests: DefaultRequests, Responses: DefaultResponses}
	if dir := env("PERMESSO_REQUESTS"); dir != "" {
		f.Requests = dir
	}
	if dir := env("PERMESSO_RESPONSES"); dir != "" {
		f.Responses = dir
	}
	return f, nil
}
