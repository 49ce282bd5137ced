package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

func (a *app) pendingCmd() *cobra.Command {
	var all bool
	var limit int
	var workspace string
	c := &cobra.Command{
		Use: "pending", Short: "List pending requests", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := home.OpenApprover(cmd.Context(), a.Console)
			if err != nil {
				return err
			}
			var only []string
			if workspace != "" {
				only = []string{workspace}
			}
			list, err := d.Waiting(cmd.Context(), only)
			if err != nil {
				return err
			}
			return a.printPending(d.Home, list, all, limit)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "include expired requests that are not settled yet; no limit")
	c.Flags().IntVar(&limit, "limit", 50, "show at most `N` requests")
	c.Flags().StringVar(&workspace, "workspace", "", "only requests of this `workspace`")
	_ = c.RegisterFlagCompletionFunc("workspace", a.completeWorkspaces) // fails only for unknown flags
	return c
}

// waitingItem is an item of pending --json.
type waitingItem struct {
	RequestID string    `json:"request_id"`
	ShortID   string    `json:"short_id"`
	Workspace string    `json:"workspace"`
	Tool      string    `json:"tool_name"`
	Summary   string    `json:"summary"`
	AskedAt   time.Time `json:"asked_at"`
	ExpiresAt time.Time `json:"expires_at"`
	SHA256    string    `json:"pending_sha256"`
}

func (a *app) printPending(h *home.Home, list []approval.StoredPending, all bool, limit int) error {
	now := time.Now()
	if !all {
		list = slices.DeleteFunc(list, func(w approval.StoredPending) bool { return !now.Before(w.Pending.ExpiresAt) })
	}
	more := 0
	if !all && limit > 0 && len(list) > limit {
		list, more = list[:limit], len(list)-limit
	}
	if a.JSON {
		items := make([]waitingItem, 0, len(list))
		for _, w := range list {
			p := w.Pending
			items = append(items, waitingItem{p.RequestID, p.ShortID, p.SourceGroup, p.ToolName, h.Style().Redacted(p, p.Summary), p.Timestamp, p.ExpiresAt, w.SHA256})
		}
		return a.Print(items, "")
	}
	if len(list) == 0 {
		fmt.Fprintln(a.Out, "No pending approvals.")
	}
	a.printPauses(h)
	for _, w := range list {
		fmt.Fprintln(a.Out, h.Style().Line(w.Pending))
	}
	if more > 0 {
		fmt.Fprintf(a.Out, "showing %d of %d; --all shows the rest\n", limit, limit+more)
	}
	return nil
}

func (a *app) printPauses(h *home.Home) {
	if h.Store == nil {
		return // over a socket, each card shows the pause
	}
	list, err := h.Store.Pauses()
	if err != nil {
		return // status reports the error
	}
	for _, p := range list {
		fmt.Fprintln(a.Out, "⏸ "+home.PauseLine(p))
	}
}

func (a *app) showCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show one request and its history", Args: cobra.ExactArgs(1),
		Long:              "Show one request, pending or ended, and its history, also after its record was pruned.\n\n" + idHelp,
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, pos []string) error {
			d, err := home.OpenApprover(cmd.Context(), a.Console)
			if err != nil {
				return err
			}
			key, err := find(cmd.Context(), d, pos[0])
			if errors.Is(err, approval.ErrUnknown) && d.Remote == nil {
				return a.showPruned(d.Home, pos[0], err)
			}
			if err != nil {
				return err
			}
			return a.show(cmd.Context(), d.Home, d.View, key)
		},
	}
}

// find returns the one request that a typed id matches.
func find(ctx context.Context, v home.View, typed string) (approval.Key, error) {
	typed = strings.ToLower(strings.TrimSpace(typed))
	ws, id, qualified := strings.Cut(typed, "/")
	var only []string
	if qualified {
		only = []string{ws}
	} else {
		id = typed
	}
	if len(id) < 4 {
		return approval.Key{}, console.Fail(console.ExitUsage, "permesso pending lists the ids", "ID %q is too short: give at least 4 digits", typed)
	}
	keys, err := v.Find(ctx, only, id)
	switch {
	case err != nil:
		return approval.Key{}, err
	case len(keys) == 0:
		return approval.Key{}, console.Wrap(console.ExitRefused, fmt.Errorf("%s: %w", typed, approval.ErrUnknown), "permesso pending lists the pending requests")
	case len(keys) > 1:
		return approval.Key{}, console.Fail(console.ExitRefused, "give more digits, or WORKSPACE/ID", "%q matches %d requests", typed, len(keys))
	}
	return keys[0], nil
}

func (a *app) completeIDs(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
	d, err := home.OpenApprover(context.Background(), a.Console)
	if err != nil || len(pos) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := d.Waiting(context.Background(), nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, w := range list {
		ids = append(ids, w.Pending.ShortID+"\t"+chat.Escape(w.Pending.ToolName))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) statusCmd() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show daemon status", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := home.OpenApprover(cmd.Context(), a.Console)
			if err != nil {
				return err
			}
			st, err := d.State(cmd.Context())
			if err != nil {
				return err
			}
			return a.Print(st, st.String())
		},
	}
}
