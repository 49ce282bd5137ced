package home

import (
	"fmt"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// PrivacyHint explains what a bot in Telegram's privacy mode receives.
func PrivacyHint(name string) string {
	return fmt.Sprintf("in groups @%s receives only commands, such as /pending, and replies to its cards; for plain text such as approve a7f3b2c1 "+
		"turn /setprivacy off with @BotFather and add the bot to the group again", chat.Escape(name))
}

// TelegramToken is the environment variable of the token without a token_file.
const TelegramToken = "PERMESSO_TELEGRAM_TOKEN" //nolint:gosec // a variable's name

// BotToken reads the token from its file or the environment. Its errors never
// contain the token.
func BotToken(cfg *config.Telegram, env func(string) string) (string, error) {
	token, from := env(TelegramToken), TelegramToken
	if cfg.TokenFile != "" {
		var err error
		if token, err = SecretWord(cfg.TokenFile); err != nil {
			return "", err
		}
		from = cfg.TokenFile
	}
	switch {
	case token == "":
		return "", fmt.Errorf("no bot token: run permesso telegram setup, or set token_file or %s", TelegramToken)
	case !telegram.ValidToken(token):
		return "", fmt.Errorf("%s has no valid bot token: @BotFather issues it, it looks like 123456789:AA…", from)
	}
	return token, nil
}
