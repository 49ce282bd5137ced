package home

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc/webhook"
)

// longestSecret is the maximum length in bytes of a password or token in a file.
const longestSecret = 1024

// SecretLine reads the one line of a file that only its owner may read.
func SecretLine(file string) (string, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: not a regular file", file)
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("%s: readable by other users; chmod 600 %s", file, file)
	}
	b, err := io.ReadAll(io.LimitReader(f, longestSecret+1))
	if err != nil {
		return "", err
	}
	line := strings.TrimRight(string(b), "\r\n")
	if line == "" || len(b) > longestSecret || strings.ContainsAny(line, "\r\n\x00") {
		return "", fmt.Errorf("%s: must hold one line of at most %d bytes", file, longestSecret)
	}
	return line, nil
}

// SecretWord is secretLine for a secret without spaces, such as a token.
func SecretWord(file string) (string, error) {
	line, err := SecretLine(file)
	if err != nil {
		return "", err
	}
	word := strings.TrimRight(line, " \t")
	if word == "" || strings.ContainsAny(word, " \t") {
		return "", fmt.Errorf("%s: must hold one line without spaces", file)
	}
	return word, nil
}

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

// WebhookEndpoint reads the secret of a webhook. Its errors never contain the secret.
func WebhookEndpoint(w config.Webhook) (e webhook.Endpoint, err error) {
	secret, err := SecretWord(w.SecretFile)
	if err != nil {
		return e, err
	}
	if e.Key, err = webhook.ParseKey(secret); err != nil {
		return e, fmt.Errorf("%s: %w", w.SecretFile, err)
	}
	e.URL = w.URL
	e.Private, err = w.Private()
	return e, err
}
