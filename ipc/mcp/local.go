package mcp

import (
	"context"
	"errors"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/ipc/service"
)

// Local is the gate of this process, for one of its clients.
type Local struct {
	Service *service.Service
	Client  *service.Client
}

// longest is how long a call to the service waits. The caller's context is shorter.
const longest = 24 * time.Hour

// Ask implements client.Client.
func (l Local) Ask(ctx context.Context, r approval.Request) (client.Submitted, error) {
	key := r.RequestID
	r.RequestID = ""
	k, _, err := l.Service.Submit(ctx, l.Client, &service.Submission{Request: r, IdempotencyKey: key})
	if errors.Is(err, approval.ErrMalformed) {
		err = errors.Join(client.ErrInvalid, err)
	}
	asked := client.Submitted{ID: k.ID, Tool: r.ToolName}
	if r.Program != "" {
		asked.ProgramSHA256 = approval.Digest([]byte(r.Program))
	}
	return asked, err
}

// Await implements client.Client.
func (l Local) Await(ctx context.Context, s client.Submitted) (*approval.Response, error) {
	st, err := l.Service.Wait(ctx, l.Client, s.ID, longest, ctx.Done())
	if err != nil {
		return nil, unknown(err)
	}
	if st.Record == nil {
		return nil, context.Cause(ctx)
	}
	return approval.ParseResponse(st.Record.Response)
}

// Cancel implements client.Client.
func (l Local) Cancel(ctx context.Context, s client.Submitted) error {
	_, err := l.CancelBecause(ctx, s, "")
	return err
}

// CancelBecause implements Gate.
func (l Local) CancelBecause(ctx context.Context, s client.Submitted, reason string) (approval.Status, error) {
	st, err := l.Service.Cancel(ctx, l.Client, s.ID, reason)
	if err != nil {
		return "", unknown(err)
	}
	return ended(&st), nil
}

func ended(st *read.Story) approval.Status {
	if st.Record == nil {
		return approval.StatusCancelled
	}
	return st.Record.Status
}

// Look implements Gate.
func (l Local) Look(ctx context.Context, s client.Submitted) (v client.View, err error) {
	st, err := l.Service.Find(ctx, l.Client, s.ID)
	switch {
	case err != nil:
		return v, unknown(err)
	case st.Record != nil:
		v.Response, err = approval.ParseResponse(st.Record.Response)
	case st.Pending != nil:
		info, _ := l.Service.Settings.WorkspaceInfo(l.Client.Workspace)
		v.Until, v.Approvers = st.Pending.ExpiresAt, info.Approvers
	}
	return v, err
}

func unknown(err error) error {
	if errors.Is(err, decide.ErrUnknown) {
		return errors.Join(client.ErrNotFound, err)
	}
	return err
}
