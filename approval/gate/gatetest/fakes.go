package gatetest

import (
	"context"
	"slices"
	"sync"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/security/policy"
)

// Harmless adds no taint. It states a write, so policy asks.
func Harmless() approval.Trust {
	return approval.Trust{PublicSource: "false", SecretData: "false", PublicSink: "false", DangerousWrites: "true"}
}

// Tools are the tools of a rig: policy asks about run, fails and note, allows auto and
// denies never. note has no handler.
func Tools() map[string]approval.Tool {
	tool := func(name string, h approval.Handler) approval.Tool {
		return approval.Tool{Name: name, Args: Args(), Trust: Harmless(), Handler: h}
	}
	tools := map[string]approval.Tool{"note": tool("note", approval.Handler{Kind: approval.HandlerNone})}
	for _, name := range []string{"run", "fails", "auto", "never"} {
		tools[name] = tool(name, approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/" + name}})
	}
	return tools
}

// Args are the arguments of all tools: each may be left out, and be anything.
func Args() map[string]approval.Argument {
	args := map[string]approval.Argument{}
	for _, name := range []string{
		"", "a", "again", "approved", "b", "big", "c", "decision", "deep", "m", "n", "neg", "program", "s", "text", "to", "x", "z",
	} {
		args[name] = approval.Argument{Type: facts.TypeJSON, Optional: true}
	}
	return args
}

func rules() []policy.Rule {
	return []policy.Rule{
		{Name: "auto", Tool: policy.Names{"auto"}, Outcome: approval.Allow},
		{Name: "never", Tool: policy.Names{"never"}, Outcome: approval.Deny, Reason: "no"},
	}
}

// Executor replaces all handlers.
type Executor struct {
	Do func(approval.Job) approval.Effect // nil: fails fails, others return {"done":true}

	mu   sync.Mutex
	jobs []approval.Job
}

// Run implements gate.executor.
func (x *Executor) Run(_ context.Context, job approval.Job) approval.Effect {
	x.mu.Lock()
	x.jobs = append(x.jobs, job)
	x.mu.Unlock()
	switch {
	case x.Do != nil:
		return x.Do(job)
	case job.Tool.Name == "fails":
		return approval.Effect{Error: "Execution failed: boom"}
	}
	return approval.Effect{Result: approval.Raw(`{"done":true}`)}
}

// Resume implements gate.executor.
func (x *Executor) Resume(ctx context.Context, job approval.Job) approval.Effect {
	return x.Run(ctx, job)
}

// Jobs are the jobs that were run, in order.
func (x *Executor) Jobs() []approval.Job {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.jobs)
}
