package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/security/policy"
)

func (a *app) approveCmd() *cobra.Command {
	var note string
	var session, always bool
	c := &cobra.Command{
		Use: "approve ID", Short: "Approve a pending request", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(waitingIDs),
		RunE: func(cmd *cobra.Command, pos []string) error {
			code := "1"
			switch {
			case note != "":
				code = "4"
			case session:
				code = "2"
			case always:
				code = "6"
			}
			return a.decide(cmd.Context(), pos[0], decide.ByCode(code, note))
		},
	}
	c.Flags().StringVar(&note, "note", "", "`text` to send to the agent")
	c.Flags().BoolVar(&session, "session", false, "allow for the rest of the request's session")
	c.Flags().BoolVar(&always, "always", false, "allow this type of action always")
	c.MarkFlagsMutuallyExclusive("note", "session", "always")
	return c
}

func (a *app) denyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "deny ID [reason]", Short: "Deny a pending request", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeIDs(waitingIDs),
		RunE: func(cmd *cobra.Command, pos []string) error {
			return a.decide(cmd.Context(), pos[0], decide.ByCode("3", strings.Join(pos[1:], " ")))
		},
	}
}

// decisionInput is the JSON object that decide --stdin reads.
type decisionInput struct {
	control.VerdictBody
	RequestID string `json:"request_id"`
	Workspace string `json:"workspace"`
	Approved  *bool  `json:"approved"`
}

func (a *app) decideCmd() *cobra.Command {
	var stdin bool
	c := &cobra.Command{
		Use: "decide --stdin", Short: "Decide from a program, as JSON on standard input", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !stdin {
				return console.Fail(console.ExitUsage, "permesso decide --stdin < decision.json", "decide needs --stdin: it reads the decision from standard input")
			}
			w, err := a.readDecision()
			if err != nil {
				return err
			}
			id := w.RequestID
			if w.Workspace != "" {
				id = w.Workspace + "/" + id
			}
			return a.decide(cmd.Context(), id, w.Input(approval.Key{}))
		},
	}
	c.Flags().BoolVar(&stdin, "stdin", false, "read the decision from standard input")
	return c
}

func (a *app) readDecision() (*decisionInput, error) {
	b, err := io.ReadAll(io.LimitReader(a.In, 1<<20))
	if err != nil {
		return nil, err
	}
	w := &decisionInput{}
	if err := json.Unmarshal(b, w, json.RejectUnknownMembers(true)); err != nil {
		return nil, console.Fail(console.ExitUsage, "permesso decide --help shows the format", "parse decision from standard input: %w", err)
	}
	if w.Verdict == "" && w.Approved != nil {
		w.Verdict = approval.Denied
		if *w.Approved {
			w.Verdict = approval.Approved
		}
	}
	if w.Approved != nil && *w.Approved != (w.Verdict == approval.Approved) {
		return nil, console.Fail(console.ExitUsage, "set only verdict", "approved (%t) and verdict (%s) contradict each other", *w.Approved, w.Verdict)
	}
	if !approval.ValidID(w.RequestID) {
		return nil, console.Fail(console.ExitUsage, "give the full id", "request_id %q is not "+approval.IDForm, w.RequestID)
	}
	return w, nil
}

// decide decides one request, with or without a running daemon.
func (a *app) decide(ctx context.Context, typed string, ans decide.Input) error {
	return a.ask(ctx, func(c *control.Client) error {
		w, err := findWaiting(ctx, c, typed, &ans)
		if err != nil {
			return err
		}
		d, err := c.Decide(ctx, ans)
		if err != nil {
			return err
		}
		text := confirmation(c, d, w)
		if p := c.PauseOf(ans.Key.Workspace); d.Approved && p != nil {
			text += "\nThe daemon is " + home.PauseLine(*p) + ". The request runs after permesso resume unless it has expired by then."
		}
		return a.Print(d, text)
	})
}

// findWaiting sets what a decision is about: exactly the pending that was read.
func findWaiting(ctx context.Context, c *control.Client, typed string, ans *decide.Input) (w *approval.StoredPending, err error) {
	if ans.Key, err = find(ctx, c.Find, typed); err != nil {
		return nil, err
	}
	s, err := c.Story(ctx, ans.Key, false)
	if s.Waiting != nil && ans.PendingSHA256 == "" {
		ans.PendingSHA256 = s.Waiting.SHA256
	}
	return s.Waiting, err
}

// cancelWaiting cancels a request as the operator, with or without a running daemon.
func (a *app) cancelWaiting(ctx context.Context, typed string) error {
	return a.ask(ctx, func(c *control.Client) error {
		if !c.Operator {
			return console.Fail(console.ExitRefused, "permesso deny "+typed, "only the operator of the daemon can cancel a pending request")
		}
		var ans decide.Input
		w, err := findWaiting(ctx, c, typed, &ans)
		if err != nil {
			return err
		}
		d, err := c.Cancel(ctx, ans.Key)
		if err != nil {
			return err
		}
		return a.Print(d, confirmation(c, d, w))
	})
}

func confirmation(c *control.Client, d *approval.Decision, w *approval.StoredPending) string {
	what, undo := d.RequestID, ""
	if w != nil {
		what = c.Style().OneLine(w.Pending, strings.TrimSpace(w.Pending.ToolName+" "+w.Pending.Summary)) + " (" + w.Pending.ShortID + ")"
		if g := policy.GrantFrom(w.Pending, d); g != nil {
			undo = "\nUndo: permesso revoke " + approval.ShortID(g.ID)
		}
	}
	text := strings.ToUpper(string(d.Verdict[:1])) + string(d.Verdict[1:]) + ": " + what
	if d.Approved {
		text += ", must start before " + d.RunBefore.Local().Format(time.TimeOnly) + undo
	}
	if !c.Served {
		text += "\nThe daemon is not running: this takes effect when it starts (permesso serve)."
	}
	return text
}
