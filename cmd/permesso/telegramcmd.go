package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// telegramServer is the environment variable of the Bot API server's address for
// setup.
const telegramServer = "PERMESSO_TELEGRAM_SERVER_URL"

func (a *app) telegramCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "telegram", Short: "Set up and test the Telegram channel", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return fail(exitUsage, "permesso telegram --help", "telegram needs a subcommand: setup or test")
		},
	}
	c.AddCommand(a.telegramSetupCmd(), a.telegramTestCmd())
	return c
}

func (a *app) telegramSetupCmd() *cobra.Command {
	o := &telegramSetup{app: a}
	c := &cobra.Command{
		Use: "setup", Short: "Connect a Telegram bot to a workspace", Args: cobra.NoArgs,
		Long: "Connect a Telegram bot to a workspace. Create the bot with @BotFather (/newbot), which gives you its token. setup\n" +
			"asks for the token, waits until you write /start with the displayed number to the bot, asks for the workspace and\n" +
			"the approver, sends a test card and waits for your tap. Only then it writes the token into its own file (mode 600,\n" +
			"next to the configuration) and adds lines to the configuration. Comments there are kept.\n" +
			"A running daemon without this bot loads the change by itself; one that uses the bot must be stopped first.\n\n" +
			"The token comes from --token-file, which is then used in place, from the configured token_file, from\n" +
			telegramToken + ", or from the keyboard without echo. It is never an argument.\n\n" +
			"Run setup again for each further chat or approver. If you write the number in a group or a topic of it, requests of\n" +
			"the workspace go there instead of to its approvers' private chats.\n\n" +
			"Without a terminal, or with --yes, setup asks no questions: use flags; /start and the tap remain.\n" +
			"With --json the instructions go to standard error, and one object to standard output:\n\n" +
			`  {"bot":"…","workspace":"…","approver":"…","telegram":1,"chat_id":1,"thread_id":0,"tapped":true,` + "\n" +
			`    "config":"…","token_file":"…","hints":["…"]}`,
		Example: "  permesso telegram setup\n  permesso telegram setup --workspace research --approver ann --token-file /etc/permesso/telegram.token --yes",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := c.Flags()
	f.StringVar(&o.workspace, "workspace", "", "`workspace` to connect")
	f.StringVar(&o.approver, "approver", "", "`name` of the approver who writes /start; a new name is added to [approvers]")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with the token, readable only by its owner")
	f.StringVar(&o.server, "server-url", "", "`address` of your own Bot API server (default: "+telegramServer+", or Telegram's)")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "stop waiting for /start, and for the tap, after this long")
	f.BoolVarP(&o.yes, "yes", "y", false, "ask no questions")
	_ = c.RegisterFlagCompletionFunc("workspace", a.completeWorkspaces) // fails only for unknown flags
	_ = c.RegisterFlagCompletionFunc("approver", a.completeApprovers)
	return c
}

func (a *app) telegramTestCmd() *cobra.Command {
	var workspace string
	c := &cobra.Command{
		Use: "test", Short: "Send a test message to every configured chat", Args: cobra.NoArgs,
		Long: "Send a test message without buttons to every configured chat. The daemon may be running. Exit code 1 means that a\n" +
			"chat did not get it.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.testTelegram(cmd.Context(), workspace) },
	}
	c.Flags().StringVar(&workspace, "workspace", "", "send only to the chats of this `workspace`")
	_ = c.RegisterFlagCompletionFunc("workspace", a.completeWorkspaces)
	return c
}

// sentTest is the result for one chat of telegram test.
type sentTest struct {
	Workspace string `json:"workspace"`
	Chat      int64  `json:"chat_id"`
	Thread    int    `json:"thread_id"`
	Error     string `json:"error"`
}

func (a *app) testTelegram(ctx context.Context, only string) error {
	h, err := a.instance()
	if err != nil {
		return err
	}
	if _, ok := h.cfg.Workspaces[only]; only != "" && !ok {
		return noWorkspace(h.cfg, only)
	}
	if h.cfg.Telegram == nil {
		return fail(exitError, "permesso telegram setup", "[channels.telegram] is not configured")
	}
	token, err := botToken(h.cfg.Telegram, a.Env)
	if err != nil {
		return err
	}
	s := &telegram.Setup{Token: token, ServerURL: h.cfg.Telegram.ServerURL}
	all, failed := make([]sentTest, 0), 0
	for _, ws := range sortedNames(h.cfg) {
		if only != "" && ws != only || !slices.Contains(h.cfg.Workspaces[ws].Channels, telegram.Via) {
			continue
		}
		for _, to := range telegramPlaces(h.cfg, ws) {
			t := sentTest{Workspace: ws, Chat: to.Chat, Thread: to.Thread}
			to.Language = cmp.Or(to.Language, h.cfg.Workspaces[ws].Language)
			if err := s.Hello(ctx, to, ws); errors.Is(err, telegram.ErrToken) {
				return tokenRefused(err)
			} else if err != nil {
				t.Error = err.Error()
				failed++
			}
			all = append(all, t)
			a.printTest(t)
		}
	}
	return a.endTest(all, failed)
}

func (a *app) printTest(t sentTest) {
	switch {
	case a.json:
	case t.Error != "":
		fmt.Fprintf(a.Err, "permesso: %s: %s: %s\n", t.Workspace, chatName(t.Chat, t.Thread), oneLine(t.Error))
	default:
		fmt.Fprintf(a.Out, "sent    %s: %s\n", t.Workspace, chatName(t.Chat, t.Thread))
	}
}

func (a *app) endTest(all []sentTest, failed int) error {
	if a.json {
		if err := a.print(all, ""); err != nil {
			return err
		}
	}
	switch {
	case len(all) == 0:
		return fail(exitError, "permesso telegram setup", "no workspace uses Telegram")
	case failed > 0:
		return fail(exitError, "write /start to the bot in that chat and do not block it; the chat_id of a group changes when it becomes a supergroup",
			"%d of %d chats did not get the message", failed, len(all))
	}
	return nil
}

func tokenRefused(err error) error {
	return fail(exitError, "get the token from @BotFather with /token", "%w", err)
}

func noWorkspace(cfg *config.Config, name string) error {
	return fail(exitUsage, "permesso workspace list shows the workspaces; permesso workspace add "+shellWord(name)+" creates it", "no workspace %.80q", name)
}

func chatName(chat int64, thread int) string {
	switch {
	case chat > 0:
		return fmt.Sprintf("private chat %d", chat)
	case thread != 0:
		return fmt.Sprintf("group %d, topic %d", chat, thread)
	}
	return fmt.Sprintf("group %d", chat)
}
