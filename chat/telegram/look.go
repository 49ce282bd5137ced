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

// look is a message as it is to be sent: no part of it is parsed by Telegram.
type look struct {
	text  string
	marks []models.MessageEntity
	rows  [][]face
	all   bool // everything that would run stands in the text
}

// face is a button: what it says, and what comes back when it is tapped.
type face struct{ text, data string }

// digest tells a look from every other.
func (l look) digest() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %v %q", l.text, l.marks, l.rows)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// maxOptionFace is how much of an option fits on its button.
const maxOptionFace = 40

// painter draws the cards of one language.
type painter struct {
	chat.Style
	*words
}

func (c *Channel) painter(language string) painter {
	style := c.Style(language)
	if c.Foot != nil {
		style.Foot = c.Foot()
	}
	return painter{style, catalogue(language)}
}

// card is the card of a request that waits, with the buttons of its post. Those that approve are there
// only where all of it is shown: by this text, or, where whole says so, by a document.
func (p painter) card(w *approval.Pending, x *post, whole bool) look {
	c := p.Card(w)
	fitted, all := p.fit(c)
	if whole && !all {
		c.Menu = slices.Concat([]string{p.inDocument}, c.Menu)
		fitted, _ = p.fit(c)
	}
	l := layOut(fitted)
	l.all = all
	l.rows = p.buttons(w, x, all || whole)
	return l
}

// fit cuts a card so that Telegram takes it. What chat never cuts are the answers to a question: they can
// be longer than a message.
func (p painter) fit(c chat.Card) (fitted chat.Card, all bool) {
	fitted, all = c.Fit(maxText)
	if units(fitted.String()) <= maxText {
		return fitted, all
	}
	c.Menu = []string{p.longMenu}
	fitted, _ = c.Fit(maxText)
	return fitted, false
}

// layOut formats a card: its head bold, the payload in letters of one width, the agent's prose as a
// quotation.
func layOut(c chat.Card) look {
	w := &writer{}
	w.foreign(bold, c.Head)
	for _, f := range c.Facts {
		w.foreign("", f)
	}
	for _, k := range c.Evidence {
		w.foreign("", k.Text)
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
		w.foreign("", m)
	}
	if c.Foot != "" {
		w.foreign("", c.Foot)
	}
	return look{text: w.b.String(), marks: w.marks}
}

// buttons are those of a card. The menu's codes are the verbs.
func (p painter) buttons(w *approval.Pending, x *post, whole bool) [][]face {
	row := func(pairs ...string) []face {
		var faces []face
		for i := 0; i < len(pairs); i += 2 {
			if n := x.Nonces[pairs[i]]; n != "" {
				faces = append(faces, face{pairs[i+1], pairs[i] + ":" + n})
			}
		}
		return faces
	}
	var rows [][]face
	switch {
	case !whole:
		rows = append(rows, row(verbAll, p.showAll))
	case w.Type == approval.TypeQuestion:
		for i, o := range w.Options {
			n := strconv.Itoa(i + 1)
			rows = append(rows, row(verbOption+n, cut(n+" · "+p.OneLine(w, o), maxOptionFace)))
		}
		rows = append(rows, row(verbSay, p.answer))
	default:
		rows = append(rows, row("1", p.once, "2", p.session, "6", p.always), row("4", p.note, "5", p.change))
	}
	rows = append(rows, row("3", p.deny, "?", p.ask))
	return slices.DeleteFunc(rows, func(r []face) bool { return len(r) == 0 })
}

// verbs are those that a card of this request may ever have on a button.
func verbs(w *approval.Pending) []string {
	all := []string{"3", "?", verbAll, verbOpen}
	if w.Type == approval.TypeQuestion {
		for i := range w.Options {
			all = append(all, verbOption+strconv.Itoa(i+1))
		}
		return append(all, verbSay)
	}
	all = append(all, "1", "4", "5", verbUndo)
	if approval.NotGrantable(w, approval.Session) == "" {
		all = append(all, "2")
	}
	if approval.NotGrantable(w, approval.Always) == "" {
		all = append(all, "6")
	}
	return all
}

// ended is the card of a request that waits no more: who decided what and when, and what came of it.
// Where something is remembered from then on, it can be taken back here.
func (p painter) ended(sc scene, k approval.Key, of *page, x *post) look {
	if sc.Pending == nil {
		return p.withdrawn(approval.ShortID(k.ID), p.gone)
	}
	c := p.Card(sc.Pending)
	c.Menu, c.Foot = p.outcome(sc.Story), ""
	if of.Undone {
		c.Menu = append(c.Menu, p.undone)
	}
	c, _ = c.Fit(maxText)
	l := layOut(c)
	if sc.target(of, x) == undoing {
		l.rows = [][]face{{{p.undo, verbUndo + ":" + x.Nonces[verbUndo]}}}
	}
	return l
}

// outcome is who decided what and when, and what came of it.
func (p painter) outcome(st Story) []string {
	var lines []string
	d := st.Decision
	if d != nil {
		lines = append(lines, p.verdict(d))
		for _, s := range []string{d.Note, d.Override, d.Feedback, d.Answer} {
			if s != "" {
				lines = append(lines, say(p.said, "text", cut(p.OneLine(st.Pending, s), maxToast)))
			}
		}
	}
	switch {
	case st.Record == nil && d != nil && d.Approved:
		lines = append(lines, p.running)
	case st.Record != nil && (d == nil || string(st.Record.Status) != string(d.Verdict)):
		lines = append(lines, cut(p.Outcome(st.Record), maxText/8))
	}
	return lines
}

// verdict is a decision in one line.
func (p painter) verdict(d *approval.Decision) string {
	what := p.verdicts[d.Verdict]
	if what == "" {
		what = chat.Escape(string(d.Verdict))
	}
	what += p.scopes[d.Scope]
	at := p.clock(d.DecidedAt)
	agents := d.Verdict == approval.Cancelled && (d.DecidedByID == "agent" || strings.HasPrefix(d.DecidedByID, "client:"))
	if d.Verdict == approval.Cancelled && !agents {
		what = p.cancelled
	}
	if d.Verdict == approval.Expired || agents || d.DecidedBy == "" {
		return say(p.itself, "verdict", what, "time", at)
	}
	return say(p.byAt, "verdict", what, "by", chat.Escape(d.DecidedBy), "time", at, "via", chat.Escape(d.Via))
}

// withdrawn is a card that does not hold any more.
func (p painter) withdrawn(id, why string) look {
	w := &writer{}
	w.line(bold, "🔐 "+chat.Escape(id))
	w.line("", why)
	return look{text: w.b.String(), marks: w.marks}
}

// plain is a message of lines that may hold what agents wrote.
func plain(lines ...string) look {
	w := &writer{}
	for _, l := range lines {
		for s := range strings.SplitSeq(l, "\n") {
			w.foreign("", s)
		}
	}
	return look{text: w.b.String(), marks: w.marks}
}

func (p painter) clock(t time.Time) string {
	zone, mark := p.Zone, ""
	if zone == nil {
		zone, mark = time.UTC, " UTC"
	}
	return t.In(zone).Format("15:04") + mark
}

// date is a day and a time.
func (p painter) date(t time.Time) string {
	zone := p.Zone
	if zone == nil {
		zone = time.UTC
	}
	return t.In(zone).Format("2006-01-02 15:04")
}
