package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

func (a *app) approverCmd() *cobra.Command {
	return console.Group(&cobra.Command{Use: "approver", Short: "Manage approvers"}, a.approverAddCmd(), a.approverListCmd(), a.approverRemoveCmd())
}

func (a *app) approverAddCmd() *cobra.Command {
	var n config.NewApprover
	c := &cobra.Command{
		Use: "add NAME", Short: "Add an approver to the configuration and to workspaces", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error {
			n.Name = pos[0]
			return setup.AddApprover(a.Console, n)
		},
	}
	c.Flags().StringVar(&n.Local, "local", "", "`user` of this machine: login name or UID")
	c.Flags().StringVar(&n.Telegram, "telegram", "", "numeric `id`, never a username")
	c.Flags().StringVar(&n.Email, "email", "", "email `address`, without a name")
	c.Flags().StringVar(&n.Language, "language", "", "`language` of the person's cards (default: that of the workspace)")
	c.Flags().StringArrayVar(&n.Workspaces, "workspace", nil, "`workspace` that asks this person; may be repeated (default: the only one)")
	completeFlags(c, map[string][]string{"local": nil, "telegram": nil, "email": nil, "language": chat.Languages()})
	return c
}

func (a *app) approverListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List configured approvers", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			h, err := home.Load(a.Console)
			if err != nil {
				return err
			}
			all, lines := []setup.Approver{}, []string{}
			for _, name := range slices.Sorted(slices.Values(approverNames(h.Config, nil))) {
				x := setup.DescribeApprover(h.Config, name)
				all, lines = append(all, x), append(lines, x.String())
			}
			if len(lines) == 0 {
				lines = []string{"no approvers: only the local operator decides"}
			}
			return a.Print(all, strings.Join(lines, "\n"))
		},
	}
}

func (a *app) approverRemoveCmd() *cobra.Command {
	var leaveNone bool
	c := &cobra.Command{
		Use: "remove APPROVER", Short: "Remove an approver from the configuration and from workspaces", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error { return setup.RemoveApprover(a.Console, pos[0], leaveNone) },
	}
	c.Flags().BoolVar(&leaveNone, "leave-none", false, "even if a workspace then has no approver but the local operator")
	return c
}
