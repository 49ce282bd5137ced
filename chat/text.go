package chat

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
)

const (
	maxValue = 100 // characters of a value in a one-line summary
	maxFact  = 200 // units of a fact on a card that had to be cut
)

// Text is the card in at most limit units, as chat services count them:
// characters, those beyond U+FFFF twice. No limit is 0. all is false when a
// part of what would run, or of the facts, did not fit: then the card is no
// ground for an approval, and it says so. The agent's own words go first, then
// what changed since an earlier request; neither counts.
//
// Head, menu and foot are never cut, so a limit below some 1,000 units may be
// exceeded; then, too, all is false.
func (c Card) Text(limit int) (text string, all bool) {
	c, all = c.Fit(limit)
	return c.join(c.Payload), all
}

// Fit is the card whose Text(limit) is shown, for channels that write its parts
// in different ways.
func (c Card) Fit(limit int) (fitting Card, all bool) {
	if fits(c.join(c.Payload), limit) {
		return c, true
	}
	if len(c.Prose) > 0 {
		c.Prose = []string{say(c.sentences().cutProse, "n", count(c.Prose))}
		if fits(c.join(c.Payload), limit) {
			return c, true
		}
	}
	if len(c.Changes) > 0 {
		c.Changes = []string{say(c.sentences().cutChanges, "n", count(c.Changes))}
		if fits(c.join(c.Payload), limit) {
			return c, true
		}
	}
	if !fits(c.join(c.cut(0)), limit) {
		c.shortenFacts()
	}
	room := limit - units(c.join(c.cut(0))) - 1
	for {
		payload := c.cut(room)
		if room <= 0 || fits(c.join(payload), limit) {
			c.Payload = payload
			return c, false
		}
		room -= 8 // the number in the remark grew
	}
}

func (c Card) sentences() *words {
	if c.words == nil {
		return catalogue("")
	}
	return c.words
}

// String is the whole card.
func (c Card) String() string {
	text, _ := c.Text(0)
	return text
}

func fits(s string, limit int) bool { return limit <= 0 || units(s) <= limit }

// join is the card with this much of its payload.
func (c Card) join(payload []string) string {
	lines := append([]string{c.Head}, c.Facts...)
	for _, k := range c.Evidence {
		lines = append(lines, k.Text)
	}
	lines = slices.Concat(lines, []string{""}, payload, c.Changes, c.Prose, c.Menu, []string{c.Foot})
	return strings.Join(lines, "\n")
}

// cut keeps room units of the payload and says how much is missing.
func (c Card) cut(room int) []string {
	var kept []string
	for _, l := range c.Payload {
		if room <= 0 {
			break
		}
		if n := units(l) + 1; n > room {
			l = head(l, room-1)
		}
		kept = append(kept, l)
		room -= units(l) + 1
	}
	missing := runes(c.Payload) - runes(kept)
	if missing == 0 {
		return kept
	}
	return append(kept, say(c.sentences().cutPayload, "n", strconv.Itoa(missing)))
}

// shortenFacts cuts every fact, in slices of their own.
func (c *Card) shortenFacts() {
	short := func(f string) string {
		if units(f) <= maxFact {
			return f
		}
		kept := head(f, maxFact)
		return kept + say(c.sentences().cutValue, "n", strconv.Itoa(utf8.RuneCountInString(f)-utf8.RuneCountInString(kept)))
	}
	c.Facts, c.Evidence = slices.Clone(c.Facts), slices.Clone(c.Evidence)
	for i, f := range c.Facts {
		c.Facts[i] = short(f)
	}
	for i, k := range c.Evidence {
		c.Evidence[i].Text = short(k.Text)
	}
}

func count(lines []string) string { return strconv.Itoa(runes(lines)) }

func runes(lines []string) int {
	n := 0
	for _, l := range lines {
		n += utf8.RuneCountInString(l)
	}
	return n
}

// units is the length of s as chat services count it.
func units(s string) int {
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

// Line is p in one line, for lists, subjects and push previews. Its values are
// cut at 100 characters, and say so.
func (s Style) Line(p *approval.Pending) string {
	r := s.renderer(p)
	what, tool := r.brief(), r.tool()
	if p.Type == approval.TypeQuestion {
		tool = "?"
	}
	return strings.Join([]string{Escape(p.ShortID), r.short(p.SourceGroup), tool, what, r.until()}, " · ")
}

// Brief is what p would do, or asks, in a few words on one line, cut as Line cuts it.
func (s Style) Brief(p *approval.Pending) string { return s.renderer(p).brief() }

// brief is what p would do, in a few words.
func (r renderer) brief() string {
	p := r.p
	if p.Type == approval.TypeQuestion {
		return `"` + r.clippedIn(p.Agent.Title, maxValue, inQuote) + `"`
	}
	for _, s := range []string{p.Summary, p.Target} {
		if s != "" {
			return r.short(s)
		}
	}
	fields, err := approval.Fields(p.RequestData)
	if err != nil || len(fields) == 0 {
		return r.noDetails
	}
	var parts []string
	for i, f := range fields {
		if i == maxFlagged {
			parts = append(parts, say(r.cutFields, "n", strconv.Itoa(len(fields)-i)))
			break
		}
		parts = append(parts, r.shortName(f.Name)+": "+r.shortValue(f))
	}
	return strings.Join(parts, ", ")
}

// deed is the verb and the object, for sentences about what was decided.
func (r renderer) deed() string {
	if r.p.Type == approval.TypeQuestion {
		return r.brief()
	}
	return r.verb() + " " + r.brief()
}

// short is text, cut.
func (r renderer) short(s string) string { return r.clipped(s, maxValue) }

func (r renderer) shortName(s string) string {
	if clip(s, maxWord) == s || len(r.secrets(s)) > 0 {
		return r.name(s)
	}
	return r.name(clip(s, maxWord))
}

func (r renderer) shortValue(f approval.Field) string {
	if s, ok := f.Text(); ok {
		return r.short(s)
	}
	text := r.value(f.Value)
	kept := clip(text, maxValue)
	if kept == text {
		return text
	}
	return kept + say(r.cutValue, "n", strconv.Itoa(utf8.RuneCountInString(text[len(kept):])))
}

func (r renderer) clipped(s string, n int) string { return r.clippedIn(s, n, inLine) }

// clippedIn cuts s. The secrets are looked for first: half of one would not be
// recognised.
func (r renderer) clippedIn(s string, n int, m mode) string {
	kept, secrets := clip(s, n), r.secrets(s)
	for _, sp := range secrets {
		if sp.Start < len(kept) && sp.End > len(kept) {
			kept = s[:min(sp.End, len(s))]
		}
	}
	text := strings.Join(r.hide(kept, secrets, m), `\n`)
	if kept == s {
		return text
	}
	return text + say(r.cutValue, "n", strconv.Itoa(utf8.RuneCountInString(s[len(kept):])))
}

// Redacted is a text that has to do with p, for a program: not escaped, its
// secrets redacted.
func (s Style) Redacted(p *approval.Pending, text string) string {
	r := s.renderer(p)
	return r.without(text, r.marker)
}

// Value writes a JSON value that has to do with p on one line, likewise.
func (s Style) Value(p *approval.Pending, v approval.Raw) string { return s.renderer(p).value(v) }

// OneLine writes a text that has to do with p on one line, escaped, its secrets
// redacted.
func (s Style) OneLine(p *approval.Pending, text string) string { return s.renderer(p).text(text) }

// Outcome says in one line how a settled request ended, and by whom.
func (s Style) Outcome(rec *approval.Record) string {
	w := catalogue(s.Language)
	line := say(w.outcome, "id", Escape(approval.ShortID(rec.RequestID)), "status", w.status(string(rec.Status)))
	resp, err := approval.ParseResponse(rec.Response)
	if err != nil {
		return line
	}
	if by, via := resp.Decision.By, resp.Decision.Via; by != nil && via != nil && !resp.Decision.Auto {
		line += say(w.outcomeBy, "by", Escape(clip(*by, maxValue)), "via", Escape(clip(*via, maxValue)))
	}
	if resp.Error != nil && rec.Status != approval.StatusDenied && rec.Status != approval.StatusExpired {
		r := s.renderer(&approval.Pending{})
		line += say(w.outcomeError, "error", r.short(*resp.Error))
	}
	return line
}

// status is a status or verdict in this language.
func (w *words) status(s string) string {
	if t, ok := w.verdicts[s]; ok {
		return t
	}
	return Escape(s)
}
