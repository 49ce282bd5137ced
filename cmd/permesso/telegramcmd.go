package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

func (a *app) telegramCmd() *cobra.Command {
	return group(&cobra.Command{Use: "telegram", Short: "Set up and test the Telegram channel"},
		a.telegramSetupCmd(), a.telegramTestCmd())
}

func (a *app) telegramSetupCmd() *cobra.Command {
	o := &setup.Telegram{Console: a.Console}
	c := &cobra.Command{
		Use: "setup", Short: "Connect a Telegram bot to a workspace", Args: cobra.NoArgs,
		Long: "Connect a Telegram bot to a workspace. Create the bot with @BotFather (/newbot), which gives you its token. setup\n" +
			"asks for the token, waits until you write /start with the displayed number to the bot, asks for the workspace and\n" +
			"the approver, sends a test card and waits for your tap. Only then it writes the token into its own file (mode 600,\n" +
			"next to the configuration) and adds lines to the configuration. Comments there are kept.\n" +
			"A running daemon without this bot loads the change by itself; one that uses the bot must be stopped first.\n\n" +
			"The token comes from --token-file, which is then used in place, from the configured token_file, from\n" +
			home.TelegramToken + ", or from the keyboard without echo. It is never an argument.\n\n" +
			"Run setup again for each further chat or approver. If you write the number in a group or a topic of it, requests of\n" +
			"the workspace go there instead of to its approvers' private chats.\n\n" +
			"Without a terminal, or with --yes, setup asks no questions: use flags; /start and the tap remain.\n" +
			"With --json the instructions go to standard error, and one object to standard output:\n\n" +
			`  {"bot":"…","workspace":"…","approver":"…","telegram":1,"chat_id":1,"thread_id":0,"tapped":true,` + "\n" +
			`    "config":"…","token_file":"…","hints":["…"]}`,
		Example: "  permesso telegram setup\n  permesso telegram setup --workspace research --approver ann --token-file /etc/permesso/telegram.token --yes",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.Run(cmd.Context()) },
	}
	f := c.Flags()
	f.StringVar(&o.Workspace, "workspace", "", "`workspace` to connect")
	f.StringVar(&o.Approver, "approver", "", "`name` of the approver who writes /start; a new name is added to [approvers]")
	f.StringVar(&o.TokenFile, "token-file", "", "`file` with the token, readable only by its owner")
	f.StringVar(&o.Server, "server-url", "", "`address` of your own Bot API server (default: "+setup.TelegramServer+", or Telegram's)")
	f.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "stop waiting for /start, and for the tap, after this long")
	f.BoolVarP(&o.Yes, "yes", "y", false, "ask no questions")
	return c
}

func (a *app) telegramTestCmd() *cobra.Command {
	var workspace string
	c := &cobra.Command{
		Use: "test", Short: "Send a test message to every configured chat", Args: cobra.NoArgs,
		Long: "Send a test message without buttons to every configured chat. The daemon may be running. Exit code 1 means that a\n" +
			"chat did not get it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return setup.SendTestMessages(cmd.Context(), a.Console, workspace)
		},
	}
	c.Flags().StringVar(&workspace, "workspace", "", "send only to the chats of this `workspace`")
	return c
}
