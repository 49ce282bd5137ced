package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

func (a *app) workspaceCmd() *cobra.Command {
	return console.Group(&cobra.Command{Use: "workspace", Short: "Manage workspaces"},
		a.workspaceAddCmd(), a.workspaceListCmd(), a.workspaceRemoveCmd())
}

func (a *app) workspaceAddCmd() *cobra.Command {
	var w config.NewWorkspace
	c := &cobra.Command{
		Use: "add NAME", Short: "Add a workspace to the configuration and create its folders", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error {
			w.Name = pos[0]
			return setup.AddWorkspace(a.Console, w)
		},
	}
	c.Flags().StringVar(&w.Autonomy, "autonomy", "", "`level`: readonly, supervised or full (default supervised)")
	c.Flags().StringArrayVar(&w.Approvers, "approver", nil, "`name` from [approvers]; may be repeated (default: only the local operator)")
	c.Flags().Var((*console.Duration)(&w.Timeout), "timeout", "expire pending requests after this long (default 5m)")
	c.Flags().UintSliceVar(&w.AgentUIDs, "agent-uid", nil, "`UID` of the agent or of its rootless sandbox; it may never decide")
	return c
}

func (a *app) workspaceListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List configured workspaces", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			h, err := home.Load(a.Console)
			if err != nil {
				return err
			}
			all := make([]setup.Workspace, 0, len(h.Config.Workspaces))
			var lines []string
			for _, name := range home.WorkspaceNames(h.Config) {
				l, err := setup.DescribeWorkspace(h, name)
				if err != nil {
					return err
				}
				all = append(all, l)
				lines = append(lines, l.String())
			}
			return a.Print(all, strings.Join(lines, "\n"))
		},
	}
}

func (a *app) workspaceRemoveCmd() *cobra.Command {
	var purge bool
	c := &cobra.Command{
		Use: "remove NAME", Short: "Remove a workspace from the configuration", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeConfig(workspaceNames),
		RunE:              func(_ *cobra.Command, pos []string) error { return setup.RemoveWorkspace(a.Console, pos[0], purge) },
	}
	c.Flags().BoolVar(&purge, "purge", false, "also remove the agent's folders, including its responses")
	return c
}
