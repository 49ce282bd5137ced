package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
)

// NeedsApproval puts do behind a gate. Each call asks for r with the argument as
// its request_data, which must encode to a JSON object, and do runs only when that
// was approved; otherwise the error is a *NotApproved, or says why nobody could be
// asked. When ctx ends the request is taken back. The function runs here and not on
// the host, so r has an ActionType and no ToolName.
func NeedsApproval[A, R any](g Client, r approval.Request, do func(context.Context, A) (R, error)) func(context.Context, A) (R, error) {
	return func(ctx context.Context, arg A) (none R, err error) {
		if r.ToolName != "" || r.Type == approval.TypeQuestion {
			return none, fmt.Errorf("%w: what runs here is asked for by its action_type, not as a tool of the host's", ErrInvalid)
		}
		args, err := encodeArgs(arg)
		if err != nil {
			return none, err
		}
		ask := r
		ask.RequestData = args
		asked, err := askOut(ctx, g, ask)
		if err != nil {
			return none, err
		}
		resp, err := g.Await(ctx, asked)
		if ctx.Err() != nil {
			withdraw(ctx, g, asked)
		}
		if err != nil {
			return none, err
		}
		if err := Approved(resp); err != nil {
			return none, err
		}
		// Somebody may have changed behind a pointer what the approver was shown.
		if now, err := encodeArgs(arg); err != nil || !bytes.Equal(now, args) {
			return none, errors.Join(fmt.Errorf("%w: the argument changed while the gate was asked", ErrIDConflict), err)
		}
		return do(ctx, arg)
	}
}

// askOut asks to the end, for a moment when ctx is over, too: what the gate may have taken
// in can be taken back only under the id that it gives.
func askOut(ctx context.Context, g Client, r approval.Request) (Submitted, error) {
	if err := ctx.Err(); err != nil {
		return Submitted{}, err
	}
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(settling, cancel) })()
	asked, err := g.Ask(asking, r)
	if err != nil && ctx.Err() != nil {
		return asked, ctx.Err()
	}
	return asked, err
}

// withdraw spares people a question whose answer nobody waits for any more.
func withdraw(ctx context.Context, g Client, asked Submitted) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	_ = g.Cancel(ctx, asked) // it is over, or will expire
}

func encodeArgs(arg any) (approval.Raw, error) {
	b, err := json.Marshal(arg, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode the argument: %w", err)
	}
	if approval.Raw(b).Kind() != '{' {
		return nil, fmt.Errorf("%w: the argument must be an object in JSON, a struct or a map", ErrInvalid)
	}
	return b, nil
}
