package chat

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
)

// Span marks a secret: bytes Start to End of a text.
type Span struct {
	Start, End int
	Kind       string
}

// Redactor finds what must not be shown.
type Redactor interface {
	Secrets(text string) []Span
}

// RequestRedactor is a Redactor that finds more in the texts of one request when
// it knows the whole of it: what was split over several of its fields.
type RequestRedactor interface {
	Redactor
	For(p *approval.Pending) Redactor
}

// Style says how to write. The zero Style writes English, times in UTC, and
// redacts nothing.
type Style struct {
	Language string
	Zone     *time.Location // nil: UTC, and said so behind each time
	Foot     string         // behind the last line of a card: "log 1042 9f3c"
	Redact   Redactor       // nil: nothing is secret
	// Paused tells whether nothing runs in a workspace for the time being; a
	// nil func or a nil Pause says that it does.
	Paused func(workspace string) *Pause
	// WouldAllow says what "always" for p would have let through: n of the last
	// requests that asked a person, and the newest of them in a few words. It is
	// asked once a card; nil knows no history.
	WouldAllow func(p *approval.Pending) (which []string, n, of int)
	// Earlier looks up the request that p resubmits, among all there are; nil
	// where there is none of that id. Whether it was its client's own is not its
	// business. A nil func knows none.
	Earlier func(p *approval.Pending) *EarlierRequest
}

// Card is a pending request as a person sees it, line by line.
type Card struct {
	Head     string   // what this is, and its id
	Facts    []string // the question, the object, the meta line, why, warnings
	Evidence []Known  // what is known of it besides: nothing that an agent says
	Payload  []string // all that would run, unless Facts show it already
	Changes  []string // what differs from the request that it resubmits, see Style.Earlier
	Prose    []string // what the agent says of it, and a proof that nobody verified
	Menu     []string // what can be answered, and what cannot and why
	Foot     string   // the commands, the deadline

	words *words
}

// The forms of a card, by how often people have approved the like.
const (
	mediumFrom = 3
	shortFrom  = 8
)

type renderer struct {
	Style
	*words
	p *approval.Pending
}

func (s Style) renderer(p *approval.Pending) renderer {
	if whole, ok := s.Redact.(RequestRedactor); ok {
		s.Redact = whole.For(p)
	}
	return renderer{s, catalogue(s.Language), p}
}

// Card renders p. Nothing is left out of it, however long; see Card.Text.
func (s Style) Card(p *approval.Pending) Card {
	r := s.renderer(p)
	c := Card{Evidence: r.evidence(), Payload: r.payload(), Changes: s.changes(p), Prose: append(r.prose(), r.claims()...), words: r.words}
	id := Escape(p.ShortID)
	if p.Type == approval.TypeQuestion {
		c.Head = say(r.headQuestion, "workspace", r.text(p.SourceGroup), "id", id)
		c.Facts = []string{r.asks(), r.onlyAnswer}
		c.Menu = r.options()
		c.Foot = say(r.footQuestion, "id", id, "time", r.until())
	} else {
		c.Head = say(r.headAction, "workspace", r.text(p.SourceGroup), "tool", r.tool(), "id", id)
		c.Facts = r.facts()
		c.Menu = slices.Concat([]string{r.menu}, r.menuNotes(), r.history())
		c.Foot = say(r.foot, "id", id, "time", r.until())
	}
	if s.Foot != "" {
		c.Foot += " · " + s.Foot
	}
	if line := s.PauseLine(p.SourceGroup, p.Timestamp); line != "" {
		c.Facts = append([]string{line}, c.Facts...)
	}
	c.Facts = append(c.Facts, r.reasons()...)
	c.Facts = append(c.Facts, r.flags()...)
	return c
}

// facts are the two or three lines that the form asks for, and what the
// operator did not vouch for.
func (r renderer) facts() []string {
	var facts []string
	switch n := r.p.RecurrenceCount; {
	case n >= shortFrom:
		facts = []string{upperFirst(r.verb()) + " " + r.object() + " [" + r.meta() + "]"}
	case n >= mediumFrom:
		facts = []string{r.question() + " (" + r.meta() + ")", r.object()}
	default:
		facts = []string{r.question(), r.object(), r.meta()}
	}
	switch {
	case r.p.ToolName == "":
		facts = append(facts, r.claimed)
	case r.p.ToolSHA256 == "":
		facts = append(facts, r.unknownTool)
	}
	return facts
}

func (r renderer) tool() string {
	if r.p.ToolName == "" {
		return r.text(r.p.ActionType)
	}
	return r.text(r.p.ToolName)
}

// verb is what would be done, in this language if the operator said so, else
// in English, else by the tool's name. The operator's words may hold {fields}.
func (r renderer) verb() string {
	v, _ := r.verbIn()
	return v
}

func (r renderer) verbIn() (verb string, native bool) {
	lang := Language(r.Language)
	if v := r.p.Verb[lang]; v != "" {
		return r.text(approval.Expand(v, r.p.RequestData)), true
	}
	if v := r.p.Verb["en"]; v != "" {
		return r.text(approval.Expand(v, r.p.RequestData)), false
	}
	if r.p.ToolName == "" {
		return say(r.release, "action", r.tool()), true
	}
	return say(r.run, "tool", r.tool()), true
}

func (r renderer) question() string {
	v, native := r.verbIn()
	if !native {
		return say(r.mayIForeign, "verb", v)
	}
	return say(r.mayI, "verb", v)
}

// object is the summary and the size of what was given to the tool.
func (r renderer) object() string {
	return r.summary() + " (~" + strconv.Itoa(r.size()) + " B)"
}

func (r renderer) summary() string {
	for _, s := range []string{r.p.Summary, r.p.Target} {
		if s != "" {
			return r.text(s)
		}
	}
	if line := r.command(); line != "" {
		return line
	}
	return r.tool()
}

// command is what a release-only exec_cmd says it will run: its words as they
// stand in the payload, nothing derived.
func (r renderer) command() string {
	if r.p.ToolName != "" || r.p.ActionType != "exec_cmd" {
		return ""
	}
	fields, err := approval.Fields(r.p.RequestData)
	if err != nil {
		return ""
	}
	var lines []string
	for _, f := range fields {
		if f.Name != "argv" && f.Name != "command" && f.Name != "cmd" {
			continue
		}
		if s, ok := f.Text(); ok {
			lines = append(lines, r.text(s))
		} else {
			lines = append(lines, r.argv(f.Value))
		}
	}
	if len(lines) != 1 {
		return "" // which of them would run?
	}
	return lines[0]
}

func (r renderer) argv(v approval.Raw) string {
	items, err := approval.Items(v)
	if err != nil {
		return r.value(v)
	}
	words := make([]string, len(items))
	for i, it := range items {
		s, ok := approval.Field{Value: it}.Text()
		if !ok {
			return r.value(v)
		}
		words[i] = r.plainOrQuoted(s)
	}
	return strings.Join(words, " ")
}

func (r renderer) size() int {
	fields, err := approval.Fields(r.p.RequestData)
	if err != nil {
		return len(r.p.RequestData)
	}
	n := 0
	for _, f := range fields {
		if s, ok := f.Text(); ok {
			n += len(s)
		} else {
			n += len(compact(f.Value))
		}
	}
	return n
}

func (r renderer) meta() string {
	class := r.unknown
	if r.p.Capability != "" {
		class = r.text(r.p.Capability)
	}
	if r.p.Target != "" {
		class += ":" + r.target()
	}
	m := r.reversibility() + " | " + r.class + ": " + class
	switch r.p.Territory {
	case "", "none":
		return m
	case "session":
		return m + " " + r.session
	case "permanent":
		return m + " " + r.permanent
	}
	return m + " " + say(r.other, "territory", r.text(r.p.Territory))
}

// target stands between words of ours: in quotation marks, unless it is one
// word without any of our punctuation.
func (r renderer) target() string {
	return r.plainOrQuoted(r.p.Target)
}

func (r renderer) reversibility() string {
	switch r.p.Reversibility {
	case approval.Reversible:
		return r.reversible
	case approval.Partial:
		return r.partial
	}
	return r.irreversible
}

// flags warn of text that is not what it looks like.
func (r renderer) flags() []string {
	p := r.p
	texts := append([]string{p.Summary, stringsIn(p.RequestData), stringsIn(p.Proof), p.Agent.Title, p.Agent.Preview, p.Agent.Rationale}, p.Options...)
	for _, v := range p.Verb {
		texts = append(texts, v)
	}
	aside := func(string, string) string { return "\n" }
	for i, t := range texts {
		texts[i] = r.without(t, aside)
	}
	all := strings.Join(texts, "\n")
	words := mixedWords(r.without(p.Target, aside), ".-@")
	for _, w := range mixedWords(all, "") {
		if !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	var flags []string
	if len(words) > 0 {
		flags = append(flags, say(r.mixed, "words", strings.Join(words[:min(len(words), maxFlagged)], ", ")))
	}
	if rightToLeft(p.Target) || rightToLeft(all) {
		flags = append(flags, r.rtl)
	}
	return flags
}

// payload shows every field of request_data in the order in which it was
// written. It is left out only where the object line is that one value and
// nothing else: a value that merely occurs in a line of the operator's words
// could be anything.
func (r renderer) payload() []string {
	fields, err := approval.Fields(r.p.RequestData)
	if err != nil {
		return []string{say(r.unreadable, "raw", r.text(string(r.p.RequestData)))}
	}
	switch len(fields) {
	case 0:
		if r.p.Type == approval.TypeQuestion {
			return nil
		}
		return []string{r.noDetails}
	case 1:
		if s, ok := fields[0].Text(); ok && s != "" && r.p.Type != approval.TypeQuestion && (r.p.Summary == s || r.p.Summary == `"`+s+`"`) {
			return nil
		}
	}
	var lines []string
	for _, f := range fields {
		lines = append(lines, r.field(f)...)
	}
	return lines
}

// field writes "name: value". A name that is no plain word stands in quotation
// marks, so that none can contain a colon or look like a line of ours; so does
// a text that would otherwise read as JSON: "5" is not 5.
func (r renderer) field(f approval.Field) []string {
	name := r.name(f.Name) + ":"
	s, ok := f.Text()
	switch {
	case !ok:
		return []string{name + " " + r.value(f.Value)}
	case s == "" || s[0] == '"' || !strings.Contains(s, "\n") && json.Valid([]byte(s)):
		return []string{name + ` "` + strings.Join(r.redact(s, inQuote), "") + `"`}
	}
	return r.labelled(name, r.redact(s, inLine))
}

func (r renderer) labelled(name string, lines []string) []string {
	if len(lines) == 1 {
		return []string{name + " " + lines[0]}
	}
	out := []string{name}
	for _, l := range lines {
		out = append(out, barred(l))
	}
	return out
}

func (r renderer) name(s string) string {
	plain := func(c rune) bool {
		return c == '_' || c == '-' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	ours := s == r.why || s == r.instead || ourLabels()[lower(s)]
	if s == "" || ours || strings.ContainsFunc(s, func(c rune) bool { return !plain(c) }) || len(r.secrets(s)) > 0 {
		return `"` + strings.Join(r.redact(s, inQuote), "") + `"`
	}
	return s
}

// prose quotes the agent. One line becomes a quotation, several a block.
func (r renderer) prose() []string {
	var lines []string
	title := r.p.Agent.Title
	if r.p.Type == approval.TypeQuestion {
		title = "" // it is the question
	}
	for _, said := range []struct{ label, text string }{
		{r.title, title}, {r.preview, r.p.Agent.Preview}, {r.says, r.p.Agent.Rationale},
	} {
		switch {
		case said.text == "":
		case strings.Contains(said.text, "\n"):
			lines = append(lines, r.labelled(said.label+":", r.redact(said.text, inLine))...)
		default:
			lines = append(lines, said.label+": "+r.quote(said.text))
		}
	}
	return lines
}

func (r renderer) asks() string {
	return say(r.agentAsks, "title", r.quote(r.p.Agent.Title))
}

func (r renderer) options() []string {
	if len(r.p.Options) == 0 {
		return []string{r.menuFree}
	}
	var lines []string
	for i, o := range r.p.Options {
		lines = append(lines, strconv.Itoa(i+1)+" "+r.quote(o))
	}
	return append(lines, r.menuOptions)
}

func (r renderer) until() string {
	return r.clock(r.p.ExpiresAt, r.p.Timestamp)
}

// clock writes t, with its date where that is not the day of other.
func (s Style) clock(t, other time.Time) string {
	zone, mark := s.Zone, ""
	if zone == nil {
		zone, mark = time.UTC, " UTC"
	}
	t, other = t.In(zone), other.In(zone)
	if t.YearDay() != other.YearDay() || t.Year() != other.Year() {
		return t.Format("2006-01-02 15:04") + mark
	}
	return t.Format("15:04") + mark
}

// text writes s on one line, escaped, its secrets redacted.
func (r renderer) text(s string) string {
	return strings.Join(r.redact(s, inLine), `\n`)
}

func (r renderer) quote(s string) string {
	return `"` + strings.Join(r.redact(s, inQuote), "") + `"`
}

// value writes a JSON value, each string of it searched as what it says: an
// escape inside would hide a secret from whoever reads the bytes.
func (r renderer) value(v approval.Raw) string {
	text := compact(v)
	if r.Redact == nil {
		return r.redact(text, inJSON)[0]
	}
	var b strings.Builder
	at, found := 0, false
	for start, end := range jsonStrings(text) {
		var s string
		if json.Unmarshal([]byte(text[start:end]), &s) != nil {
			continue
		}
		spans := r.secrets(s)
		if len(spans) == 0 {
			continue
		}
		found = true
		b.WriteString(r.redact(text[at:start], inJSON)[0] + `"` + strings.Join(r.hide(s, spans, inQuote), "") + `"`)
		at = end
	}
	if !found {
		return r.redact(text, inJSON)[0]
	}
	return b.String() + r.redact(text[at:], inJSON)[0]
}

// compact takes the white space between the tokens of a JSON value away and
// leaves every token as it was written.
func compact(v approval.Raw) string {
	var b bytes.Buffer
	if err := json.Compact(&b, v); err != nil {
		return string(v)
	}
	return b.String()
}

func upperFirst(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[size:]
}
