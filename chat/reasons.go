package chat

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
)

// maxReasons is how many reasons a card shows. The rest is counted.
const maxReasons = 3

// reasonForm is a sentence of policy as a pattern that captures its placeholders.
// A ruling keeps its reasons in English for the audit. This file translates them.
type reasonForm struct {
	form  string
	x     *regexp.Regexp
	names []string
}

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// reasonForms are the forms that policy writes, those with the most literal text
// first. They are compiled on first use: most commands need none.
var reasonForms = sync.OnceValue(func() []reasonForm {
	var all []reasonForm
	for form := range catalog(defaultLanguage).Reasons {
		s := reasonForm{form: form}
		var b strings.Builder
		at := 0
		for _, m := range placeholder.FindAllStringIndex(form, -1) {
			b.WriteString(regexp.QuoteMeta(form[at:m[0]]) + `(.*?)`)
			s.names = append(s.names, form[m[0]+1:m[1]-1])
			at = m[1]
		}
		s.x = regexp.MustCompile(`(?s)^` + b.String() + regexp.QuoteMeta(form[at:]) + `$`)
		all = append(all, s)
	}
	literal := func(s reasonForm) int { return len(placeholder.ReplaceAllString(s.form, "")) }
	slices.SortFunc(all, func(a, b reasonForm) int {
		return cmp.Or(cmp.Compare(literal(b), literal(a)), cmp.Compare(a.form, b.form))
	})
	return all
})

// reason translates a sentence of policy. A filled-in value stands in quotation
// marks unless it is a plain word. An unknown sentence stays as it is.
func (r renderer) reason(s string) string {
	for _, f := range reasonForms() {
		m := f.x.FindStringSubmatch(s)
		if m == nil {
			continue
		}
		pairs := make([]string, 0, 2*len(f.names))
		for i, name := range f.names {
			pairs = append(pairs, name, r.reasonPart(name, m[i+1]))
		}
		return Format(r.Reasons[f.form], pairs...)
	}
	for _, o := range []string{"ask: ", "ask "} {
		if rest, ok := strings.CutPrefix(s, o); ok {
			s = rest
		}
	}
	return r.text(s)
}

func (r renderer) reasonPart(name, s string) string {
	switch name {
	case "words": // the operator's text of a rule
		return r.text(s)
	case "error": // it may contain a key that the agent chose
		return r.plainOrQuoteShort(s)
	}
	return r.plainOrQuote(s)
}

// plainOrQuote quotes s unless it is one word without punctuation of the gate.
func (r renderer) plainOrQuote(s string) string {
	t := r.text(s)
	if s == "" || strings.ContainsAny(t, " []()|\"\\␠;,") {
		return r.quote(s)
	}
	return t
}

// outcomeReasons returns the reasons for the ruling's own outcome. A reason to
// allow does not explain an ask.
func outcomeReasons(r approval.Ruling) []string {
	var cardFits, rest []string
	for _, s := range r.Reasons {
		word, _, _ := strings.Cut(s, " ")
		switch strings.TrimSuffix(word, ":") {
		case r.Outcome.String():
			cardFits = append(cardFits, s)
		case approval.Allow.String(), approval.Ask.String(), approval.Deny.String():
		default:
			rest = append(rest, s)
		}
	}
	if cardFits = append(cardFits, rest...); len(cardFits) == 0 {
		return r.Reasons
	}
	slices.SortStableFunc(cardFits, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return cardFits
}

// rank puts reasons first that no grant lifts, so that a card always shows them.
func rank(reason string) int {
	for _, f := range []string{" holds what looks like a secret (", "ask: its client has read ", "ask: more than ", "ask: with this "} {
		if strings.Contains(reason, f) {
			return 0
		}
	}
	if strings.HasPrefix(reason, "ask by rule ") {
		return 1
	}
	return 2
}

func (r renderer) joinReasons(reasons []string) string {
	texts := make([]string, len(reasons))
	for i, s := range reasons {
		texts[i] = r.reason(s)
	}
	return strings.Join(texts, "; ")
}

// whyAsked gives the reasons in one line, "" if the ruling has none.
func (r renderer) whyAsked(most int) string {
	all := outcomeReasons(r.p.Ruling)
	if len(all) == 0 {
		return ""
	}
	line := r.joinReasons(all[:min(len(all), most)])
	if n := len(all) - most; n > 0 {
		line += Format(r.MoreReasons, "n", strconv.Itoa(n), "id", Escape(r.p.ShortID))
	}
	return line
}

// reasons returns the lines that say why, and what would change the ruling.
func (r renderer) reasons() []string {
	var lines []string
	if line := r.whyAsked(maxReasons); line != "" {
		lines = append(lines, r.WhyLabel+": "+line)
	}
	if c := r.p.Ruling.Change; len(c) > 0 {
		lines = append(lines, r.ToChange+": "+r.joinReasons(c[:min(len(c), maxReasons)]))
	}
	return lines
}

// Why returns all reasons and what would change the ruling, translated, for
// channels without a length limit.
func (s Style) Why(p *approval.Pending) (reasons, change []string) {
	r := s.renderer(p)
	for _, x := range outcomeReasons(p.Ruling) {
		reasons = append(reasons, r.reason(x))
	}
	for _, x := range p.Ruling.Change {
		change = append(change, r.reason(x))
	}
	return reasons, change
}

// impossibleCodes says why 2 and 6 are not possible for this request. The menu
// itself never changes.
func (r renderer) impossibleCodes() []string {
	two, six := approval.NotGrantable(r.p, approval.Session), approval.NotGrantable(r.p, approval.Always)
	switch {
	case two == "" && six == "":
		return nil
	case two == six:
		return []string{Format(r.BothImpossible, "why", r.reason(two))}
	}
	var lines []string
	for _, no := range []struct{ code, why string }{{"2", two}, {"6", six}} {
		if no.why != "" {
			lines = append(lines, Format(r.CodeImpossible, "code", no.code, "why", r.reason(no.why)))
		}
	}
	return lines
}

const (
	maxExamples = 3
	maxExample  = 60 // characters of each
)

// history says which earlier requests "always" would have allowed.
func (r renderer) history() []string {
	if r.WouldAllow == nil || r.p.Type == approval.TypeQuestion || approval.NotGrantable(r.p, approval.Always) != "" {
		return nil
	}
	which, n, of := r.WouldAllow(r.p)
	switch {
	case of <= 0:
		return nil
	case n <= 0:
		return []string{Format(r.AllowsNone, "of", strconv.Itoa(of))}
	}
	line := Format(r.WouldHaveAllowed, "n", strconv.Itoa(n), "of", strconv.Itoa(of))
	var examples []string
	for _, w := range which {
		e := r.example(w)
		if len(examples) < maxExamples && !slices.Contains(examples, e) {
			examples = append(examples, e)
		}
	}
	if len(examples) > 0 {
		line += Format(r.Examples, "examples", strings.Join(examples, ", "))
	}
	return []string{line}
}

// example clips one line of history, which may contain an agent's text.
func (r renderer) example(s string) string {
	if t := r.clipped(s, maxExample); !strings.ContainsAny(t, "[]()|\"\\␠;,·…") {
		return t
	}
	return `"` + r.clippedIn(s, maxExample, inQuote) + `"`
}
