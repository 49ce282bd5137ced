package deliver

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// hash identifies the rendered content.
func (msg Message) hash() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q", msg.Text(), msg.Buttons)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// maxOptionText is how much of an option fits on its button.
const maxOptionText = 40

// maxOfferText is how much of the sentence of a grant is on its button. Programs that show less cut it themselves.
const maxOfferText = 80

// maxExcerpt is how much of a longer text a line quotes.
const maxExcerpt = 200

// renderer renders messages in one language.
type renderer struct {
	chat.Style
	*catalog
	maxText int
}

func (s *session) renderer(language string) renderer {
	style := s.Style(language)
	if s.Foot != nil {
		style.Foot = s.Foot()
	}
	return renderer{style, catalogFor(language), s.maxText()}
}

// Card renders a pending request with its buttons, which have these nonces. It has approve buttons only if
// everything is shown: in this text or, if shown is set, in a document.
func Card(style chat.Style, w *approval.Pending, nonces map[string]string, maxText int, shown bool) Message {
	p := renderer{style, catalogFor(style.Language), maxText}
	more := p.SayMore
	if w.Type == approval.TypeQuestion {
		more = "" // the menu says it
	}
	p.maxText -= chat.Units(more) + 1
	c := withTabs(p.Card(w))
	fitted, all := p.fit(c)
	if c.Blocked != "" {
		return Message{Card: &fitted, More: more, Buttons: p.buttons(w, withoutApproval(nonces), true)}
	}
	if shown && !all {
		c.Menu = slices.Concat([]string{p.InDocument}, c.Menu)
		fitted, _ = p.fit(c)
	}
	return Message{Card: &fitted, More: more, Complete: all, Buttons: p.buttons(w, nonces, all || shown)}
}

// withTabs writes tabs as in one line, \t: a service may show a space instead. No text of a card has that sign for
// anything else.
func withTabs(c chat.Card) chat.Card {
	for _, lines := range [][]string{c.Changes, c.Prose} {
		for i, l := range lines {
			lines[i] = strings.ReplaceAll(l, "\t", `\t`)
		}
	}
	for i, l := range c.Runs {
		c.Runs[i].Text = strings.ReplaceAll(l.Text, "\t", `\t`)
	}
	return c
}

// withoutApproval are the nonces of the buttons that start nothing.
func withoutApproval(nonces map[string]string) map[string]string {
	rest := maps.Clone(nonces)
	maps.DeleteFunc(rest, func(verb, _ string) bool { return approves(verb) })
	return rest
}

func (s *session) card(w *approval.Pending, x *sentCopy) Message {
	t := s.renderer(x.Language)
	return Card(t.Style, w, x.Nonces, t.maxText, x.FullyShown)
}

// fit shortens a card to the service's limit. The options of a question are never shortened by chat.Card, and may
// be longer than a message.
func (p renderer) fit(c chat.Card) (fitted chat.Card, all bool) {
	fitted, all = c.Fit(p.maxText)
	if chat.Units(fitted.String()) <= p.maxText {
		return fitted, all
	}
	c.Menu = []string{p.LongMenu}
	fitted, _ = c.Fit(p.maxText)
	return fitted, false
}

// buttons are the buttons of a card. Their verbs are the codes of the menu.
func (p renderer) buttons(w *approval.Pending, nonces map[string]string, whole bool) [][]Button {
	row := func(pairs ...string) []Button {
		var buttons []Button
		for i := 0; i < len(pairs); i += 2 {
			if n := nonces[pairs[i]]; n != "" && pairs[i+1] != "" {
				buttons = append(buttons, Button{pairs[i+1], pairs[i] + ":" + n})
			}
		}
		return buttons
	}
	var rows [][]Button
	switch {
	case !whole:
		rows = append(rows, row(verbAll, p.ShowAll))
	case w.Type == approval.TypeQuestion:
		for i, o := range w.Options {
			n := strconv.Itoa(i + 1)
			rows = append(rows, row(verbOption+n, Truncate(n+" · "+p.OneLine(w, o), maxOptionText)))
		}
		rows = append(rows, row(verbSay, p.Answer))
	default:
		rows = append(rows, row("1", p.Once), row("2", p.offer(w, approval.Session)), row("6", p.offer(w, approval.Always)))
		rows = append(rows, row("4", p.Note, "5", p.Change), row(approval.CodeEdit, p.Edit))
	}
	rows = append(rows, row("3", p.Deny, "?", p.Ask, verbWhy, p.Why))
	return slices.DeleteFunc(rows, func(r []Button) bool { return len(r) == 0 })
}

// offer is the button of what code 2 or 6 would remember, "" if that is not offered. The card has the whole sentence.
func (p renderer) offer(w *approval.Pending, scope approval.Scope) string {
	if s := p.Offer(w, scope); s != "" {
		return Truncate("✅ "+s, maxOfferText)
	}
	return ""
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
	all = append(all, "1", "4", "5", verbWhy, verbUndo)
	if w.Editable != "" {
		all = append(all, approval.CodeEdit)
	}
	if grant.WhyNot(w, approval.Session).IsZero() {
		all = append(all, "2")
	}
	if grant.WhyNot(w, approval.Always).IsZero() {
		all = append(all, "6")
	}
	return all
}

// settledCard is the card after the decision: the decision, the outcome, and Undo if it created a grant.
func (p renderer) settledCard(st status, k approval.Key, of *sentRecord, x *sentCopy) Message {
	if st.Pending == nil {
		return p.withdrawnCard(st.label(k), p.UnknownRequest)
	}
	c := withTabs(p.Card(st.Pending))
	c.Menu, c.Typed, c.Foot, c.Blocked = p.outcomeLines(st.Story), "", p.settledFoot(st.Pending), ""
	if of.Undone {
		c.Menu = append(c.Menu, p.Undone)
	}
	c, _ = c.Fit(p.maxText)
	msg := Message{Card: &c}
	if st.targetPhase(of, x) == phaseUndo {
		msg.Buttons = [][]Button{{{p.Undo, verbUndo + ":" + x.Nonces[verbUndo]}}}
	}
	return msg
}

// settledFoot names the request of a settled card.
func (p renderer) settledFoot(w *approval.Pending) string {
	parts := []string{chat.Escape(w.SourceGroup), p.OneLine(w, cmp.Or(w.ToolName, w.ActionType)), chat.Escape(w.ShortID)}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " · ")
}

// outcomeLines are the decision and the outcome.
func (p renderer) outcomeLines(story read.Story) []string {
	var lines []string
	d := story.Decision
	if d != nil {
		lines = append(lines, p.verdictLine(d))
		if g := grant.From(story.Pending, d); g != nil {
			lines = append(lines, p.Given(story.Pending, g))
		}
		for _, s := range []string{d.Note, d.Override, d.Feedback, d.Answer} {
			switch {
			case s == "":
			case d.ByAgent():
				lines = append(lines, chat.Format(p.AgentSays, "text", Truncate(p.Quoted(story.Pending, s), maxExcerpt)))
			default:
				lines = append(lines, chat.Format(p.SentToAgent, "text", Truncate(p.OneLine(story.Pending, s), maxExcerpt)))
			}
		}
	}
	switch {
	case story.Record == nil && d != nil && d.Approved:
		held := ""
		if story.Claim == nil {
			held = p.ApprovedInPause(story.Pending.SourceGroup, d)
		}
		lines = append(lines, cmp.Or(held, p.OutcomeFollows))
	case story.Record != nil && (d == nil || string(story.Record.Status) != string(d.Verdict)):
		lines = append(lines, Truncate(p.Outcome(story.Record), p.maxText/8))
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
	agents := d.ByAgent()
	if d.Verdict == approval.Cancelled && !agents {
		what = p.Cancelled
	}
	if d.Verdict == approval.Expired || agents || d.DecidedBy == "" {
		return chat.Format(p.AtTime, "verdict", what, "time", at)
	}
	return chat.Format(p.ByAt, "verdict", what, "by", chat.Escape(d.DecidedBy), "time", at, "via", chat.Escape(d.Via))
}

// notShown says why a request cannot be approved here.
func (p renderer) notShown(w *approval.Pending) string {
	return cmp.Or(p.blocked(w), chat.Format(p.NotShown, "id", w.ShortID))
}

// blocked says why a card cannot be approved on this channel, "" if it can.
func (p renderer) blocked(w *approval.Pending) string { return p.Card(w).Blocked }

// withdrawnCard is a card that is no longer valid.
func (p renderer) withdrawnCard(id, why string) Message {
	return Message{Card: &chat.Card{Question: "🔐 " + chat.Escape(id), Menu: []string{why}}}
}

// plain is a message of lines.
func plain(lines ...string) Message {
	var m Message
	for _, line := range lines {
		m.Lines = append(m.Lines, strings.Split(line, "\n")...)
	}
	return m
}

// Truncate shortens s to that many UTF-16 code units, and marks the cut.
func Truncate(s string, most int) string {
	if chat.Units(s) <= most {
		return s
	}
	n := 0
	for i, r := range s {
		if n += max(1, utf16.RuneLen(r)); n > most-1 {
			return strings.TrimRight(s[:i], " \n") + "…"
		}
	}
	return s
}

func (p renderer) timeOfDay(t time.Time) string {
	if p.Zone == nil {
		return t.UTC().Format("15:04 UTC")
	}
	return t.In(p.Zone).Format("15:04")
}

func (p renderer) dateTime(t time.Time) string {
	return t.In(cmp.Or(p.Zone, time.UTC)).Format("2006-01-02 15:04 MST")
}
