package main

import (
	"context"
	"errors"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/agent"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

// cancelWaiting cancels a request as the operator, with or without a running daemon, and says
// what it found.
func (a *app) cancelWaiting(ctx context.Context, typed, reason string) error {
	return a.ask(ctx, func(c *control.Client) error {
		if !c.Operator {
			return console.Fail(console.ExitRefused, "permesso deny "+typed, "only the operator of the daemon can cancel a pending request")
		}
		var in decide.Input
		known, err := findStory(ctx, c, typed, &in)
		w := known.Waiting
		if errors.Is(err, decide.ErrUnknown) {
			return agent.PrintFound(a.Console, typed, "", "", true)
		}
		if err != nil {
			return err
		}
		in.Feedback = reason
		d, err := c.Cancel(ctx, in)
		switch {
		case err == nil:
			return agent.PrintFound(a.Console, in.Key.ID, approval.StatusCancelled, confirmation(c, d, w), false)
		case errors.Is(err, decide.ErrTooLate) && w != nil:
			return agent.PrintFound(a.Console, in.Key.ID, approval.StatusExpired, "", false)
		case errors.Is(err, decide.ErrDecided):
			var status approval.Status
			if s, err := c.Story(ctx, in.Key, false); err == nil && s.Record != nil {
				status = s.Record.Status
			}
			text := ""
			if status == "" && w != nil && known.Decision != nil {
				who, why := notDone(c, in.Key.Workspace, known.Decision, known.Running)
				text = "already decided: " + strings.TrimSuffix(who+"; "+why, "; ")
			}
			return agent.PrintFound(a.Console, in.Key.ID, status, text, false)
		}
		return err
	})
}
