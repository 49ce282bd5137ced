// Package telegram lets people answer from Telegram, with one tap or one line.
package telegram
