package gate_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// keepingExecutor starts a task, and the gate crashes while it goes on.
type keepingExecutor struct {
	crashingExecutor
	t *testing.T
}

func (x keepingExecutor) Run(ctx context.Context, job approval.Job) approval.Effect {
	require.NoError(x.t, job.KeepTask([]byte(`{"version":1,"task_id":"t1"}`)))
	return x.crashingExecutor.Run(ctx, job)
}

var mcpTool = approval.Tool{Name: "mcp", Handler: approval.Handler{Kind: approval.HandlerMCP, Argv: []string{"/bin/server"}, MCP: approval.MCP{Server: "s", Tool: "t"}}}

// crashInTask leaves the files of a gate that crashed while a task of a server went on.
func crashInTask(t *testing.T, k approval.Key, tool approval.Tool) *rig {
	h := newRig(t, options{inline: true})
	h.setTool("mcp", tool)
	h.ask(k, request(k, "mcp", ""))
	h.decide(decision(k, approval.Approved))
	healthy := h.gate.Executor
	h.gate.Executor = keepingExecutor{t: t}
	require.PanicsWithValue(t, errCrash, func() { _, _ = h.gate.Step(context.Background(), k) })
	h.gate.Executor = healthy
	require.True(t, h.has(approval.DocClaim, k))
	require.True(t, h.has(approval.DocTask, k))
	h.reopen()
	return h
}

// A run that has become a task is not interrupted by a crash: its end is awaited, and nothing is run again.
func TestTaskIsResumed(t *testing.T) {
	for name, tt := range map[string]struct {
		effect approval.Effect
		want   string
	}{
		"it succeeds": {approval.Effect{Result: approval.Raw(`{"content":[]}`)}, "approved"},
		"it fails":    {approval.Effect{Error: "Execution failed: no"}, "failed: Execution failed: no"},
		"unknown":     {approval.Effect{Error: "Interrupted: gone", Unknown: true}, "interrupted: Interrupted: gone"},
	} {
		for _, idempotent := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				k, tool := key(1), mcpTool
				tool.Handler.Idempotent = idempotent
				h := crashInTask(t, k, tool)
				resumed := 0
				h.executor.resume = func(job approval.Job) approval.Effect {
					resumed++
					require.JSONEq(t, `{"version":1,"task_id":"t1"}`, string(job.Task))
					require.Equal(t, tool, job.Tool)
					require.Equal(t, k.ID, job.RequestID)
					require.True(t, h.has(approval.DocTask, k), "a second crash must find it")
					return tt.effect
				}
				h.step(h.keys...)
				require.Equal(t, tt.want, h.outcome(k))
				require.Equal(t, 1, resumed)
				require.Empty(t, h.executor.argsOf(k), "nothing is run again")
				require.True(t, h.isSettled(k))
				require.False(t, h.has(approval.DocTask, k))
			})
		}
	}
}

func TestTaskThatCrashesAgainIsResumedAgain(t *testing.T) {
	k := key(1)
	h := crashInTask(t, k, mcpTool)
	h.gate.Executor = crashingExecutor{}
	require.PanicsWithValue(t, errCrash, func() { h.step(k) })
	h.reopen()
	h.executor.resume = func(approval.Job) approval.Effect { return approval.Effect{Result: approval.Raw(`{}`)} }
	h.step(h.keys...)
	require.Equal(t, "approved", h.outcome(k))
}

// A task of a tool that is gone, or another one now, is not asked for: another server could say anything.
func TestTaskOfAnotherTool(t *testing.T) {
	other := mcpTool
	other.Handler.Argv = []string{"/bin/other"}
	for _, tool := range []approval.Tool{other, {}} {
		k := key(1)
		h := crashInTask(t, k, mcpTool)
		h.setTool("mcp", tool)
		h.reopen()
		h.step(h.keys...)
		require.Equal(t, approval.StatusInterrupted, h.response(k).Status)
		require.False(t, h.has(approval.DocTask, k))
	}
}

// A task that the gate did not write stops its key, like such a claim.
func TestForgedTask(t *testing.T) {
	k := key(1)
	h := crashInTask(t, k, mcpTool)
	file := filepath.Join(h.layout.Receipts(k.Workspace), k.ID+".task.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"version":1,"task_id":"mine"}`), 0o600))
	_, err := h.gate.Step(context.Background(), k)
	require.Error(t, err)
	require.Equal(t, "none", h.outcome(k))
}

// A power cut can restore a task that was removed.
func TestTaskBesideARecordIsRemoved(t *testing.T) {
	k := key(1)
	h := crashInTask(t, k, mcpTool)
	file := filepath.Join(h.layout.Receipts(k.Workspace), k.ID+".task.json")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	h.executor.resume = func(approval.Job) approval.Effect { return approval.Effect{Result: approval.Raw(`{}`)} }
	h.step(h.keys...)
	require.NoError(t, os.WriteFile(file, b, 0o600))
	h.reopen()
	require.Contains(t, h.keys, k)
	h.step(h.keys...)
	require.Equal(t, "approved", h.outcome(k))
	require.NoFileExists(t, file)
}
