package chat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// Span marks a secret: bytes Start to End of a text.
type Span struct {
	Start, End int
	Kind       string // "github-pat"
}

// Redactor finds the secrets of a request.
type Redactor interface {
	// For returns the Redactor of p, which knows its values and what spans them.
	For(p *approval.Pending) Redactor
	// Secrets finds all of them in a text that no person consents to: an outcome, a
	// result, a line of the log.
	Secrets(text string) []Span
	// Tokens finds those in a value that a mask may hide: each is one token of
	// [A-Za-z0-9_+/=.~-] between other characters. They are sorted and do not overlap.
	// It is never called for a name, a program, a path, a host or a recipient.
	Tokens(value string) []Span
	// Withheld is the kind of a secret in a value, or of which it holds a part, that no
	// mask may hide. "": there is none. Such a value does not leave the host.
	Withheld(value string) string
	// Unmaskable lists the kinds of such secrets in what would run.
	Unmaskable() []string
}

// Style says how to render. The zero Style renders English, times in UTC, and
// redacts nothing.
type Style struct {
	Language string
	Zone     *time.Location // nil: UTC, and each time says so
	Foot     string         // end of the last line of a card: "log 1042 9f3c"
	Redact   Redactor       // nil: nothing is secret
	Local    bool           // the card stays on this host: it shows what no mask may hide
	Reveal   bool           // with Local: shows masked secrets, too; audited before
	Buttons  bool           // the choices are buttons: their names stand for the codes
	// Paused returns the pause of a workspace, nil if it is not paused. A nil
	// func means that no workspace is paused.
	Paused func(workspace string) *Pause
	// Earlier looks up the request that p resubmits, nil if no request has that
	// id. It does not check the client. A nil func finds none.
	Earlier func(p *approval.Pending) *EarlierRequest
}

// Card is a pending request as an approver sees it, line by line and in this order. Why
// is not a part of its text: channels show it when they are asked.
type Card struct {
	Question string   // "🔐 May I post?"
	Object   string   // what it is about, and its size; "" if Question has it
	Meta     string   // how far it can be undone, and its class; "" if Question or Object has it
	Warnings []string // a pause, and what is not what it looks like
	Evidence []Known  // evidence: never the agent's claim
	Runs     []Line   // everything that would run
	Changes  []string // differences from the request that it resubmits, see Style.Earlier
	Prose    []string // the agent's text, and an unverified proof
	Blocked  string   // why it cannot be approved here, and where it can; "" if it can
	Menu     []string // the possible replies; of a settled request its outcome
	Typed    string   // the commands to type
	Foot     string   // the workspace, the tool, the deadline
	Why      []string // why a person is asked, which codes are not possible, and what "always" would have allowed

	messages *messages
}

// From how many approvals of the same kind a card has the medium or short form.
const (
	mediumFrom = 3
	shortFrom  = 8
)

type renderer struct {
	Style
	*messages
	p         *approval.Pending
	anySecret bool      // the text is nothing that a person consents to: see Redactor.Secrets
	held      *[]string // collects the kinds of withheld secrets, if not nil
	suspects  []string  // the domain names of which the warnings say what is unusual
	step      bool      // p is a step of a program
	opaque    []string  // its arguments whose values are not known yet
	arrow     string    // in place of " -> " in the operator's summary; "": that
}

func (s Style) renderer(p *approval.Pending) renderer {
	if s.Redact != nil {
		s.Redact = s.Redact.For(flat(p))
	}
	return renderer{Style: s, messages: catalog(s.Language), p: p}
}

// Card renders p in full. Card.Text cuts it.
func (s Style) Card(p *approval.Pending) Card {
	r := s.renderer(p)
	unusual := r.unusualNames()
	r.suspects = unusual[:min(len(unusual), maxFlagged)]
	runs, withheld := r.runs()
	c := Card{
		Warnings: r.warnings(len(unusual)), Evidence: r.evidence(), Runs: runs, Changes: s.changes(p),
		Prose: slices.Concat(r.prose(), r.claims(), r.shortSource()), Blocked: r.blocked(withheld), Foot: r.foot(), Why: r.why(), messages: r.messages,
	}
	if p.Type == approval.TypeQuestion {
		c.Question, c.Meta, c.Menu = r.questionLine(), r.OnlyAnswer, r.options()
		c.Typed = Format(r.TypedQuestion, "id", Escape(p.ShortID))
		return c
	}
	c.Question, c.Object, c.Meta = r.headline()
	c.Menu = r.menu(c.Blocked != "")
	c.Typed = Format(r.TypedAction, "id", Escape(p.ShortID))
	if c.Blocked != "" {
		c.Typed = Format(r.TypedQuestion, "id", Escape(p.ShortID))
	}
	return c
}

// headline is the question, the object and the meta line: three lines, two in the medium
// form, one in the short form.
func (r renderer) headline() (question, object, meta string) {
	switch n := r.p.RecurrenceCount; {
	case n >= shortFrom && r.p.ToolName != "":
		return sign + upperFirst(r.act(r.object())) + " [" + r.meta() + "]", "", ""
	case n >= mediumFrom:
		return sign + r.question() + " (" + r.meta() + ")", r.object(), ""
	}
	return sign + r.question(), r.object(), r.meta()
}

// sign begins every card.
const sign = "🔐 "

// warnings are the lines of what an approver must notice. unusual is the number of
// unusual domain names.
func (r renderer) warnings(unusual int) (lines []string) {
	if line := r.PauseLine(r.p.SourceGroup, r.p.Timestamp); line != "" {
		lines = append(lines, line)
	}
	if r.p.Type != approval.TypeQuestion && r.p.ToolName != "" && r.p.ToolSHA256 == "" {
		lines = append(lines, r.UnknownTool)
	}
	if x := r.p.Ruling.Reason("changes_asking"); !x.IsZero() {
		lines = append(lines, "⚠ "+r.reason(x))
	}
	if names := slices.Clone(r.p.ArgsSubset); len(names) > 0 {
		for i, name := range names {
			names[i] = r.shortName(name)
		}
		lines = append(lines, Format(r.AnyPartOf, "names", strings.Join(names, ", ")))
	}
	return slices.Concat(lines, r.planWarnings(), r.nameWarnings(unusual), r.lifted(), r.notAddresses(), r.flags())
}

// blocked says why the card cannot be approved here, and where it can. withheld are the
// kinds of the secrets because of which something that would run is not shown.
func (r renderer) blocked(withheld []string) string {
	if r.Local || r.Redact == nil || r.p.Type == approval.TypeQuestion {
		return ""
	}
	kinds := append(slices.Clone(r.Redact.Unmaskable()), withheld...)
	for i, k := range kinds {
		kinds[i] = r.secretKind(k)
	}
	if len(kinds) == 0 {
		return ""
	}
	slices.Sort(kinds)
	return Format(r.Blocked, "kinds", strings.Join(slices.Compact(kinds), ", "), "id", Escape(r.p.ShortID))
}

// menu lists the possible codes.
func (r renderer) menu(blocked bool) []string {
	lines := []string{r.choices(!blocked, r.p.Editable != "")}
	for _, c := range []struct {
		code  string
		scope approval.Scope
	}{{"2", approval.Session}, {"6", approval.Always}} {
		if offer := r.offer(c.scope); offer != "" && !blocked {
			lines = append(lines, c.code+" "+offer)
		}
	}
	return lines
}

// choices are the codes that need no sentence.
func (w *messages) choices(approve, edit bool) string {
	var parts []string
	for _, c := range []struct {
		possible bool
		text     string
	}{
		{approve, w.Choices.Once},
		{true, w.Choices.Deny},
		{approve, w.Choices.Note},
		{true, w.Choices.Change},
		{edit, w.Choices.Edit},
		{true, w.Choices.Ask},
	} {
		if c.possible {
			parts = append(parts, c.text)
		}
	}
	return strings.Join(parts, " · ")
}

// ListsCodes reports whether a line of the menu only lists codes, so that it says nothing that decides.
func (c Card) ListsCodes(line string) bool {
	return c.messages != nil && slices.Contains(c.messages.allChoices(), line)
}

// Menus lists the lines of all the menus that cards may have, in a language, but for the
// sentences of grants.
func Menus(language string) (lines []string) {
	w := catalog(language)
	return append(w.allChoices(), w.MenuOptions, w.MenuFree)
}

// allChoices are the lines that choices can be.
func (w *messages) allChoices() []string {
	return []string{w.choices(true, false), w.choices(false, false), w.choices(true, true), w.choices(false, true)}
}

// Remembers lists how the lines of the menu begin that say what would be remembered, in a
// language.
func Remembers(language string) (begins []string) {
	w := catalog(language)
	for _, c := range []struct{ code, form string }{{"2", w.Grants.Session}, {"6", w.Grants.Always}} {
		begin, _, _ := strings.Cut(c.form, "{what}")
		begins = append(begins, c.code+" "+strings.TrimSpace(begin))
	}
	return begins
}

// foot is one line about where the request comes from and how long it waits.
func (r renderer) foot() string {
	parts := []string{r.text(r.p.SourceGroup)}
	if r.p.Type != approval.TypeQuestion {
		parts = append(parts, r.tool())
	}
	parts = append(parts, Format(r.Until, "time", r.until()))
	if r.Foot != "" {
		parts = append(parts, r.Foot)
	}
	return strings.Join(parts, " · ")
}

func (r renderer) tool() string {
	if r.p.ToolName == "" {
		return r.text(r.p.ActionType)
	}
	if r.p.ToolSHA256 != "" {
		return Escape(r.p.ToolName) // the operator's
	}
	return r.text(r.p.ToolName)
}

// verb says what would be done: the operator's text in this language, else in
// English, else the tool's name. The text may contain {fields}.
func (r renderer) verb() (verb string, native bool) {
	lang := Language(r.Language)
	if v := cmp.Or(r.p.Verb[lang], r.p.Verb["en"]); v != "" {
		return r.text(facts.Expand(v, r.p.RequestData)), r.p.Verb[lang] != ""
	}
	if r.p.ToolName == "" {
		return r.tool(), true
	}
	return Format(r.Run, "tool", r.tool()), true
}

func (r renderer) question() string {
	if r.p.ToolName == "" {
		return r.wants()
	}
	v, native := r.verb()
	if !native {
		return Format(r.MayIUntranslated, "verb", v)
	}
	return Format(r.MayI, "verb", v)
}

// wants asks whether the agent may act itself.
func (r renderer) wants() string { return cmp.Or(r.Wants[r.p.ActionType], r.Wants["custom"]) }

// act is the verb and an object. A verb is in the form that follows "May I" or
// "Vuoi che", so the Italian sentence has to quote the question.
func (r renderer) act(object string) string {
	v, native := r.verb()
	if !native {
		return Format(r.ActUntranslated, "verb", v, "object", object)
	}
	return Format(r.Act, "verb", v, "object", object)
}

// object is the summary and the size: of the object, if the tool declares it, else of the
// arguments.
func (r renderer) object() string {
	if r.p.Plan != nil {
		return r.effects()
	}
	n := int64(r.size())
	if r.p.ObjectSize != nil {
		n = *r.p.ObjectSize
	}
	return r.summary() + " (~" + strconv.FormatInt(n, 10) + " B)"
}

// summary is the operator's, or of a release-only request the agent's own words, which
// are labeled. It is cut: what runs stands below in full.
func (r renderer) summary() string {
	if s := cmp.Or(r.p.Agent.Preview, r.p.Agent.Title); s != "" && r.p.ToolName == "" {
		return Format(r.AgentWords, "text", r.quoteShort(s))
	}
	if s := r.summaryText(maxSummary); s != "" {
		return s
	}
	return cmp.Or(r.command(), r.argumentsInShort(), r.tool())
}

// command is the command of a release-only exec_cmd: its words as in the payload.
func (r renderer) command() string {
	if r.p.ToolName != "" || r.p.ActionType != "exec_cmd" {
		return ""
	}
	fields, err := codec.Fields(r.p.RequestData)
	if err != nil {
		return ""
	}
	var lines []string
	for _, f := range fields {
		if f.Name != "argv" && f.Name != "command" && f.Name != "cmd" {
			continue
		}
		if s, ok := f.Text(); ok {
			lines = append(lines, r.quoteShort(s))
		} else {
			lines = append(lines, r.argv(f.Value))
		}
	}
	if len(lines) != 1 {
		return "" // it is unclear which of them would run
	}
	return lines[0]
}

func (r renderer) argv(v approval.Raw) string {
	items, err := codec.Items(v)
	if err != nil {
		return r.value(v)
	}
	words := make([]string, len(items))
	for i, it := range items {
		s, ok := codec.Field{Value: it}.Text()
		if !ok {
			return r.value(v)
		}
		words[i] = r.plainOrQuote(s)
	}
	return "$ " + strings.Join(words, " ")
}

func (r renderer) size() int {
	fields, err := codec.Fields(r.p.RequestData)
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
	if r.p.Plan != nil {
		return r.reversibility() + " | " + r.callCount()
	}
	if r.p.ToolName == "" {
		return r.reversibility() + " | " + r.Claimed
	}
	class := r.Unknown
	if r.p.Capability != "" {
		class = r.text(r.p.Capability)
	}
	if r.p.Target != "" {
		class += ":" + r.target()
	}
	m := r.reversibility() + " | " + r.Class + ": " + class
	switch r.p.Territory {
	case "", "none":
		return m
	case "session":
		return m + " " + r.Session
	case "permanent":
		return m + " " + r.Permanent
	}
	return m + " " + Format(r.Other, "territory", r.text(r.p.Territory))
}

// target is the target. A list of texts, the value of an argument, is shown as texts; the
// argument itself has all of them.
func (r renderer) target() string {
	texts, list, ok := textsOf(approval.Raw(r.p.Target))
	if !ok || !list || len(texts) == 0 || len(r.secrets(r.p.Target)) > 0 {
		return r.plainOrQuote(r.p.Target)
	}
	var shown []string
	for _, s := range texts[:min(len(texts), maxTargets)] {
		shown = append(shown, r.plainOrQuote(s))
	}
	if more := len(texts) - maxTargets; more > 0 {
		shown = append(shown, Format(r.Evidence.More, "n", strconv.Itoa(more)))
	}
	return strings.Join(shown, ", ")
}

// maxTargets is how many values of a target that is a list are shown.
const maxTargets = 3

func (r renderer) reversibility() string {
	switch r.p.Reversibility {
	case approval.Reversible:
		return r.Reversible
	case approval.Partial:
		return r.Partial
	}
	return r.Irreversible
}

// flags warns of text that is not what it looks like.
func (r renderer) flags() []string {
	p := r.p
	texts := append([]string{p.Summary, stringsIn(flat(p).RequestData), stringsIn(p.Proof), stringsIn(p.Metadata), p.Agent.Title, p.Agent.Preview, p.Agent.Rationale}, p.Options...)
	for _, v := range p.Verb {
		texts = append(texts, v)
	}
	newline := func(*hidden, string) string { return "\n" }
	for i, t := range texts {
		texts[i] = r.replaceSecrets(t, newline)
	}
	all := strings.Join(texts, "\n")
	words := mixedWords(r.replaceSecrets(p.Target, newline), ".-@")
	for _, w := range mixedWords(all, "") {
		if !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	words = slices.DeleteFunc(words, r.isInSuspect)
	var flags []string
	if len(words) > 0 {
		flags = append(flags, Format(r.Mixed, "words", strings.Join(words[:min(len(words), maxFlagged)], ", ")))
	}
	if rightToLeft(p.Target) || rightToLeft(all) {
		flags = append(flags, r.Rtl)
	}
	return flags
}

func (r renderer) labeled(name string, lines []string) []string {
	if len(lines) == 1 {
		return []string{name + " " + lines[0]}
	}
	out := []string{name}
	for _, l := range lines {
		out = append(out, withBar(l))
	}
	return out
}

func (r renderer) name(s string) string {
	plain := func(c rune) bool {
		return c == '_' || c == '-' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	ours := isOwnLabel(LowerASCII(s))
	switch kind := r.withheld(s); {
	case kind != "":
		return r.maskText(&hidden{Span: Span{Kind: kind}, withheld: true}, s)
	case s == "" || ours || strings.ContainsFunc(s, func(c rune) bool { return !plain(c) }):
		return Quote(s) // a name is never masked
	}
	return s
}

// prose renders the agent's text: one line in quotation marks, several as a block.
func (r renderer) prose() []string {
	var lines []string
	title, preview := r.p.Agent.Title, r.p.Agent.Preview
	switch {
	case r.p.Type == approval.TypeQuestion:
		title = "" // shown as the question
	case r.p.ToolName != "" || r.p.Plan != nil:
	case clip(preview, maxValue) == preview && preview != "":
		preview = "" // shown as the object
	case preview == "" && clip(title, maxValue) == title:
		title = ""
	}
	for _, part := range []struct{ label, text string }{
		{r.Subagent, r.p.Subagent}, {r.Title, title}, {r.Preview, preview}, {r.Says, r.p.Agent.Rationale},
	} {
		switch {
		case part.text == "":
		case strings.Contains(part.text, "\n"):
			lines = append(lines, r.labeled(part.label+":", r.redact(part.text, inLine))...)
		default:
			lines = append(lines, part.label+": "+r.quote(part.text))
		}
	}
	if r.Local && len(r.p.Metadata) > 0 { // elsewhere it would be in the way: it runs nowhere
		lines = append(lines, r.Metadata+": "+r.value(r.p.Metadata))
	}
	return lines
}

func (r renderer) questionLine() string {
	return sign + Format(r.AgentAsks, "title", r.quote(r.p.Agent.Title))
}

func (r renderer) options() []string {
	if len(r.p.Options) == 0 {
		return []string{r.MenuFree}
	}
	var lines []string
	for i, o := range r.p.Options {
		lines = append(lines, strconv.Itoa(i+1)+" "+r.quote(o))
	}
	return append(lines, r.MenuOptions)
}

func (r renderer) until() string {
	return r.clock(r.p.ExpiresAt, r.p.Timestamp)
}

// clock formats t with its zone, and with its date if that is not the day of other.
func (s Style) clock(t, other time.Time) string {
	zone := cmp.Or(s.Zone, time.UTC)
	t, other = t.In(zone), other.In(zone)
	name, _ := t.Zone()
	if strings.HasPrefix(name, "+") || strings.HasPrefix(name, "-") {
		name = "UTC" + name // this zone has no other name
	}
	if t.YearDay() != other.YearDay() || t.Year() != other.Year() {
		return t.Format("2006-01-02 15:04 ") + name
	}
	return t.Format("15:04 ") + name
}

// text renders s on one line, escaped and redacted.
func (r renderer) text(s string) string {
	return strings.Join(r.redact(s, inLine), `\n`)
}

func (r renderer) quote(s string) string {
	return `"` + strings.Join(r.redact(s, inQuote), "") + `"`
}

// value renders a JSON value. Each string is decoded before the search for
// secrets, because an escape inside could hide one.
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
		if strings.HasPrefix(text[end:], ":") && r.withheld(s) == "" {
			b.WriteString(r.redact(text[at:start], inJSON)[0] + escape(text[start:end], inJSON)) // a name is never masked
			found, at = true, end
			continue
		}
		spans := r.secrets(s)
		if len(spans) == 0 {
			continue
		}
		found = true
		b.WriteString(r.redact(text[at:start], inJSON)[0] + `"` + strings.Join(r.maskSpans(s, spans, inQuote), "") + `"`)
		at = end
	}
	if !found {
		return r.redact(text, inJSON)[0]
	}
	return b.String() + r.redact(text[at:], inJSON)[0]
}

// compact removes the white space between the tokens of a JSON value and changes
// no token.
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
