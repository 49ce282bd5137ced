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
