package main

import (
	"context"
	"errors"
	"time"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/telegram"
)

// telegramPatience is how long doctor waits for Telegram.
const telegramPatience = 10 * time.Second

// checkTelegram asks Telegram whether it knows the bot, and what that hears.
func (d *doctor) checkTelegram(ctx context.Context) []finding {
	cfg := d.cfg.Telegram
	if cfg == nil {
		return []finding{well("nobody is asked in Telegram")}
	}
	if cfg.TokenFile == "" && d.app.Env(telegramToken) == "" {
		return []finding{{Severity: worthKnowing, What: "the bot's token stands in the gate's environment, which doctor does not see"}}
	}
	token, err := botToken(cfg, d.app.Env)
	if err != nil {
		return []finding{{Severity: serious, What: oneLine(err.Error()), Cure: "permesso telegram setup"}}
	}
	ctx, stop := context.WithTimeout(ctx, telegramPatience)
	defer stop()
	bot, err := (&telegram.Setup{Token: token, ServerURL: cfg.ServerURL}).Me(ctx)
	switch {
	case errors.Is(err, telegram.ErrToken):
		return []finding{{Severity: serious, What: err.Error(), Cure: "ask @BotFather for it: /token"}}
	case err != nil:
		return []finding{{Severity: warning, What: oneLine(err.Error()), Cure: "is this machine online, and server_url right?"}}
	}
	list := []finding{well("Telegram knows the bot, @%s", chat.Escape(bot.Username))}
	for _, ws := range d.names {
		if d.cfg.TelegramChats[ws].ChatID < 0 && !bot.HearsAll {
			list = append(list, finding{Severity: worthKnowing, Workspace: ws, What: privacyHint(bot.Username)})
		}
	}
	return list
}
