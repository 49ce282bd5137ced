package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/daemon"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
)

// TelegramServer is the environment variable of the Bot API server's address for
// setup.
const TelegramServer = "PERMESSO_TELEGRAM_SERVER_URL"

// sentTest is the result for one chat of telegram test.
type sentTest struct {
	Workspace string `json:"workspace"`
	Chat      int64  `json:"chat_id"`
	Thread    int    `json:"thread_id"`
	Error     string `json:"error"`
}

// SendTestMessages sends a test message to every configured chat.
func SendTestMessages(ctx context.Context, a *console.Console, only string) error {
	h, err := home.Load(a)
	if err != nil {
		return err
	}
	if _, ok := h.Config.Workspaces[only]; only != "" && !ok {
		return noWorkspace(h.Config, only)
	}
	if h.Config.Telegram == nil {
		return console.Fail(console.ExitError, "permesso telegram setup", "[channels.telegram] is not configured")
	}
	token, err := home.BotToken(h.Config.Telegram, a.Env)
	if err != nil {
		return err
	}
	s := &telegram.Setup{Token: token, ServerURL: h.Config.Telegram.ServerURL}
	all, failed := make([]sentTest, 0), 0
	for _, ws := range home.WorkspaceNames(h.Config) {
		if only != "" && ws != only || !slices.Contains(h.Config.Workspaces[ws].Channels, telegram.Via) {
			continue
		}
		for _, to := range daemon.TelegramPlaces(h.Config, ws) {
			t := sentTest{Workspace: ws, Chat: to.Chat.Number(), Thread: int(to.Thread.Number())}
			to.Language = cmp.Or(to.Language, h.Config.Workspaces[ws].Language)
			if err := s.SendTestMessage(ctx, to, ws); errors.Is(err, telegram.ErrToken) {
				return tokenRefused(err)
			} else if err != nil {
				t.Error = err.Error()
				failed++
			}
			all = append(all, t)
			printTest(a, t)
		}
	}
	return endTest(a, all, failed)
}

func printTest(a *console.Console, t sentTest) {
	switch {
	case a.JSON:
	case t.Error != "":
		fmt.Fprintf(a.Err, "permesso: %s: %s: %s\n", t.Workspace, chatName(t.Chat, t.Thread), console.OneLine(t.Error))
	default:
		fmt.Fprintf(a.Out, "sent    %s: %s\n", t.Workspace, chatName(t.Chat, t.Thread))
	}
}

func endTest(a *console.Console, all []sentTest, failed int) error {
	if a.JSON {
		if err := a.Print(all, ""); err != nil {
			return err
		}
	}
	switch {
	case len(all) == 0:
		return console.Fail(console.ExitError, "permesso telegram setup", "no workspace uses Telegram")
	case failed > 0:
		return console.Fail(console.ExitError, "write /start to the bot in that chat and do not block it; the chat_id of a group changes when it becomes a supergroup",
			"%d of %d chats did not get the message", failed, len(all))
	}
	return nil
}

func tokenRefused(err error) error {
	return console.Fail(console.ExitError, "get the token from @BotFather with /token", "%w", err)
}

func noWorkspace(cfg *config.Config, name string) error {
	return console.Fail(console.ExitUsage, "permesso workspace list shows the workspaces; permesso workspace add "+sandbox.ShellWord(name)+" creates it", "no workspace %.80q", name)
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
