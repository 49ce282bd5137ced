package terminal

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// question is an approval that has to be confirmed.
type question struct {
	card    approval.StoredPending
	message chat.Message
}

// ready is for the end of settleTime: from now on keys count.
func (v *view) ready() {
	if v.Linear && v.keys.settle() {
		v.print(dim, v.messages.LineIgnored)
	}
	v.prompt(true)
}

// lineDropped says that a line does not count.
func (v *view) lineDropped() {
	switch {
	case !v.Linear:
		v.print(dim, v.messages.LineDropped)
	case !v.keys.lose(): // once a card is enough
		v.print(dim, v.messages.LineIgnored)
	}
}

// only leaves out what is not shown here.
func (v *view) only(waiting []approval.StoredPending) []approval.StoredPending {
	if v.Only.ID == "" {
		return waiting
	}
	waiting = slices.DeleteFunc(waiting, func(w approval.StoredPending) bool { return w.Key() != v.Only })
	v.ended = len(waiting) == 0
	return waiting
}

// show shows what was not shown here yet: its card, or in linear mode its line.
func (v *view) show(waiting []approval.StoredPending) {
	if v.Linear && !v.began && len(waiting) > 1 {
		v.print(plain, chat.Format(v.messages.StillWaiting, "n", strconv.Itoa(len(waiting))))
	}
	for _, w := range waiting {
		switch old, ok := v.listed[w.Key()]; {
		case v.drawn(w) || ok && old.SHA256 == w.SHA256:
		case !v.Linear:
			v.draw(w)
		default:
			v.listed[w.Key()] = w
			if v.began {
				v.print(plain, v.style.Line(w.Pending))
			}
		}
	}
	v.began = true
	v.drawNext(waiting)
}

// named is the request that a line begins with, and the rest of the line. nil: none, or several.
func (v *view) named(text string) (w *approval.StoredPending, rest string) {
	id, rest, _ := strings.Cut(text, " ")
	id = chat.LowerASCII(id)
	if len(id) < 4 || !approval.MaybeID(id) {
		return nil, text
	}
	fit := approval.Named(slices.Concat(slices.Collect(maps.Values(v.shown)), slices.Collect(maps.Values(v.listed))), id)
	if len(fit) != 1 {
		return nil, text
	}
	return &fit[0], strings.TrimSpace(rest)
}

// linearLine acts on a line in linear mode. What decides names the request.
func (v *view) linearLine(ctx context.Context, m chat.Message) {
	w, rest := v.named(m.Text)
	asked := v.asked
	v.asked = nil
	switch {
	case asked != nil && (w == nil || rest != "" || w.Key() != asked.card.Key()):
		v.print(warn, chat.Format(v.messages.NotConfirmed, "id", chat.Escape(asked.card.Pending.ShortID)))
		return
	case asked != nil:
		v.handle(ctx, asked.message)
		return
	case w != nil && (rest == "" || !v.drawn(*w)):
		v.draw(*w)
		if rest != "" {
			v.print(warn, chat.Format(v.messages.Repeat, "id", chat.Escape(w.Pending.ShortID)))
		}
		return
	case w != nil:
		m.Text, m.Card, m.Implicit = rest, w, false
	default:
		if v.drawFirst(ctx, m.Command()) {
			return
		}
	}
	if !v.confirm(m) {
		v.handle(ctx, m)
	}
}

// confirm asks once more before an approval that cannot be undone.
func (v *view) confirm(m chat.Message) bool {
	w, c := m.Card, m.Command()
	if c.Kind == chat.Approve && w == nil {
		if w, _ = v.named(c.ID); w == nil {
			return false
		}
		m.Card, m.Implicit = w, false // exactly the request that is asked about
	}
	approves := c.Kind == chat.Approve || c.Kind == chat.Menu && slices.Contains([]string{"1", "2", "4", "6"}, c.Code)
	if !approves || !w.Pending.CannotBeUndone() {
		return false
	}
	v.flush()
	v.asked = &question{*w, m}
	v.keys.draw(func(bool) {
		v.print(warn, chat.Format(v.messages.Confirm, "id", chat.Escape(w.Pending.ShortID)))
		v.flush()
	})
	v.settled.Reset(settleTime)
	return true
}

// ask prints the question below a card in linear mode.
func (v *view) ask(p *approval.Pending) {
	text := v.messages.AskAction
	if p.Type == approval.TypeQuestion {
		text = v.messages.AskAnswer
	}
	v.sentences(plain, chat.Format(text, "id", chat.Escape(p.ShortID)))
}

// served says when the daemon ends and when one runs again.
func (v *view) served() {
	if v.Served == nil || v.Served() != v.down {
		return
	}
	if v.down = !v.down; v.down {
		v.print(warn, v.messages.NotServed)
		return
	}
	v.print(good, v.messages.ServedAgain)
}
