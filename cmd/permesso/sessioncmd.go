package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/client"
)

func (a *app) sessionCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "session", Short: "List and clear taints", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return console.Fail(console.ExitUsage, "permesso session --help", "session needs a subcommand: list or clear")
		},
	}
	list := &cobra.Command{
		Use: "list", Short: "List taints by workspace and session", Args: cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return a.sessionList() },
	}
	var reason string
	clear := &cobra.Command{
		Use: "clear WORKSPACE [SESSION]", Short: "Clear the taints of a workspace or session", Args: cobra.RangeArgs(1, 2),
		Long: "Clear the taints of a workspace or session, because what the agent read can no longer do harm, for example after a\n" +
			"restart of the agent.\n\n" +
			"Without SESSION it clears the whole workspace, including its sessions. It is audited. If the daemon is stopped it\n" +
			"takes effect at the next start. contains_secrets = true in the configuration stays in force.",
		ValidArgsFunction: a.completeWorkspaces,
		RunE: func(_ *cobra.Command, pos []string) error {
			session := ""
			if len(pos) > 1 {
				session = pos[1]
			}
			return a.sessionClear(pos[0], session, reason)
		},
	}
	clear.Flags().StringVar(&reason, "reason", "", "reason, as `text`")
	c.AddCommand(list, clear)
	return c
}

// sessionLine is an item of session list --json.
type sessionLine struct {
	Workspace string   `json:"workspace"`
	SessionID string   `json:"session_id"` // "": the whole workspace, any session
	Autonomy  string   `json:"autonomy"`
	Taints    []string `json:"taints"`
}

func (a *app) sessionList() error {
	h, m, err := home.OpenMemory(a.Console)
	if err != nil {
		return err
	}
	for _, ws := range home.WorkspaceNames(h.Config) {
		taints := m.Taints(ws)
		sessions := slices.Sorted(maps.Keys(taints))
		if !slices.Contains(sessions, "") {
			sessions = slices.Insert(sessions, 0, "")
		}
		for _, s := range sessions {
			l := sessionLine{ws, s, h.Config.Workspaces[ws].Autonomy, taints[s]}
			name, says := ws, "no taint"
			if s != "" {
				name += " " + s
			}
			if len(l.Taints) > 0 {
				says = strings.Join(l.Taints, ", ")
			}
			if err := a.Print(l, fmt.Sprintf("%s (%s): %s", chat.Escape(name), l.Autonomy, says)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) sessionClear(ws, session, reason string) error {
	h, m, err := home.OpenMemory(a.Console)
	if err != nil {
		return err
	}
	if _, err := a.chooseWorkspace(h, ws); err != nil {
		return err
	}
	w := h.Config.Workspaces[ws]
	switch {
	case !w.LocalDecisions:
		return console.Fail(console.ExitRefused, "an approver of this workspace must do it", "workspace '%s' has local_decisions = false", ws)
	case session != "" && !w.BindsSessions:
		return console.Fail(console.ExitRefused, "permesso session clear "+ws, "workspace '%s' has binds_sessions = false, so taints apply to all its sessions", ws)
	}
	had := m.Taints(ws)[session]
	by := home.Operator()
	c := &approval.Clearing{
		Version: approval.Version, ID: client.NewID(), Workspace: ws, SessionID: session,
		By: by.Name, ByID: by.ID, Via: "cli", Reason: reason, At: time.Now().UTC(),
	}
	body, err := c.Encode()
	if err != nil {
		return err
	}
	k := approval.GrantKey(c.ID)
	if err := h.Store.Create(context.Background(), approval.DocClear, k, m.Keys.Seal.Seal(approval.DocClear, k, body), approval.Durable); err != nil {
		return err
	}
	text := fmt.Sprintf("cleared: %s had %s", ws, strings.Join(had, ", "))
	if len(had) == 0 {
		text = "cleared: there were no taints"
	}
	if running, err := h.Served(); err == nil && !running {
		text += "; this takes effect when the daemon starts"
	}
	return a.Print(map[string]any{"workspace": ws, "session_id": session, "cleared": had}, text)
}
