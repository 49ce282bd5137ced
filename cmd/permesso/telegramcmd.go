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

// telegramServer is where the address of a Bot API server may stand that setup
// is to write into the configuration.
const telegramServer = "PERMESSO_TELEGRAM_SERVER_URL"

func (a *app) telegramCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "telegram", Short: "Be asked in Telegram: set it up, or see whether cards get through", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return fail(codeUsage, "permesso telegram setup, or permesso telegram test", "telegram: say what to do")
		},
	}
	c.AddCommand(a.telegramSetupCmd(), a.telegramTestCmd())
	return c
}

func (a *app) telegramSetupCmd() *cobra.Command {
	o := &meeting{app: a}
	c := &cobra.Command{
		Use: "setup", Short: "Connect a bot: who answers, where, for which workspace", Args: cobra.NoArgs,
		Long: "Connect a bot of Telegram's, which @BotFather makes for you (/newbot) and gives you the token of. It asks for the\n" +
			"token, waits until you write /start to the bot with a number that it shows, asks which workspace and which\n" +
			"approver this is, sends a test card and waits for your tap. Only then it writes the token into a file of its own\n" +
			"(mode 600, beside the configuration) and the lines into the configuration, every comment of which stays.\n" +
			"A gate that runs without this bot takes it up by itself; one that has it must be stopped first.\n\n" +
			"The token comes from --token-file, which is then used where it is, from the file that the configuration names,\n" +
			"from " + telegramToken + ", or from the keyboard, unseen. It is never an argument.\n\n" +
			"Each further chat or person is one more setup. Write the number in a group, or in a topic of it, and the workspace\n" +
			"is asked there instead of in its approvers' private chats.\n\n" +
			"Without a terminal, or with --yes, nothing is asked: flags say what is not plain, and /start and the tap remain.\n" +
			"With --json what to do goes to standard error, and one object to standard output:\n\n" +
			`  {"bot":"…","workspace":"…","approver":"…","telegram":1,"chat_id":1,"thread_id":0,"tapped":true,` + "\n" +
			`    "config":"…","token_file":"…","hints":["…"]}`,
		Example: "  permesso telegram setup\n  permesso telegram setup --workspace research --approver ann --token-file /etc/permesso/telegram.token --yes",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := c.Flags()
	f.StringVar(&o.workspace, "workspace", "", "the `workspace` that is asked about")
	f.StringVar(&o.approver, "approver", "", "the `name` of whoever writes /start; a new one is added to [approvers]")
	f.StringVar(&o.tokenFile, "token-file", "", "the `file` with the token, which nobody else may read")
	f.StringVar(&o.server, "server-url", "", "`address` of a Bot API server of your own (default: "+telegramServer+", or Telegram's)")
	f.DurationVar(&o.patience, "timeout", 5*time.Minute, "how long to wait for /start, and for the tap")
	f.BoolVarP(&o.yes, "yes", "y", false, "ask nothing")
	_ = c.RegisterFlagCompletionFunc("workspace", a.completeWorkspaces) // fails only for flags that are not there
	_ = c.RegisterFlagCompletionFunc("approver", a.completeApprovers)
	return c
}

func (a *app) telegramTestCmd() *cobra.Command {
	var workspace string
	c := &cobra.Command{
		Use: "test", Short: "Send a message to every chat in which people are asked", Args: cobra.NoArgs,
		Long: "Send a message without buttons to every chat in which people are asked, also while the gate runs. Exit code 1 says\n" +
			"that one of them did not get it.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.testTelegram(cmd.Context(), workspace) },
	}
	c.Flags().StringVar(&workspace, "workspace", "", "only this `workspace`")
	_ = c.RegisterFlagCompletionFunc("workspace", a.completeWorkspaces)
	return c
}

// sentTest is one message of telegram test.
type sentTest struct {
	Workspace string `json:"workspace"`
	Chat      int64  `json:"chat_id"`
	Thread    int    `json:"thread_id"`
	Error     string `json:"error"`
}

func (a *app) testTelegram(ctx context.Context, only string) error {
	h, err := a.house()
	if err != nil {
		return err
	}
	if _, ok := h.cfg.Workspaces[only]; only != "" && !ok {
		return noWorkspace(h.cfg, only)
	}
	if h.cfg.Telegram == nil {
		return fail(codeError, "permesso telegram setup", "there is no [channels.telegram]")
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
			a.sayTest(t)
		}
	}
	return a.endTest(all, failed)
}

func (a *app) sayTest(t sentTest) {
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
		return fail(codeError, "permesso telegram setup", "nobody is asked in Telegram")
	case failed > 0:
		return fail(codeError, "write /start to the bot there, and do not block it; a group's chat changes when it becomes a supergroup",
			"%d of %d chats did not get it", failed, len(all))
	}
	return nil
}

func tokenRefused(err error) error {
	return fail(codeError, "ask @BotFather for it: /token", "%w", err)
}

func noWorkspace(cfg *config.Config, name string) error {
	return fail(codeUsage, "permesso workspace list shows them; permesso workspace add "+shellWord(name)+" makes one", "no workspace %.80q", name)
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
