package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// pollInterval is how often a client should ask for a task. A person does not decide faster.
const pollInterval = 2 * time.Second

const codeMissingCapability = -32021

// taskParams are those of all methods for tasks.
type taskParams struct {
	mcp.ParamsBase
	ID        string          `json:"taskId"`
	Responses json.RawMessage `json:"inputResponses,omitempty"` // no task asks for any
}

// task is one as the extension describes it.
type task struct {
	mcp.ResultBase
	Type     string              `json:"resultType"`
	ID       string              `json:"taskId,omitempty"`
	Status   string              `json:"status,omitempty"`
	Message  string              `json:"statusMessage,omitempty"`
	Created  string              `json:"createdAt,omitempty"`
	Updated  string              `json:"lastUpdatedAt,omitempty"`
	TTL      *int64              `json:"ttlMs"` // null: unlimited
	Interval int64               `json:"pollIntervalMs,omitempty"`
	Result   *mcp.CallToolResult `json:"result,omitempty"`
}

// acknowledgement is the result of the methods that only take something.
type acknowledgement struct {
	mcp.ResultBase
	Type string `json:"resultType"`
}

// taskResults puts a task in the place of a result, where a tool has made one, and checks what the SDK does not know of
// the methods for tasks.
func taskResults(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch p := req.GetParams().(type) {
		case *mcp.CallToolParamsRaw:
			c := &call{}
			r, err := next(context.WithValue(ctx, callKey{}, c), method, req)
			if err == nil && c.made != nil && c.made.task != nil {
				return newTask(c.made.task, time.Now()), nil
			}
			return r, err
		case *taskParams:
			if e := req.GetExtra(); e != nil && e.Header != nil && e.Header.Get("Mcp-Name") != p.ID {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the header Mcp-Name must be the taskId"}
			}
			if !declaresTasks(p.GetMeta()) {
				data, _ := marshal(map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{tasksName: map[string]any{}}}})
				return nil, &jsonrpc.Error{Code: codeMissingCapability, Message: "the client has not declared the extension for tasks", Data: json.RawMessage(data)}
			}
			r, err := next(ctx, method, req)
			if errors.Is(err, fs.ErrNotExist) {
				err = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no such task"}
			}
			return r, err
		}
		return next(ctx, method, req)
	}
}

func declaresTasks(meta map[string]any) bool {
	caps, _ := meta[mcp.MetaKeyClientCapabilities].(map[string]any)
	extensions, _ := caps["extensions"].(map[string]any)
	_, ok := extensions[tasksName]
	return ok
}

func newTask(a *Answer, now time.Time) *task {
	at := codec.Time(now)
	return &task{
		ResultBase: mcp.ResultBase{Meta: mcp.Meta{metaRequest: a.ID}}, Type: "task", ID: a.Task, Status: "working", Message: a.Text,
		Created: at, Updated: at, Interval: pollInterval.Milliseconds(),
	}
}

func addTasks(s *mcp.Server) {
	err := errors.Join(
		mcp.AddReceivingCustomMethod(s, "tasks/get", func(ctx context.Context, _ *mcp.ServerSession, p *taskParams) (*task, error) {
			return peerOf(ctx).getTask(ctx, p.ID)
		}),
		mcp.AddReceivingCustomMethod(s, "tasks/cancel", func(ctx context.Context, _ *mcp.ServerSession, p *taskParams) (*acknowledgement, error) {
			return peerOf(ctx).cancelTask(ctx, p.ID)
		}),
		mcp.AddReceivingCustomMethod(s, "tasks/update", func(ctx context.Context, _ *mcp.ServerSession, p *taskParams) (*acknowledgement, error) {
			_, err := peerOf(ctx).Waiter.Task(p.ID)
			return &acknowledgement{Type: "complete"}, err
		}),
	)
	if err != nil {
		panic(err) // only if the SDK has these methods itself: a defect of this program
	}
}

func (p *peer) getTask(ctx context.Context, handle string) (*task, error) {
	t, err := p.Waiter.Task(handle)
	if err != nil {
		return nil, err
	}
	a, err := p.Waiter.Look(ctx, t)
	if err != nil {
		return nil, err
	}
	out := newTask(a, p.Waiter.now())
	out.Type, out.ID, out.Created = "complete", handle, codec.Time(t.AskedAt)
	if a.Ended == nil {
		return out, nil
	}
	out.Updated, out.Interval = codec.Time(a.Ended.RespondedAt), 0
	ttl := a.Ended.RespondedAt.Add(keepDone).Sub(t.AskedAt).Milliseconds()
	out.TTL = &ttl
	if a.Ended.Status == approval.StatusCancelled {
		out.Status, out.Message = "cancelled", refusal(a)
		p.ends.Sending(a)
		return out, nil
	}
	r, err := p.end(a)
	if err != nil {
		return nil, err
	}
	out.Status, out.Message, out.Result = "completed", string(a.Ended.Status), &r.CallToolResult
	p.ends.Sending(a)
	return out, nil
}

func (p *peer) cancelTask(ctx context.Context, handle string) (*acknowledgement, error) {
	t, err := p.Waiter.Task(handle)
	if err == nil {
		_, err = p.Waiter.Cancel(ctx, t.ID, "")
	}
	return &acknowledgement{Type: "complete"}, err
}
