package main

import (
	"context"
	"errors"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/ipc/client"
)

func (a *app) cancelCmd() *cobra.Command {
	var w endpoint
	var host bool
	var reason string
	c := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a pending request", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			reason = strings.TrimSpace(reason)
			if strings.ContainsFunc(reason, unicode.IsControl) || len(reason) > approval.MaxCancelReason {
				return console.Fail(console.ExitUsage, "use one line of at most 300 bytes", "--reason of %d bytes is too long or has control characters", len(reason))
			}
			if host {
				return a.cancelWaiting(cmd.Context(), pos[0], reason)
			}
			g, err := w.connect(a)
			if err != nil {
				return err
			}
			return a.cancelOwn(cmd.Context(), g, &w, pos[0], reason)
		},
	}
	w.flags(a, c, "stop waiting for what the cancel finds after this long; the cancel stays (0: no limit)")
	c.Flags().StringVar(&reason, "reason", "", "why, as `text` for the approvers")
	c.Flags().BoolVar(&host, "operator", false, "cancel as the operator of the host")
	return c
}

// cancelOwn cancels a request of this agent, and says what it found.
func (a *app) cancelOwn(ctx context.Context, g agentGate, w *endpoint, typed, reason string) error {
	s, err := w.submitted(ctx, g, typed)
	if err != nil {
		return err
	}
	status, err := within(ctx, w, "cancelling "+s.ID, "permesso wait "+s.ID, func(ctx context.Context) (approval.Status, error) {
		return g.CancelBecause(ctx, s, reason)
	})
	if status == "" && !errors.Is(err, client.ErrNotFound) && !errors.Is(err, client.ErrNotPending) {
		return withExitCode(err)
	}
	return a.printFound(s.ID, status, "", errors.Is(err, client.ErrNotFound))
}

// foundItem is what cancel --json prints.
type foundItem struct {
	RequestID string           `json:"request_id"`
	Found     string           `json:"found"`
	Status    *approval.Status `json:"status"` // how it has ended; null: it has not, or is unknown
}

// printFound prints what a cancel found, and returns its exit code. Without a status the request
// is unknown, or decided and has not ended.
func (a *app) printFound(id string, status approval.Status, text string, unknown bool) error {
	f, code, hint := foundItem{id, string(status), &status}, console.ExitNotRun, ""
	switch status {
	case approval.StatusCancelled:
		code = console.ExitOK
	case approval.StatusApproved, approval.StatusAutoApproved:
		f.Found, code = "already executed", console.ExitFailed
	case approval.StatusFailed, approval.StatusInterrupted:
		code = console.ExitFailed
	case "":
		f.Status, f.Found, code, hint = nil, "already decided", console.ExitRefused, "it may still run; permesso wait "+id+", or on the host permesso show "+id+", says how it ends"
		if text != "" {
			hint = ""
		}
		if unknown {
			f.Found, hint = "unknown", "no such request, or its response was removed"
		}
	default:
	}
	if text == "" {
		text = f.Found
	}
	if err := a.Print(f, text); err != nil || code == console.ExitOK {
		return err
	}
	return console.Fail(code, hint, "")
}

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
			return a.printFound(typed, "", "", true)
		}
		if err != nil {
			return err
		}
		in.Feedback = reason
		d, err := c.Cancel(ctx, in)
		switch {
		case err == nil:
			return a.printFound(in.Key.ID, approval.StatusCancelled, confirmation(c, d, w), false)
		case errors.Is(err, decide.ErrTooLate) && w != nil:
			return a.printFound(in.Key.ID, approval.StatusExpired, "", false)
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
			return a.printFound(in.Key.ID, status, text, false)
		}
		return err
	})
}
