package chat

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

const (
	maxValue   = 100 // characters of a value in a one-line summary
	maxSummary = 160 // characters of the object line
	maxFact    = 200 // units of a fact on a card that had to be cut
)

// Text is the card in at most limit units, as chat services count them: characters,
// those beyond U+FFFF twice. 0 is no limit. all is false if a part of the payload
// or of the facts did not fit. Then the card must not be approved, and it says so.
// The agent's text is cut first, then the changes since an earlier request. Cutting
// these leaves all true.
//
// Of the menu only a long line is cut, and the foot never, so a limit below about 1,500
// units may be exceeded. Then all is false too.
func (c Card) Text(limit int) (text string, all bool) {
	c, all = c.Fit(limit)
	return c.join(c.Runs), all
}

// Fit is the card of Text(limit), for channels that render its parts separately.
func (c Card) Fit(limit int) (fitting Card, all bool) {
	if c.Question == "" {
		return c, false // the zero Card shows nothing
	}
	if fits(c.join(c.Runs), limit) {
		return c, true
	}
	for _, part := range []struct {
		lines  *[]string
		remark string
	}{{&c.Prose, c.catalog().CutProse}, {&c.Changes, c.catalog().CutChanges}} {
		if n := runes(*part.lines); n > 0 {
			*part.lines = []string{Format(part.remark, "n", strconv.Itoa(n))}
		}
		if fits(c.join(c.Runs), limit) {
			return c, true
		}
	}
	if !fits(c.join(c.cut(0)), limit) {
		c.shortenFacts()
	}
	budget := limit - Units(c.join(c.cut(0))) - 1
	for {
		payload := c.cut(budget)
		if budget <= 0 || fits(c.join(payload), limit) {
			c.Runs = payload
			return c, false
		}
		budget -= 8 // the remark's number grew
	}
}

func (c Card) catalog() *messages {
	if c.messages == nil {
		return catalog("")
	}
	return c.messages
}

// String is the complete card.
func (c Card) String() string {
	text, _ := c.Text(0)
	return text
}

func fits(s string, limit int) bool { return limit <= 0 || Units(s) <= limit }

// join is the text of the card with what would run as given.
func (c Card) join(runs []Line) string {
	lines := nonEmpty(append([]string{c.Question, c.Object, c.Meta}, c.Warnings...)...)
	for _, k := range c.Evidence {
		lines = append(lines, k.Text)
	}
	for _, l := range runs {
		lines = append(lines, l.Text)
	}
	lines = slices.Concat(lines, c.Changes, c.Prose, nonEmpty(c.Blocked), c.Menu, nonEmpty(c.Typed, c.Foot))
	return strings.Join(lines, "\n")
}

// cut keeps budget units of what would run and says how much is missing.
func (c Card) cut(budget int) []Line {
	var kept []Line
	all, left := 0, 0
	for _, l := range c.Runs {
		all += utf8.RuneCountInString(l.Text)
		if budget <= 0 {
			continue
		}
		if n := Units(l.Text) + 1; n > budget {
			l.Text = head(l.Text, budget-1)
		}
		kept = append(kept, l)
		left += utf8.RuneCountInString(l.Text)
		budget -= Units(l.Text) + 1
	}
	if all == left {
		return kept
	}
	return append(kept, Line{LineWarn, Format(c.catalog().CutPayload, "n", strconv.Itoa(all-left))})
}

// shortenFacts cuts long facts, in copies of the slices.
func (c *Card) shortenFacts() {
	short := func(f string) string {
		if Units(f) <= maxFact {
			return f
		}
		kept := head(f, maxFact)
		return kept + c.catalog().cutMark(f[len(kept):])
	}
	c.Question, c.Object, c.Meta = short(c.Question), short(c.Object), short(c.Meta)
	c.Warnings, c.Evidence, c.Menu = slices.Clone(c.Warnings), slices.Clone(c.Evidence), slices.Clone(c.Menu)
	for i, f := range c.Warnings {
		c.Warnings[i] = short(f)
	}
	for i, f := range c.Menu {
		c.Menu[i] = short(f)
	}
	for i, k := range c.Evidence {
		c.Evidence[i].Text = short(k.Text)
	}
}

func runes(lines []string) int {
	n := 0
	for _, l := range lines {
		n += utf8.RuneCountInString(l)
	}
	return n
}

// Units is the length of s as chat services count it.
func Units(s string) int {
	n := 0
	for _, r := range s {
		n += max(1, utf16.RuneLen(r))
	}
	return n
}

// head keeps the first n units of s.
func head(s string, n int) string {
	for i, r := range s {
		if n -= max(1, utf16.RuneLen(r)); n < 0 {
			return s[:i]
		}
	}
	return s
}

// Line is p in one line, for lists, subjects and push previews. A value is cut at
// 100 characters and says so.
func (s Style) Line(p *approval.Pending) string {
	r := s.renderer(p)
	r.anySecret = true // a list is nothing that a person consents to
	what, tool := r.brief(), r.tool()
	if p.Type == approval.TypeQuestion {
		tool = "?"
	}
	return strings.Join([]string{Escape(p.ShortID), r.short(p.SourceGroup), tool, what, r.until()}, " · ")
}

// Brief is what p would do, or asks, in a few words, cut as in Line.
func (s Style) Brief(p *approval.Pending) string {
	r := s.renderer(p)
	r.anySecret = true
	return r.brief()
}

// VerbAndObject is what p would do, with its verb, or asks, cut as in Line.
func (s Style) VerbAndObject(p *approval.Pending) string {
	r := s.renderer(p)
	r.anySecret = true
	return upperFirst(r.actAndBrief())
}

func (r renderer) brief() string {
	p := r.p
	if p.Type == approval.TypeQuestion {
		return `"` + r.clippedIn(p.Agent.Title, maxValue, inQuote) + `"`
	}
	if p.Plan != nil {
		return r.effects()
	}
	if s := r.summaryText(maxValue); s != "" {
		return s
	}
	return cmp.Or(r.command(), r.argumentsInShort(), r.NoDetails)
}

// argumentsInShort names the first arguments with their values, "" if there are none.
func (r renderer) argumentsInShort() string {
	fields, _ := codec.Fields(r.p.RequestData) // on an error there are none
	var parts []string
	for i, f := range fields {
		if i == maxFlagged {
			parts = append(parts, Format(r.CutFields, "n", strconv.Itoa(len(fields)-i)))
			break
		}
		value := r.shortValue(f)
		if r.argument(f).Type != facts.TypeText {
			value = r.inShort(f, maxValue)
		}
		parts = append(parts, r.shortName(f.Name)+": "+value)
	}
	return strings.Join(parts, ", ")
}

// actAndBrief is used in sentences about a decision.
func (r renderer) actAndBrief() string {
	if r.p.Type == approval.TypeQuestion {
		return r.brief()
	}
	if r.p.ToolName == "" {
		return r.brief() + " (" + r.text(r.p.ActionType) + ")"
	}
	return r.act(r.brief())
}

func (r renderer) short(s string) string { return r.clipped(s, maxValue) }

func (r renderer) shortName(s string) string {
	if clip(s, maxWord) == s || len(r.secrets(s)) > 0 {
		return r.name(s)
	}
	return r.name(clip(s, maxWord))
}

func (r renderer) shortValue(f codec.Field) string {
	if s, ok := f.Text(); ok {
		return r.short(s)
	}
	text := r.value(f.Value)
	kept := clip(text, maxValue)
	return kept + r.cutMark(text[len(kept):])
}

func (r renderer) clipped(s string, n int) string { return r.clippedIn(s, n, inLine) }

// clippedIn cuts s. It finds secrets before it cuts: half of one would not be
// recognized.
func (r renderer) clippedIn(s string, n int, m mode) string {
	kept, secrets := clip(s, n), r.secrets(s)
	for _, sp := range secrets {
		if sp.Start < len(kept) && sp.End > len(kept) {
			kept = s[:min(sp.End, len(s))]
		}
	}
	return strings.Join(r.maskSpans(kept, secrets, m), `\n`) + r.cutMark(s[len(kept):])
}

// cutMark says how much was cut off, "" if nothing was.
func (w *messages) cutMark(rest string) string {
	if rest == "" {
		return ""
	}
	return Format(w.CutValue, "n", strconv.Itoa(utf8.RuneCountInString(rest)))
}

// Redacted redacts a text about p for a program. It does not escape.
func (s Style) Redacted(p *approval.Pending, text string) string {
	r := s.renderer(p)
	r.anySecret = true
	return r.replaceSecrets(text, r.maskText)
}

// Result renders a JSON value of p, such as its result, on one line, escaped and without
// any secret.
func (s Style) Result(p *approval.Pending, v approval.Raw) string {
	r := s.renderer(p)
	r.anySecret = true
	return r.value(v)
}

// OneLine renders a text about p on one line, escaped and without any secret.
func (s Style) OneLine(p *approval.Pending, text string) string {
	r := s.renderer(p)
	r.anySecret = true
	return r.text(text)
}

// Quoted renders a text about p on one line in quotation marks, escaped and without any secret.
func (s Style) Quoted(p *approval.Pending, text string) string {
	r := s.renderer(p)
	r.anySecret = true
	return r.quote(text)
}

// Lines renders a text about p on as many lines as it has, escaped and without any secret.
func (s Style) Lines(p *approval.Pending, text string) []string {
	r := s.renderer(p)
	r.anySecret = true
	return r.blockLines(text, r.secrets(text))
}

// Outcome says in one line how a request was settled, and by whom.
func (s Style) Outcome(rec *approval.Record) string {
	w := catalog(s.Language)
	line := Format(w.SettledAs, "id", Escape(rec.ShortID()), "status", w.status(string(rec.Status)))
	resp, err := approval.ParseResponse(rec.Response)
	if err != nil {
		return line
	}
	if by, via := resp.Decision.By, resp.Decision.Via; by != nil && via != nil && !resp.Decision.Auto {
		line += Format(w.SettledBy, "by", Escape(clip(*by, maxValue)), "via", Escape(clip(*via, maxValue)))
	}
	approved := resp.Decision.Via != nil && *resp.Decision.Via != "gate" // "gate": no person decided in time
	if resp.Error != nil && rec.Status != approval.StatusDenied && (rec.Status != approval.StatusExpired || approved) {
		r := s.renderer(&approval.Pending{})
		line += Format(w.SettledError, "error", r.short(*resp.Error))
	}
	if rec.Status == approval.StatusCancelled && resp.Feedback != nil {
		line += Format(w.SettledError, "error", s.Quoted(&approval.Pending{}, clip(*resp.Feedback, maxValue)))
	}
	return line
}

// status translates a status or verdict.
func (w *messages) status(s string) string {
	if t, ok := w.Verdicts[s]; ok {
		return t
	}
	return Escape(s)
}
