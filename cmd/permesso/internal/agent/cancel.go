package agent

import (
	"context"
	"errors"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/client"
)

// Cancel is the command that cancels a request. asOperator cancels it on the host, and may be nil.
func Cancel(c *console.Console, asOperator func(ctx context.Context, typed, reason string) error) *cobra.Command {
	return program{c}.cancel(asOperator)
}

func (a program) cancel(asOperator func(ctx context.Context, typed, reason string) error) *cobra.Command {
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
				return asOperator(cmd.Context(), pos[0], reason)
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
	if asOperator != nil {
		c.Flags().BoolVar(&host, "operator", false, "cancel as the operator of the host")
	}
	return c
}

// cancelOwn cancels a request of this agent, and says what it found.
func (a program) cancelOwn(ctx context.Context, g agentGate, w *endpoint, typed, reason string) error {
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
	return PrintFound(a.Console, s.ID, status, "", errors.Is(err, client.ErrNotFound))
}

// Found is what cancel --json prints.
type Found struct {
	RequestID string           `json:"request_id"`
	Found     string           `json:"found"`
	Status    *approval.Status `json:"status"` // how it has ended; null: it has not, or is unknown
}

// PrintFound prints what a cancel found, and returns its exit code. Without a status the request
// is unknown, or decided and has not ended.
func PrintFound(a *console.Console, id string, status approval.Status, text string, unknown bool) error {
	f, code, hint := Found{id, string(status), &status}, console.ExitNotRun, ""
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
