package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/ipc"
)

func (a *app) pendingCmd() *cobra.Command {
	var all bool
	var limit int
	var workspace string
	c := &cobra.Command{
		Use: "pending", Short: "List pending requests", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := a.approverClient(cmd.Context())
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
			return a.printPending(d.instance, list, all, limit)
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

func (a *app) printPending(h *instance, list []approval.Waiting, all bool, limit int) error {
	now := time.Now()
	if !all {
		list = slices.DeleteFunc(list, func(w approval.Waiting) bool { return !now.Before(w.Pending.ExpiresAt) })
	}
	more := 0
	if !all && limit > 0 && len(list) > limit {
		list, more = list[:limit], len(list)-limit
	}
	if a.json {
		items := make([]waitingItem, 0, len(list))
		for _, w := range list {
			p := w.Pending
			items = append(items, waitingItem{p.RequestID, p.ShortID, p.SourceGroup, p.ToolName, h.style().Redacted(p, p.Summary), p.Timestamp, p.ExpiresAt, w.SHA256})
		}
		return a.print(items, "")
	}
	if len(list) == 0 {
		fmt.Fprintln(a.Out, "No pending approvals.")
	}
	a.printPauses(h)
	for _, w := range list {
		fmt.Fprintln(a.Out, h.style().Line(w.Pending))
	}
	if more > 0 {
		fmt.Fprintf(a.Out, "showing %d of %d; --all shows the rest\n", limit, limit+more)
	}
	return nil
}

func (a *app) printPauses(h *instance) {
	if h.store == nil {
		return // over a socket, each card shows the pause
	}
	list, err := h.store.Pauses()
	if err != nil {
		return // status reports the error
	}
	for _, p := range list {
		fmt.Fprintln(a.Out, "⏸ "+pauseLine(p))
	}
}

func (a *app) showCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show one request and its history", Args: cobra.ExactArgs(1),
		Long:              "Show one request, pending or ended, and its history, also after its record was pruned.\n\n" + idHelp,
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, pos []string) error {
			d, err := a.approverClient(cmd.Context())
			if err != nil {
				return err
			}
			key, err := find(cmd.Context(), d, pos[0])
			if errors.Is(err, approval.ErrUnknown) && d.remote == nil {
				return a.showPruned(d.instance, pos[0], err)
			}
			if err != nil {
				return err
			}
			return a.show(cmd.Context(), d.instance, d.view, key)
		},
	}
}

// find returns the one request that a typed id matches.
func find(ctx context.Context, v view, typed string) (approval.Key, error) {
	typed = strings.ToLower(strings.TrimSpace(typed))
	ws, id, qualified := strings.Cut(typed, "/")
	var only []string
	if qualified {
		only = []string{ws}
	} else {
		id = typed
	}
	if len(id) < 4 {
		return approval.Key{}, fail(exitUsage, "permesso pending lists the ids", "ID %q is too short: give at least 4 digits", typed)
	}
	keys, err := v.Find(ctx, only, id)
	switch {
	case err != nil:
		return approval.Key{}, err
	case len(keys) == 0:
		return approval.Key{}, &exit{exitRefused, fmt.Errorf("%s: %w", typed, approval.ErrUnknown), "permesso pending lists the pending requests"}
	case len(keys) > 1:
		return approval.Key{}, fail(exitRefused, "give more digits, or WORKSPACE/ID", "%q matches %d requests", typed, len(keys))
	}
	return keys[0], nil
}

func (a *app) completeIDs(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
	d, err := a.approverClient(context.Background())
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

// state is what status prints.
type state struct {
	Home       string         `json:"home"`
	Config     string         `json:"config"`
	Running    bool           `json:"running"`
	Script     string         `json:"script,omitempty"` // the approval script that decides instead of people
	Pending    map[string]int `json:"pending"`
	Claims     map[string]int `json:"unfinished"`
	Workspaces []string       `json:"workspaces"`
	Paused     []ipc.Pause    `json:"paused"`
	Health     *healthReport  `json:"health"` // null if no daemon runs
}

func (a *app) statusCmd() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show daemon status", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := a.approverClient(cmd.Context())
			if err != nil {
				return err
			}
			st, err := d.state(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(st, st.String())
		},
	}
}

func (h *instance) state() (*state, error) {
	st := &state{Home: h.layout.Home, Config: h.cfg.File, Pending: map[string]int{}, Claims: map[string]int{}}
	running, err := h.served()
	if err != nil {
		return nil, err
	}
	st.Running = running
	if st.Script, err = h.scripted(); err != nil {
		return nil, err
	}
	if running {
		health := h.healthOf(time.Now())
		st.Health = &health
	}
	if st.Workspaces, err = h.store.Workspaces(); err != nil {
		return nil, err
	}
	if st.Paused, err = h.store.Pauses(); err != nil {
		return nil, err
	}
	for _, ws := range st.Workspaces {
		for d, count := range map[approval.Doc]map[string]int{approval.DocPending: st.Pending, approval.DocClaim: st.Claims} {
			ids, _, err := h.store.List(d, ws)
			if err != nil {
				return nil, err
			}
			count[ws] = len(ids)
		}
	}
	return st, nil
}

// served reports whether a daemon holds the home's lock.
func (h *instance) served() (bool, error) {
	if _, err := os.Lstat(h.layout.Lock()); errors.Is(err, fs.ErrNotExist) {
		return false, nil // TryLock would create it, owned by our user
	}
	lock, err := h.fs.TryLock(h.layout.Lock())
	if errors.Is(err, ipc.ErrLocked) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, lock.Close()
}

func (s *state) String() string {
	var b strings.Builder
	up := "not running: decisions take effect when it starts (permesso serve)"
	if s.Running {
		up = "running"
		if s.Health != nil && s.Health.Status == healthDegraded {
			up = "running, degraded"
		}
	}
	cfg := s.Config
	if cfg == "" {
		cfg = "defaults"
	}
	fmt.Fprintf(&b, "daemon  %s\nhome    %s\nconfig  %s", up, s.Home, cfg)
	if s.Script != "" {
		fmt.Fprintf(&b, "\nscript  %s decides instead of people: for tests only", chat.Escape(s.Script))
	}
	if s.Health != nil && s.Health.UI != "" {
		fmt.Fprintf(&b, "\nweb UI  %s (permesso ui opens it)", chat.Escape(s.Health.UI))
	}
	if s.Health != nil {
		b.WriteString(s.Health.lines())
	}
	for _, p := range s.Paused {
		fmt.Fprintf(&b, "\n⏸ %s", pauseLine(p))
	}
	for _, ws := range s.Workspaces {
		fmt.Fprintf(&b, "\n%-7s %d pending, %d running or interrupted", ws, s.Pending[ws], s.Claims[ws])
	}
	return b.String()
}
