package terminal

import (
	"context"
	"errors"

	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/chat"
)

// The alternate screen keeps no history.
const (
	enterAltScreen = "\x1b[?1049h\x1b[2J\x1b[H"
	leaveAltScreen = "\x1b[?1049l"
)

// reveal shows the current card with what it masks, on the alternate screen. The next
// line, or anything else to show, leaves it.
func (v *view) reveal(ctx context.Context) {
	w, err := v.Reveal(ctx, v.current.Key())
	var refused *decide.Refusal
	switch {
	case errors.As(err, &refused):
		v.print(warn, chat.Format(v.messages.NotRevealed, "why", chat.Escape(refused.Error())))
		return
	case err != nil:
		v.log(ctx, err)
		v.print(bad, chat.Format(v.messages.NotRevealed, "why", v.messages.SeeLog))
		return
	case w.SHA256 != v.current.SHA256:
		v.print(warn, v.messages.LineDropped)
		return
	}
	v.flush()
	style := v.style
	style.Local, style.Reveal = true, true
	v.revealed = true
	v.write(enterAltScreen + style.Card(w.Pending).String() + "\n\n" + v.messages.Leave + "\n")
}

// leave restores the screen.
func (v *view) leave() {
	if v.revealed {
		v.revealed = false
		v.write(leaveAltScreen)
	}
}

// hide leaves the alternate screen and draws the card again: a code counts only for a card
// that is on the screen.
func (v *view) hide() {
	v.leave()
	if v.current != nil {
		v.draw(*v.current)
	}
}
