package terminal

import (
	"context"
	"errors"
	"strings"

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
	switch {
	case err != nil:
		v.refused(ctx, v.messages.NotRevealed, err)
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

// refused prints why something is not shown. An error of the daemon is for its log.
func (v *view) refused(ctx context.Context, sentence string, err error) {
	var r *decide.Refusal
	if errors.As(err, &r) {
		v.print(warn, chat.Format(sentence, "why", chat.Escape(r.Error())))
		return
	}
	v.log(ctx, err)
	v.print(bad, chat.Format(sentence, "why", v.messages.SeeLog))
}

// proposeRule prints the lines of a rule that would allow the request of the current card,
// and what it would have allowed. It changes nothing.
func (v *view) proposeRule(ctx context.Context) {
	x, err := v.ProposeRule(ctx, v.current.Key())
	if err != nil {
		v.refused(ctx, v.messages.NoProposal, err)
		return
	}
	v.some(plain, v.style.Proposal(v.current.Pending, x)...)
	v.some(plain, strings.Split(x.Rule, "\n")...)
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
