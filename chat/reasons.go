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

// maxReasons is how many reasons stand on a card; the rest is counted.
const maxReasons = 3

// sentence is one of policy's, as a pattern: what stands in braces there is
// captured. A ruling keeps its reasons in English, for the audit; here they are
// said in the reader's words.
type sentence struct {
	form  string
	x     *regexp.Regexp
	names []string
}

var hole = regexp.MustCompile(`\{[a-z]+\}`)

// sentences are the forms of both kinds that policy writes, those with more
// words of ours first. Most command lines show none, and none waits for them.
var sentences = sync.OnceValue(func() []sentence {
	var all []sentence
	for form := range english().reasons {
		s := sentence{form: form}
		var b strings.Builder
		at := 0
		for _, m := range hole.FindAllStringIndex(form, -1) {
			b.WriteString(regexp.QuoteMeta(form[at:m[0]]) + `(.*?)`)
			s.names = append(s.names, form[m[0]+1:m[1]-1])
			at = m[1]
		}
		s.x = regexp.MustCompile(`(?s)^` + b.String() + regexp.QuoteMeta(form[at:]) + `$`)
		all = append(all, s)
	}
	literal := func(s sentence) int { return len(hole.ReplaceAllString(s.form, "")) }
	slices.SortFunc(all, func(a, b sentence) int {
		return cmp.Or(cmp.Compare(literal(b), literal(a)), cmp.Compare(a.form, b.form))
	})
	return all
})

// reason says one of policy's sentences in the reader's language. What comes
// from elsewhere stands in quotation marks unless it is a plain word; what
// policy has not said to us stays as it was written.
func (r renderer) reason(s string) string {
	for _, f := range sentences() {
		m := f.x.FindStringSubmatch(s)
		if m == nil {
			continue
		}
		pairs := make([]string, 0, 2*len(f.names))
		for i, name := range f.names {
			pairs = append(pairs, name, r.part(name, m[i+1]))
		}
		return say(r.words.reasons[f.form], pairs...)
	}
	for _, o := range []string{"ask: ", "ask "} {
		if rest, ok := strings.CutPrefix(s, o); ok {
			s = rest
		}
	}
	return r.text(s)
}

func (r renderer) part(name, s string) string {
	switch name {
	case "words": // the operator's, of a rule
		return r.text(s)
	case "error": // it may name a key of an agent's
		return r.plainOrCited(s)
	}
	return r.plainOrQuoted(s)
}

// plainOrQuoted writes what stands between words of ours.
func (r renderer) plainOrQuoted(s string) string {
	t := r.text(s)
	if s == "" || strings.ContainsAny(t, " []()|\"\\␠;,") {
		return r.quote(s)
	}
	return t
}

// ownReasons are the reasons for the ruling's own outcome: why the other questions
// would have allowed it does not explain an ask.
func ownReasons(r approval.Ruling) []string {
	var mine, rest []string
	for _, s := range r.Reasons {
		word, _, _ := strings.Cut(s, " ")
		switch strings.TrimSuffix(word, ":") {
		case r.Outcome.String():
			mine = append(mine, s)
		case approval.Allow.String(), approval.Ask.String(), approval.Deny.String():
		default:
			rest = append(rest, s)
		}
	}
	if mine = append(mine, rest...); len(mine) == 0 {
		return r.Reasons
	}
	slices.SortStableFunc(mine, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return mine
}

// rank puts first what no consent lifts: a card must not count a secret among
// the rest.
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

func (r renderer) said(reasons []string) string {
	said := make([]string, len(reasons))
	for i, s := range reasons {
		said[i] = r.reason(s)
	}
	return strings.Join(said, "; ")
}

// whyAsked answers "why am I asked?", in one line; "" if nobody said why.
func (r renderer) whyAsked(most int) string {
	all := ownReasons(r.p.Ruling)
	if len(all) == 0 {
		return ""
	}
	line := r.said(all[:min(len(all), most)])
	if n := len(all) - most; n > 0 {
		line += say(r.moreReasons, "n", strconv.Itoa(n), "id", Escape(r.p.ShortID))
	}
	return line
}

// reasons are the lines that say why, and what would make it milder.
func (r renderer) reasons() []string {
	var lines []string
	if line := r.whyAsked(maxReasons); line != "" {
		lines = append(lines, r.why+": "+line)
	}
	if c := r.p.Ruling.Change; len(c) > 0 {
		lines = append(lines, r.instead+": "+r.said(c[:min(len(c), maxReasons)]))
	}
	return lines
}

// Why is every reason for which somebody is asked, and what would make the
// ruling milder, in the reader's words, for channels that have room for all.
func (s Style) Why(p *approval.Pending) (reasons, change []string) {
	r := s.renderer(p)
	for _, x := range ownReasons(p.Ruling) {
		reasons = append(reasons, r.reason(x))
	}
	for _, x := range p.Ruling.Change {
		change = append(change, r.reason(x))
	}
	return reasons, change
}

// menuNotes say why 2 and 6 are not possible for this request; the menu above
// never changes.
func (r renderer) menuNotes() []string {
	two, six := approval.NotGrantable(r.p, approval.Session), approval.NotGrantable(r.p, approval.Always)
	switch {
	case two == "" && six == "":
		return nil
	case two == six:
		return []string{say(r.notBoth, "why", r.reason(two))}
	}
	var lines []string
	for _, no := range []struct{ code, why string }{{"2", two}, {"6", six}} {
		if no.why != "" {
			lines = append(lines, say(r.notHere, "code", no.code, "why", r.reason(no.why)))
		}
	}
	return lines
}

const (
	maxExamples = 3
	maxExample  = 60 // characters of each
)

// history says what "always" would have let through.
func (r renderer) history() []string {
	if r.WouldAllow == nil || r.p.Type == approval.TypeQuestion || approval.NotGrantable(r.p, approval.Always) != "" {
		return nil
	}
	which, n, of := r.WouldAllow(r.p)
	switch {
	case of <= 0:
		return nil
	case n <= 0:
		return []string{say(r.allowsNone, "of", strconv.Itoa(of))}
	}
	line := say(r.wouldAllow, "n", strconv.Itoa(n), "of", strconv.Itoa(of))
	var examples []string
	for _, w := range which {
		e := r.example(w)
		if len(examples) < maxExamples && !slices.Contains(examples, e) {
			examples = append(examples, e)
		}
	}
	if len(examples) > 0 {
		line += say(r.amongThem, "examples", strings.Join(examples, ", "))
	}
	return []string{line}
}

// example is one line of history, cut; it may hold what an agent wrote.
func (r renderer) example(s string) string {
	if t := r.clipped(s, maxExample); !strings.ContainsAny(t, "[]()|\"\\␠;,·…") {
		return t
	}
	return `"` + r.clippedIn(s, maxExample, inQuote) + `"`
}
