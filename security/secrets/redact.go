package secrets

import (
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// Span marks a secret: bytes Start to End of a text.
type Span struct {
	Start, End int
	Kind       string
}

// Spans finds the secrets in one text. A text that hides one in a disguise is
// marked whole.
func (s *Scanner) Spans(text string) []Span { return (&Redactor{scanner: s}).Spans(text) }

// Redactor finds what must not be shown of one request: also the halves of what
// was split over its fields.
type Redactor struct {
	scanner *Scanner
	whole   map[string]string // texts to hide entirely, with the kind
}

// minPart is the length from which a part of a split secret is hidden wherever
// it occurs; a shorter one only where it stands alone.
const minPart = 4

// Redactor is made for one request; options are what a question offers.
func (s *Scanner) Redactor(args approval.Raw, prose approval.Prose, options ...string) *Redactor {
	r := &Redactor{scanner: s, whole: map[string]string{}}
	leaves := leavesOf(args, prose)
	for _, o := range options {
		leaves = append(leaves, newLeaf("options", "", o))
	}
	_, hidden, plain := s.scan(leaves)
	for i, kind := range hidden {
		r.whole[leaves[i].shown] = kind
	}
	// What its name gave away is not recognised where it stands without.
	for text, kind := range plain {
		r.whole[text] = kind
	}
	return r
}

// Spans finds what to hide in a text that shows something of the request.
func (r *Redactor) Spans(text string) []Span {
	var spans []Span
	for hide, kind := range r.whole {
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
	r.scanner.search(text, func(rule *rule, start, end int) {
		spans = append(spans, Span{start, end, rule.ID})
	})
	if len(spans) > 0 {
		return spans
	}
	one := []leaf{newLeaf("text", "", text)}
	if _, hidden, _ := r.scanner.scan(one); len(hidden) > 0 {
		return []Span{{0, len(text), hidden[0]}}
	}
	return nil
}
