package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
)

// Client is a connection to a gate: Files or *REST.
type Client interface {
	// Ask submits a request. By HTTP the gate has accepted it then; in a folder it has
	// only been written. An empty RequestID becomes a random one. The same RequestID with
	// the same request is the same request.
	Ask(ctx context.Context, r approval.Request) (Submitted, error)
	// Await returns the end of a request, once it has ended. An end for other bytes than
	// the submitted ones is ErrIDConflict.
	Await(ctx context.Context, a Submitted) (*approval.Response, error)
	// Cancel cancels a pending request. By HTTP it returns ErrNotPending if that is too
	// late; in a folder only Await reports that.
	Cancel(ctx context.Context, a Submitted) error
}

// Submitted is a submitted request. Only its ID is needed to wait for it. The digests, in
// hex, and the tool check its end; "": unknown.
type Submitted struct {
	ID            string `json:"id"`             // 16 to 64 hex digits, or a UUID
	RequestSHA256 string `json:"request_sha256"` // of the bytes in the folder
	ArgsSHA256    string `json:"args_sha256"`    // of request_data
	Tool          string `json:"tool"`
	ProgramSHA256 string `json:"program_sha256,omitzero"` // of a program; its arguments are not checked
}

// View is what is known of a request at a time. In a folder that is only its end, and whether it was taken.
type View struct {
	Untaken   bool               // it is in the folder, and no daemon has taken it
	Response  *approval.Response // nil: it has not ended
	Until     time.Time          // the time until which it waits for a decision; zero: not known
	Approvers []string           // the names of those who may decide; nil: not known
}

// Errors of a gate, or of the connection to it.
var (
	// ErrIDConflict means that a response is for other bytes than the submitted ones.
	ErrIDConflict = errors.New("the response is for another request under this id")
	// ErrKey means that there is no key, that the gate does not know it, or that it lacks
	// a scope.
	ErrKey = errors.New("no valid key")
	// ErrInvalid means that the gate will never accept the request as it is.
	ErrInvalid = errors.New("the gate refused the request")
	// ErrNotFound means that there is no such request, or that it is another client's.
	ErrNotFound = errors.New("no such request")
	// ErrNotPending means that a request is decided or has ended: too late to cancel.
	ErrNotPending = errors.New("the request is no longer pending")
	// ErrUnreachable means that no gate answered within the timeout, or that it was busy.
	// The request may have been accepted: submit it again under the same RequestID to
	// find out.
	ErrUnreachable = errors.New("the gate cannot be reached")
	// ErrNoGate means that the server is not a gate.
	ErrNoGate = errors.New("the server is not a permesso gate")
)

// patience is how long a gate may be silent before that is told.
const patience = 2 * time.Second

// Silence is the error of a call whose context ended before a gate had answered.
type Silence struct {
	Tried string // what did not answer
	Err   error  // of the context
}

func (e *Silence) Error() string { return e.Tried + ": " + e.Err.Error() }

func (e *Silence) Unwrap() error { return e.Err }

// Refused is an error response of the HTTP API. errors.Is finds ErrKey, ErrInvalid,
// ErrNotFound, ErrNotPending or ErrUnreachable in it.
type Refused struct {
	Status int           // of HTTP
	Detail string        // one sentence
	After  time.Duration // Retry-After; 0: none
}

func (e *Refused) Error() string { return fmt.Sprintf("the gate returned %d: %s", e.Status, e.Detail) }

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

// NotApproved is the end of a request without an approval. errors.Is finds one of the
// errors below in it.
type NotApproved struct{ Response *approval.Response }

// The ends of a request without an approval.
var (
	ErrDenied      = errors.New("denied")                     // by a person; ErrRejected and ErrMalformed are ErrDenied, too
	ErrRejected    = end{"auto_rejected", ErrDenied}          // by the gate or its policy, without asking anyone
	ErrMalformed   = end{"malformed", ErrDenied}              // the gate could not read the request, and never will
	ErrExpired     = errors.New("expired")                    // no decision in time
	ErrCancelled   = errors.New("cancelled")                  // by its client
	ErrOverridden  = errors.New("overridden")                 // code 5: do what Decision.Override says, with a new request
	ErrRequestMore = errors.New("more information requested") // Feedback is the approver's question
	ErrFailed      = errors.New("failed")                     // approved, but failed, interrupted or not started: see Error
)

// end is a particular case of another end.
type end struct {
	text string
	is   error
}

func (e end) Error() string { return e.text }

func (e end) Unwrap() error { return e.is }

func (e *NotApproved) Error() string {
	text := e.Unwrap().Error()
	for _, more := range []*string{e.Response.Decision.Override, e.Response.Feedback, e.Response.Error} {
		if more != nil {
			return text + ": " + *more
		}
	}
	return text
}

// Unwrap returns one of the errors above. An unknown status is ErrDenied.
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
		approval.StatusDenied:
	case approval.StatusAutoRejected:
		return ErrRejected
	case approval.StatusMalformed:
		return ErrMalformed
	}
	return ErrDenied
}

// Approved is nil if a response says that the action may run, or has run. Otherwise it is
// a *NotApproved: an answer to a question approves nothing.
func Approved(r *approval.Response) error {
	if r.Status == approval.StatusApproved || r.Status == approval.StatusAutoApproved {
		return nil
	}
	return &NotApproved{r}
}

// FromEnv returns the client that the environment configures: PERMESSO_URL and
// PERMESSO_KEY, or the folders PERMESSO_REQUESTS and PERMESSO_RESPONSES, or the default
// folders.
func FromEnv(env func(string) string) (Client, error) {
	if url := env("PERMESSO_URL"); url != "" {
		r := &REST{URL: url, Key: env("PERMESSO_KEY")}
		return r, r.Check()
	}
	return Files{
		Requests:  cmp.Or(env("PERMESSO_REQUESTS"), DefaultRequests),
		Responses: cmp.Or(env("PERMESSO_RESPONSES"), DefaultResponses),
	}, nil
}

// NeedsApproval returns do guarded by a gate. Each call submits r with the argument as
// its request_data, which must encode to a JSON object. do runs only if that was
// approved; otherwise the error is a *NotApproved, or a failure to submit. If ctx ends,
// the request is cancelled. do runs here and not on the host, so r has an ActionType and
// no ToolName.
func NeedsApproval[A, R any](g Client, r approval.Request, do func(context.Context, A) (R, error)) func(context.Context, A) (R, error) {
	return func(ctx context.Context, arg A) (none R, err error) {
		if r.ToolName != "" || r.Type == approval.TypeQuestion {
			return none, fmt.Errorf("%w: set ActionType and not ToolName: the function runs here, not on the host", ErrInvalid)
		}
		args, err := encodeArgs(arg)
		if err != nil {
			return none, err
		}
		ask := r
		ask.RequestData = args
		asked, err := askDetached(ctx, g, ask)
		if err != nil {
			return none, err
		}
		resp, err := g.Await(ctx, asked)
		if ctx.Err() != nil {
			cancelDetached(ctx, g, asked)
		}
		if err != nil {
			return none, err
		}
		if err := Approved(resp); err != nil {
			return none, err
		}
		// The argument may contain pointers: check that the shown value has not changed.
		if now, err := encodeArgs(arg); err != nil || !bytes.Equal(now, args) {
			return none, errors.Join(fmt.Errorf("%w: the argument changed during the approval", ErrIDConflict), err)
		}
		return do(ctx, arg)
	}
}

// askDetached submits even if ctx ends meanwhile, for a moment: an accepted request can
// be cancelled only under the id that the gate returns.
func askDetached(ctx context.Context, g Client, r approval.Request) (Submitted, error) {
	if err := ctx.Err(); err != nil {
		return Submitted{}, err
	}
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(settleTime, cancel) })()
	asked, err := g.Ask(asking, r)
	if err != nil && ctx.Err() != nil {
		return asked, ctx.Err()
	}
	return asked, err
}

// cancelDetached cancels a request whose caller no longer waits.
func cancelDetached(ctx context.Context, g Client, asked Submitted) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	_ = g.Cancel(ctx, asked) // it has ended, or will expire
}

func encodeArgs(arg any) (approval.Raw, error) {
	b, err := json.Marshal(arg, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode argument: %w", err)
	}
	if approval.Raw(b).Kind() != '{' {
		return nil, fmt.Errorf("%w: the argument must encode to a JSON object: use a struct or a map", ErrInvalid)
	}
	return b, nil
}
