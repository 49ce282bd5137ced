package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/agent"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

// patience says how long a command waits for the end of a run.
type patience uint8

const (
	noPatience patience = iota
	shortly             // for shortTime: a run that fails at once is told
	untilEnd
)

// shortTime is how long approve waits for the end of a run without --wait.
const shortTime = 2 * time.Second

// awaitRun waits for the end of a request that was approved, and prints it. The error has the
// exit code of the run.
func (a *app) awaitRun(ctx context.Context, c *control.Client, k approval.Key, how patience) error {
	wait, cancel := ctx, context.CancelFunc(func() {})
	if how == shortly {
		wait, cancel = context.WithTimeout(ctx, shortTime)
	}
	defer cancel()
	s, err := c.AwaitRecord(wait, k)
	hint := "permesso show " + approval.ShortID(k.ID) + " shows how it ends"
	switch {
	case err != nil && how == shortly: // the decision stands, whatever became of the daemon
		if !a.JSON {
			fmt.Fprintln(a.Out, "It runs: "+hint+".")
		}
		return nil
	case ctx.Err() != nil:
		return console.Fail(console.ExitError, hint, "interrupted: the request is approved; its end is unknown")
	case err != nil:
		return console.Wrap(console.ExitError, fmt.Errorf("the request is approved; its end is unknown: %w", err), hint)
	}
	resp, err := approval.ParseResponse(s.Record.Response)
	switch {
	case err != nil:
		return err
	case a.JSON && how == untilEnd:
		_, err = fmt.Fprintf(a.Out, "%s\n", s.Record.Response)
		return errors.Join(err, agent.Ended(resp))
	case how == shortly && agent.Ended(resp) != nil:
		return a.failedRun(c.Style(), s, resp)
	case !a.JSON:
		a.printEnd(c.Style(), s, resp)
	}
	return agent.Ended(resp)
}

// printEnd prints the end of a request for an approver: what came from an agent or a handler
// is escaped and redacted.
func (a *app) printEnd(style chat.Style, s control.Story, r *approval.Response) {
	by := "policy"
	if r.Decision.By != nil {
		by = chat.Escape(*r.Decision.By)
	}
	fmt.Fprintf(a.Out, "%s (%s)\n", r.Status, by)
	if r.Error != nil {
		fmt.Fprintln(a.Out, "error: "+style.OneLine(s.Asked, *r.Error))
	}
	switch {
	case r.Execution == approval.ExecutionAgent && s.Asked != nil && approval.ByGateway(s.Asked.ToolName):
		fmt.Fprintln(a.Out, console.ByGateway)
	case r.Execution == approval.ExecutionAgent:
		fmt.Fprintln(a.Out, console.ByAgent)
	case r.Result.Kind() == '{':
		fmt.Fprintln(a.Out, "result: "+style.Result(s.Asked, r.Result))
	}
}

// failedRun is the error about an approved request that has ended otherwise.
func (a *app) failedRun(style chat.Style, s control.Story, r *approval.Response) error {
	text := string(r.Status)
	if r.Error != nil {
		text += ": " + style.OneLine(s.Asked, *r.Error)
	}
	code := console.ExitNotRun
	if e, ok := errors.AsType[*console.Error](agent.Ended(r)); ok {
		code = e.Code
	}
	return console.Fail(code, "permesso show "+approval.ShortID(r.RequestID), "%s", text)
}
