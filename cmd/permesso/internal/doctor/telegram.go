package doctor

import (
	"context"
	"errors"
	"time"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

const telegramTimeout = 10 * time.Second

// checkTelegram checks the bot's token and its group privacy setting.
func (d *Doctor) checkTelegram(ctx context.Context) []Finding {
	cfg := d.Config.Telegram
	if cfg == nil {
		return []Finding{okFinding("Telegram is not configured")}
	}
	if cfg.TokenFile == "" && d.app.Env(home.TelegramToken) == "" {
		return notice("the bot's token is in the daemon's environment, which doctor cannot read", "")
	}
	token, err := home.BotToken(cfg, d.app.Env)
	if err != nil {
		return failure(console.OneLine(err.Error()), "permesso telegram setup")
	}
	ctx, stop := context.WithTimeout(ctx, telegramTimeout)
	defer stop()
	bot, err := (&telegram.Setup{Token: token, ServerURL: cfg.ServerURL}).Me(ctx)
	switch {
	case errors.Is(err, telegram.ErrToken):
		return failure(err.Error(), "get a token from @BotFather with /token")
	case err != nil:
		return warning(console.OneLine(err.Error()), "check the network and server_url")
	}
	list := []Finding{okFinding("Telegram accepts the bot @%s", chat.Escape(bot.Username))}
	for _, ws := range d.names {
		if d.Config.TelegramChats[ws].ChatID < 0 && !bot.ReadsAllMessages {
			list = append(list, in(ws, notice(home.PrivacyHint(bot.Username), ""))...)
		}
	}
	return list
}
