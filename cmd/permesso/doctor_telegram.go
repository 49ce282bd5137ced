package main

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
func (d *doctor) checkTelegram(ctx context.Context) []finding {
	cfg := d.Config.Telegram
	if cfg == nil {
		return []finding{okFinding("Telegram is not configured")}
	}
	if cfg.TokenFile == "" && d.app.Env(home.TelegramToken) == "" {
		return []finding{{Severity: severityInfo, What: "the bot's token is in the daemon's environment, which doctor cannot read"}}
	}
	token, err := home.BotToken(cfg, d.app.Env)
	if err != nil {
		return []finding{{Severity: severityError, What: console.OneLine(err.Error()), Cure: "permesso telegram setup"}}
	}
	ctx, stop := context.WithTimeout(ctx, telegramTimeout)
	defer stop()
	bot, err := (&telegram.Setup{Token: token, ServerURL: cfg.ServerURL}).Me(ctx)
	switch {
	case errors.Is(err, telegram.ErrToken):
		return []finding{{Severity: severityError, What: err.Error(), Cure: "get a token from @BotFather with /token"}}
	case err != nil:
		return []finding{{Severity: severityWarning, What: console.OneLine(err.Error()), Cure: "check the network and server_url"}}
	}
	list := []finding{okFinding("Telegram accepts the bot @%s", chat.Escape(bot.Username))}
	for _, ws := range d.names {
		if d.Config.TelegramChats[ws].ChatID < 0 && !bot.HearsAll {
			list = append(list, finding{Severity: severityInfo, Workspace: ws, What: home.PrivacyHint(bot.Username)})
		}
	}
	return list
}
