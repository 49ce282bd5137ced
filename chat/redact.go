package chat

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// redact escapes s and replaces its secrets by their kind and length. In mode
// inLine it splits s at its line breaks. Otherwise there is one line.
func (r renderer) redact(s string, m mode) []string {
	return r.maskSpans(s, r.secrets(s), m)
}

func (r renderer) maskSpans(s string, secrets []Span, m mode) []string {
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
			lines[len(lines)-1] += r.maskText(secret.Kind, piece)
		}
	}
	return lines
}

// pieces yields s in pieces, each with the secret that it is, nil if it is none.
// Overlapping secrets are masked together.
func pieces(s string, secrets []Span) iter.Seq2[string, *Span] {
	return func(yield func(string, *Span) bool) {
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

func (r renderer) secrets(s string) []Span {
	if r.Redact == nil || r.Reveal {
		return nil
	}
	spans := slices.Clone(r.Redact.Secrets(s))
	slices.SortFunc(spans, func(a, b Span) int { return a.Start - b.Start })
	return spans
}

// replaceSecrets replaces each secret in s.
func (r renderer) replaceSecrets(s string, instead func(kind, secret string) string) string {
	var b strings.Builder
	for piece, sp := range pieces(s, r.secrets(s)) {
		if sp != nil {
			piece = instead(sp.Kind, piece)
		}
		b.WriteString(piece)
	}
	return b.String()
}

func (r renderer) maskText(kind, secret string) string {
	return Format(r.RedactedPart, "kind", Escape(kind), "n", strconv.Itoa(utf8.RuneCountInString(secret)))
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
