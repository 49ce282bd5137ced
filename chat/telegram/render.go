package telegram

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// message is a message to be sent. Telegram parses no part of it.
type message struct {
	text     string
	entities []models.MessageEntity
	buttons  [][]button
	complete bool // the text shows everything that would run
}

// button is an inline button: its text, and the data of a tap on it.
type button struct{ text, data string }

// hash identifies the rendered content.
func (msg message) hash() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %v %q", msg.text, msg.entities, msg.buttons)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// maxOptionText is how much of an option fits on its button.
const maxOptionText = 40

// renderer renders messages in one language.
type renderer struct {
	chat.Style
	*catalog
}

func (c *Channel) renderer(language string) renderer {
	style := c.Style(language)
	if c.Foot != nil {
		style.Foot = c.Foot()
	}
	return renderer{style, catalogFor(language)}
}

// card renders a pending request with its buttons. It has approve buttons only if everything is shown: in this
// text or, if whole is set, in a document.
func (p renderer) card(w *approval.Pending, x *sentCopy, whole bool) message {
	c := p.Card(w)
	fitted, all := p.fit(c)
	if whole && !all {
		c.Menu = slices.Concat([]string{p.InDocument}, c.Menu)
		fitted, _ = p.fit(c)
	}
	msg := layOut(fitted)
	msg.complete = all
	msg.buttons = p.buttons(w, x, all || whole)
	return msg
}

// fit shortens a card to Telegram's limit. The options of a question are never shortened by chat.Card, and may
// be longer than a message.
func (p renderer) fit(c chat.Card) (fitted chat.Card, all bool) {
	fitted, all = c.Fit(maxText)
	if chat.Units(fitted.String()) <= maxText {
		return fitted, all
	}
	c.Menu = []string{p.LongMenu}
	fitted, _ = c.Fit(maxText)
	return fitted, false
}

// layOut formats a card: head in bold, payload in a fixed-width block, the agent's prose as a quotation.
func layOut(c chat.Card) message {
	w := &writer{}
	w.untrusted(bold, c.Head)
	for _, f := range c.Facts {
		w.untrusted("", f)
	}
	for _, k := range c.Evidence {
		w.untrusted("", k.Text)
	}
	if len(c.Payload)+len(c.Changes)+len(c.Prose) > 0 {
		w.line("", "")
	}
	w.lines([]models.MessageEntityType{block}, c.Payload)
	w.lines([]models.MessageEntityType{block}, c.Changes)
	if slices.ContainsFunc(c.Prose, tappable) {
		w.lines([]models.MessageEntityType{quote, code}, c.Prose)
	} else {
		w.lines([]models.MessageEntityType{quote}, c.Prose)
	}
	for _, m := range c.Menu {
		w.untrusted("", m)
	}
	if c.Foot != "" {
		w.untrusted("", c.Foot)
	}
	return message{text: w.b.String(), entities: w.entities}
}

// buttons are the buttons of a card. Their verbs are the codes of the menu.
func (p renderer) buttons(w *approval.Pending, x *sentCopy, whole bool) [][]button {
	row := func(pairs ...string) []button {
		var buttons []button
		for i := 0; i < len(pairs); i += 2 {
			if n := x.Nonces[pairs[i]]; n != "" {
				buttons = append(buttons, button{pairs[i+1], pairs[i] + ":" + n})
			}
		}
		return buttons
	}
	var rows [][]button
	switch {
	case !whole:
		rows = append(rows, row(verbAll, p.ShowAll))
	case w.Type == approval.TypeQuestion:
		for i, o := range w.Options {
			n := strconv.Itoa(i + 1)
			rows = append(rows, row(verbOption+n, truncate(n+" · "+p.OneLine(w, o), maxOptionText)))
		}
		rows = append(rows, row(verbSay, p.Answer))
	default:
		rows = append(rows, row("1", p.Once, "2", p.Session, "6", p.Always), row("4", p.Note, "5", p.Change))
	}
	rows = append(rows, row("3", p.Deny, "?", p.Ask))
	return slices.DeleteFunc(rows, func(r []button) bool { return len(r) == 0 })
}

// verbs are all verbs that a card of this request may ever need.
func verbs(w *approval.Pending) []string {
	all := []string{"3", "?", verbAll, verbOpen}
	if w.Type == approval.TypeQuestion {
		for i := range w.Options {
			all = append(all, verbOption+strconv.Itoa(i+1))
		}
		return append(all, verbSay)
	}
	all = append(all, "1", "4", "5", verbUndo)
	if approval.NotGrantable(w, approval.Session).IsZero() {
		all = append(all, "2")
	}
	if approval.NotGrantable(w, approval.Always).IsZero() {
		all = append(all, "6")
	}
	return all
}

// settledCard is the card after the decision: the decision, the outcome, and Undo if it created a grant.
func (p renderer) settledCard(st status, k approval.Key, of *sentRecord, x *sentCopy) message {
	if st.Pending == nil {
		return p.withdrawnCard(approval.ShortID(k.ID), p.UnknownRequest)
	}
	c := p.Card(st.Pending)
	c.Menu, c.Foot = p.outcomeLines(st.Story), ""
	if of.Undone {
		c.Menu = append(c.Menu, p.Undone)
	}
	c, _ = c.Fit(maxText)
	msg := layOut(c)
	if st.targetPhase(of, x) == phaseUndo {
		msg.buttons = [][]button{{{p.Undo, verbUndo + ":" + x.Nonces[verbUndo]}}}
	}
	return msg
}

// outcomeLines are the decision and the outcome.
func (p renderer) outcomeLines(story Story) []string {
	var lines []string
	d := story.Decision
	if d != nil {
		lines = append(lines, p.verdictLine(d))
		for _, s := range []string{d.Note, d.Override, d.Feedback, d.Answer} {
			if s != "" {
				lines = append(lines, chat.Format(p.SentToAgent, "text", truncate(p.OneLine(story.Pending, s), maxTapAnswer)))
			}
		}
	}
	switch {
	case story.Record == nil && d != nil && d.Approved:
		lines = append(lines, p.OutcomeFollows)
	case story.Record != nil && (d == nil || string(story.Record.Status) != string(d.Verdict)):
		lines = append(lines, truncate(p.Outcome(story.Record), maxText/8))
	}
	return lines
}

// verdictLine is a decision in one line.
func (p renderer) verdictLine(d *approval.Decision) string {
	what := p.Verdicts[d.Verdict]
	if what == "" {
		what = chat.Escape(string(d.Verdict))
	}
	what += p.Scopes[d.Scope]
	at := p.timeOfDay(d.DecidedAt)
	agents := d.Verdict == approval.Cancelled && (d.DecidedByID == "agent" || strings.HasPrefix(d.DecidedByID, "client:"))
	if d.Verdict == approval.Cancelled && !agents {
		what = p.Cancelled
	}
	if d.Verdict == approval.Expired || agents || d.DecidedBy == "" {
		return chat.Format(p.AtTime, "verdict", what, "time", at)
	}
	return chat.Format(p.ByAt, "verdict", what, "by", chat.Escape(d.DecidedBy), "time", at, "via", chat.Escape(d.Via))
}

// withdrawnCard is a card that is no longer valid.
func (p renderer) withdrawnCard(id, why string) message {
	w := &writer{}
	w.line(bold, "🔐 "+chat.Escape(id))
	w.line("", why)
	return message{text: w.b.String(), entities: w.entities}
}

// plainMessage is a message of lines that may hold text from agents.
func plainMessage(lines ...string) message {
	w := &writer{}
	for _, line := range lines {
		for s := range strings.SplitSeq(line, "\n") {
			w.untrusted("", s)
		}
	}
	return message{text: w.b.String(), entities: w.entities}
}

func (p renderer) timeOfDay(t time.Time) string {
	zone, mark := p.Zone, ""
	if zone == nil {
		zone, mark = time.UTC, " UTC"
	}
	return t.In(zone).Format("15:04") + mark
}

func (p renderer) dateTime(t time.Time) string {
	zone := p.Zone
	if zone == nil {
		zone = time.UTC
	}
	return t.In(zone).Format("2006-01-02 15:04")
}
