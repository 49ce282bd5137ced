package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

func (a *app) sessionCmd() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List taints by workspace and session", Args: cobra.NoArgs,
		RunE: a.asking(a.sessionList),
	}
	var reason string
	clear := &cobra.Command{
		Use: "clear WORKSPACE [SESSION]", Short: "Clear the taints of a workspace or session", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, pos []string) error {
			b := control.ClearBody{Workspace: pos[0], Reason: reason}
			if len(pos) > 1 {
				b.SessionID = pos[1]
			}
			return a.sessionClear(cmd.Context(), b)
		},
	}
	clear.Flags().StringVar(&reason, "reason", "", "reason, as `text`")
	return console.Group(&cobra.Command{Use: "session", Short: "List and clear taints"}, list, clear)
}

// sessionLine is an item of session list --json.
type sessionLine struct {
	Workspace string   `json:"workspace"`
	SessionID string   `json:"session_id"` // "": the whole workspace, any session
	Autonomy  string   `json:"autonomy"`
	Taints    []string `json:"taints"`
}

func (a *app) sessionList(ctx context.Context, d *control.Client, _ []string) error {
	lines, err := sessionLines(ctx, d)
	if err != nil {
		return err
	}
	return printList(a, lines, sessionText)
}

func sessionLines(ctx context.Context, d *control.Client) ([]sessionLine, error) {
	list, err := d.Taints(ctx)
	lines := []sessionLine{}
	for _, t := range list {
		for _, s := range slices.Sorted(maps.Keys(t.Sessions)) {
			lines = append(lines, sessionLine{t.Workspace, s, t.Autonomy, t.Sessions[s]})
		}
	}
	return lines, err
}

func sessionText(l sessionLine) string {
	name, says := l.Workspace, "no taint"
	if l.SessionID != "" {
		name += " " + l.SessionID
	}
	if len(l.Taints) > 0 {
		says = strings.Join(l.Taints, ", ")
	}
	return fmt.Sprintf("%s (%s): %s", chat.Escape(name), l.Autonomy, says)
}

func (a *app) sessionClear(ctx context.Context, b control.ClearBody) error {
	return a.ask(ctx, func(d *control.Client) error {
		if !d.Operator {
			return console.Fail(console.ExitRefused, "ask the operator for: permesso session clear "+b.Workspace, "only the operator of the daemon can clear taints")
		}
		had, err := d.ClearTaints(ctx, b)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("cleared: %s had %s", b.Workspace, strings.Join(had, ", "))
		if len(had) == 0 {
			text = "cleared: there were no taints"
		}
		if !d.Served {
			text += "; this takes effect when the daemon starts"
		}
		return a.Print(map[string]any{"workspace": b.Workspace, "session_id": b.SessionID, "cleared": had}, text)
	})
}
