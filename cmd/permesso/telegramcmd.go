package main

import (
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

func (a *app) telegramCmd() *cobra.Command {
	return console.Group(&cobra.Command{Use: "telegram", Short: "Set up and test the Telegram channel"},
		a.telegramSetupCmd(), a.telegramTestCmd())
}

func (a *app) telegramSetupCmd() *cobra.Command {
	o := &setup.Telegram{Console: a.Console}
	c := &cobra.Command{
		Use: "setup", Short: "Connect a Telegram bot to a workspace", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.Run(cmd.Context()) },
	}
	f := c.Flags()
	f.StringVar(&o.Workspace, "workspace", "", "`workspace` to connect")
	f.StringVar(&o.Approver, "approver", "", "`name` of the approver who writes /start; a new name is added to [approvers]")
	f.StringVar(&o.TokenFile, "token-file", "", "`file` with the token, readable only by its owner")
	f.StringVar(&o.Server, "server-url", "", "`address` of your own Bot API server (default: "+setup.TelegramServer+", or Telegram's)")
	f.DurationVar(&o.Timeout, "timeout", setup.DefaultWait, "stop waiting for /start, and for the tap, after this long")
	f.BoolVarP(&o.Yes, "yes", "y", false, "ask no questions")
	return c
}

func (a *app) telegramTestCmd() *cobra.Command {
	var workspace string
	c := &cobra.Command{
		Use: "test", Short: "Send a test message to every configured chat", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return setup.SendTestMessages(cmd.Context(), a.Console, workspace)
		},
	}
	c.Flags().StringVar(&workspace, "workspace", "", "send only to the chats of this `workspace`")
	return c
}
