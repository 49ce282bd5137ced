package chat

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// hidden is a part of a text that a card does not show. A withheld one is the complete
// text, with a secret that no mask may hide.
type hidden struct {
	Span
	withheld bool
	instead  string // the gate's own text that stands there; "": a mask
}

// redact escapes s and masks the tokens in it that are secrets. In mode inLine it splits
// s at its line breaks. Otherwise there is one line.
func (r renderer) redact(s string, m mode) []string {
	return r.maskSpans(s, r.secrets(s), m)
}

func (r renderer) maskSpans(s string, secrets []hidden, m mode) []string {
	lines := []string{""}
	put := func(text string) {
		parts := []string{text}
		if m == inLine {
			parts = strings.Split(text, "\n")
		}
		for i, part := range parts {
			if i > 0 {
				lines = append(lines, "")
			}
			lines[len(lines)-1] += escape(part, m)
		}
	}
	for piece, secret := range pieces(s, secrets) {
		if secret == nil {
			put(piece)
		} else {
			lines[len(lines)-1] += r.maskText(secret, piece)
		}
	}
	return lines
}

// pieces yields s in pieces, each with the secret that it is, nil if it is none.
// Overlapping secrets are masked together.
func pieces(s string, secrets []hidden) iter.Seq2[string, *hidden] {
	return func(yield func(string, *hidden) bool) {
		at := 0
		for i, sp := range secrets {
			start, end := max(sp.Start, at), min(sp.End, len(s))
			if end <= start {
				continue
			}
			if !yield(s[at:start], nil) || !yield(s[start:end], &secrets[i]) {
				return
			}
			at = end
		}
		yield(s[at:], nil)
	}
}

// secrets are the parts of s that are not shown, sorted. If anySecret is set, no
// person consents to s: all secrets are masked. Otherwise only a token is masked, or s is withheld.
func (r renderer) secrets(s string) (all []hidden) {
	if r.Redact == nil || r.Reveal && r.Local {
		return nil
	}
	find := r.Redact.Tokens
	if r.anySecret {
		find = r.Redact.Secrets
	} else if kind := r.withheld(s); kind != "" {
		return []hidden{{Span: Span{0, len(s), kind}, withheld: true}}
	}
	for _, sp := range find(s) {
		all = append(all, hidden{Span: sp})
	}
	slices.SortFunc(all, func(a, b hidden) int { return a.Start - b.Start })
	return all
}

// withheld is the kind of the secret because of which s must not leave this host.
func (r renderer) withheld(s string) string {
	if r.Redact == nil || r.Local || s == "" {
		return ""
	}
	kind := r.Redact.Withheld(s)
	if kind != "" && r.held != nil {
		*r.held = append(*r.held, kind)
	}
	return kind
}

// replaceSecrets replaces each secret in s.
func (r renderer) replaceSecrets(s string, instead func(h *hidden, secret string) string) string {
	var b strings.Builder
	for piece, h := range pieces(s, r.secrets(s)) {
		if h != nil {
			piece = instead(h, piece)
		}
		b.WriteString(piece)
	}
	return b.String()
}

func (r renderer) maskText(h *hidden, secret string) string {
	if h.instead != "" {
		return h.instead
	}
	if h.withheld {
		return Format(r.WithheldPart, "kind", r.secretKind(h.Kind))
	}
	return Format(r.RedactedPart, "kind", r.secretKind(h.Kind), "n", strconv.Itoa(utf8.RuneCountInString(secret)))
}

// secretKind says a rule's ID in words.
func (w *messages) secretKind(id string) string {
	if words, known := w.SecretKinds[id]; known {
		return words
	}
	return Escape(strings.ReplaceAll(id, "-", " "))
}

// jsonStrings yields the positions of the strings in a JSON text, including
// quotation marks.
func jsonStrings(text string) iter.Seq2[int, int] {
	return func(yield func(start, end int) bool) {
		for i := 0; i < len(text); i++ {
			if text[i] != '"' {
				continue
			}
			start := i
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if !yield(start, min(i+1, len(text))) {
				return
			}
		}
	}
}
