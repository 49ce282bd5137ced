package secrets

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// Span marks a secret: bytes Start to End of a text.
type Span struct {
	Start, End int
	Kind       string // the rule's ID
}

// Redactor finds the secrets of one request: those that a card may mask, those that no
// mask may hide, and, for texts that no person consents to, any part of one.
type Redactor struct {
	scanner *Scanner
	tokens  map[string][]Span // by value: what may be masked in it
	values  map[string]bool   // what was searched as a value of request_data, and as another text
	secrets map[string]string // texts that are secrets, or parts of one, with the kind
	held    map[string]string // values with a secret that no mask may hide, with the kind
	blocked []string          // kinds of such secrets in what would run, sorted
}

// minPart is the length from which a part of a split secret is hidden everywhere. A
// shorter part is hidden only if it is the complete text.
const minPart = 4

// Independent finds secrets without knowing a request.
func (s *Scanner) Independent() *Redactor {
	return &Redactor{
		scanner: s, tokens: map[string][]Span{}, values: map[string]bool{},
		secrets: map[string]string{}, held: map[string]string{},
	}
}

// Redactor makes the Redactor of one request. It searches it, masks what may be masked
// and searches what is left: what it finds then is a secret that no mask may hide.
func (s *Scanner) Redactor(p *approval.Pending) *Redactor {
	leaves := cardLeaves(p)
	key := digestOf(leaves)
	if r := s.recent.get(key); r != nil {
		return r
	}
	r := s.redactor(leaves)
	s.recent.add(key, r)
	return r
}

func (s *Scanner) redactor(leaves []leaf) *Redactor {
	r := s.Independent()
	found := map[int]bool{}
	s.scan(leaves, func(m match) {
		for _, l := range m.leaves {
			found[l] = true
		}
	})
	fixed := ""
	if len(found) > 0 {
		fixed = fixedTexts(leaves)
	}
	everywhere := map[string][]token{} // by text: what may be masked wherever it stands
	for i := range leaves {
		if l := &leaves[i]; found[i] {
			all, known := everywhere[l.shown]
			everywhere[l.shown] = common(all, known, r.tokensIn(l, fixed))
		}
	}
	for i := range leaves {
		if found[i] {
			r.mask(&leaves[i], everywhere[leaves[i].shown])
		}
		r.values[leaves[i].shown] = r.values[leaves[i].shown] || leaves[i].depth > 0
	}
	if len(found) > 0 {
		r.holdRest(leaves)
	}
	return r
}

// holdRest withholds the values with a secret that is left after masking.
func (r *Redactor) holdRest(leaves []leaf) {
	r.holdRepeated(leaves)
	r.scanner.scan(leaves, func(m match) {
		for _, l := range m.leaves {
			r.hold(&leaves[l], m)
		}
	})
}

// holdRepeated withholds the values that show a token which is masked elsewhere.
func (r *Redactor) holdRepeated(leaves []leaf) {
	for _, secret := range slices.Sorted(maps.Keys(r.secrets)) {
		for i := range leaves {
			if strings.Contains(leaves[i].text, secret) {
				r.hold(&leaves[i], match{kind: r.secrets[secret], text: secret, plain: true})
			}
		}
	}
}

// tokensIn are the tokens of a value that may be masked there.
func (r *Redactor) tokensIn(l *leaf, fixed string) []token {
	return slices.DeleteFunc(r.scanner.tokensOf(l), func(t token) bool {
		return t.named && strings.Contains(fixed, l.shown[t.Start:t.End]) // it would be shown there
	})
}

// common are the tokens of both, or of b if there is no a.
func common(a []token, known bool, b []token) []token {
	if !known {
		return b
	}
	return slices.DeleteFunc(a, func(t token) bool { return !slices.Contains(b, t) })
}

// mask records which tokens of a value are masked and takes them out of its text.
func (r *Redactor) mask(l *leaf, spans []token) {
	if len(spans) == 0 {
		return
	}
	var rest strings.Builder
	at := 0
	for _, t := range spans[:min(len(spans), max(0, maxTokens-len(r.secrets)))] {
		r.secrets[l.shown[t.Start:t.End]] = t.Kind
		r.tokens[l.shown] = append(r.tokens[l.shown], t.Span)
		rest.WriteString(l.shown[at:t.Start] + masked)
		at = t.End
	}
	r.tokens[l.shown] = merged(r.tokens[l.shown])
	l.text = clean(rest.String() + l.shown[at:])
}

// maxTokens bounds the masks of a request. More secrets are not masked.
const maxTokens = 256

// masked stands for a token in the text that is searched. No rule matches it.
const masked = "‹›"

// hold records a value with a secret that is left after masking.
func (r *Redactor) hold(l *leaf, m match) {
	r.held[l.shown] = m.kind
	if at, known := slices.BinarySearch(r.blocked, m.kind); !known && !l.prose {
		r.blocked = slices.Insert(r.blocked, at, m.kind)
	}
	if m.plain && strings.Contains(l.shown, m.text) {
		r.secrets[m.text] = m.kind
	} else {
		r.secrets[l.shown] = m.kind
	}
}

// Tokens finds the secrets in a value that a mask may hide. Each is one bounded token.
// In a text that is no value of the request, only those count that need no name.
func (r *Redactor) Tokens(text string) []Span {
	if _, known := r.values[text]; known {
		return slices.Clone(r.tokens[text])
	}
	var spans []Span
	for _, t := range r.scanner.tokensOf(&leaf{shown: text, mask: maskText}) {
		if !t.named {
			spans = append(spans, t.Span)
		}
	}
	return spans
}

// Withheld is the kind of a secret in a value that no mask may hide, "" if there is none.
// It also finds a part of a secret that spans values.
func (r *Redactor) Withheld(value string) string {
	if kind := r.held[value]; kind != "" || r.values[value] {
		return kind
	}
	if kind := r.part(value); kind != "" {
		return kind
	}
	if _, known := r.values[value]; known {
		return ""
	}
	l := newLeaf("text", value)
	l.mask = maskText
	r.scanner.Independent().mask(&l, r.tokensIn(&l, value)) // what needs a name is not masked
	kind := ""
	r.scanner.scan([]leaf{l}, func(m match) { kind = cmp.Or(kind, m.kind) })
	return kind
}

// part is the kind of a secret of which text holds a part, "" if there is none.
func (r *Redactor) part(text string) string {
	kinds := map[string]bool{}
	for hide, kind := range r.held {
		if len(hide) >= minPart && strings.Contains(text, hide) {
			kinds[kind] = true
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	return slices.Min(slices.Collect(maps.Keys(kinds)))
}

// Unmaskable lists the kinds of secrets in what would run that no mask may hide.
func (r *Redactor) Unmaskable() []string { return slices.Clone(r.blocked) }

// Spans finds what to hide in a text that no person consents to: an outcome, a result, a
// line of the log. If a secret is disguised, the span is the complete text.
func (r *Redactor) Spans(text string) []Span {
	var spans []Span
	for hide, kind := range r.secrets {
		if hide == "" || len(hide) < minPart && hide != text {
			continue
		}
		for at := 0; ; {
			i := strings.Index(text[at:], hide)
			if i < 0 {
				break
			}
			spans = append(spans, Span{at + i, at + i + len(hide), kind})
			at += i + len(hide)
		}
	}
	r.scanner.search(text, func(rule *rule, p place) {
		if rule.ID == iban {
			return
		}
		spans = append(spans, Span{p.start, p.end, rule.ID})
	})
	if len(spans) > 0 {
		return spans
	}
	r.scanner.scan([]leaf{newLeaf("text", text)}, func(m match) {
		spans = []Span{{0, len(text), m.kind}}
	})
	return spans
}

// merged sorts spans and drops those that another one covers.
func merged(spans []Span) (all []Span) {
	slices.SortFunc(spans, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End), cmp.Compare(a.Kind, b.Kind))
	})
	for _, sp := range spans {
		if len(all) == 0 || sp.Start >= all[len(all)-1].End {
			all = append(all, sp)
		}
	}
	return all
}
