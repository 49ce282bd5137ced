// Package botapi is what the Telegram channel is tested against.
package botapi
