package secrets

import (
	"maps"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// Span marks a secret: bytes Start to End of a text.
type Span struct {
	Start, End int
	Kind       string
}

// Spans finds the secrets in one text. If one is disguised, the span is the complete
// text.
func (s *Scanner) Spans(text string) []Span { return (&Redactor{scanner: s}).Spans(text) }

// Redactor finds the texts of one request that must not be shown, including parts of
// a secret that is split over its fields.
type Redactor struct {
	scanner     *Scanner
	hiddenTexts map[string]string // texts to hide entirely, with the kind
}

// minPart is the length from which a part of a split secret is hidden everywhere. A
// shorter part is hidden only if it is the complete text.
const minPart = 4

// Redactor makes the Redactor of one request. options are those of a question.
func (s *Scanner) Redactor(args approval.Raw, prose approval.Prose, options ...string) *Redactor {
	r := &Redactor{scanner: s, hiddenTexts: map[string]string{}}
	leaves := leavesOf(args, prose)
	for _, o := range options {
		leaves = append(leaves, newLeaf("options", "", o))
	}
	_, hidden, plain := s.scan(leaves)
	for i, kind := range hidden {
		r.hiddenTexts[leaves[i].shown] = kind
	}
	// A secret found by its field's name is not recognized without that name.
	maps.Copy(r.hiddenTexts, plain)
	return r
}

// Spans finds what to hide in a text that shows part of the request.
func (r *Redactor) Spans(text string) []Span {
	var spans []Span
	for hide, kind := range r.hiddenTexts {
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
