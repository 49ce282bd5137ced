package telegram

import (
	"context"
	"strings"
)

// own is the word of a command that only this channel has, or "". Without a slash they are commands in a
// private chat only: in a group people say such words to one another.
func (w *written) own() string {
	word, rest, _ := strings.Cut(strings.ReplaceAll(w.text, "\n", " "), " ")
	word = strings.ToLower(word)
	if !w.slash && (w.m.Chat.ID < 0 || strings.TrimSpace(rest) != "") {
		return ""
	}
	switch word {
	case "start", "help", "last", "grants", "pause", "resume", "show":
		return word
	}
	return ""
}

// start tells everybody their number.
func (w *written) start() bool { return false }

// special does what only this channel understands.
func (w *written) special(_ context.Context) bool { return false }
