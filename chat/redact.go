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
	at := 0
	for _, sp := range secrets {
		// Overlapping secrets are masked together.
		start, end := max(sp.Start, at), min(sp.End, len(s))
		if end <= start {
			continue
		}
		put(s[at:start])
		lines[len(lines)-1] += r.maskText(sp.Kind, s[start:end])
		at = end
	}
	put(s[at:])
	return lines
}

func (r renderer) secrets(s string) []Span {
	if r.Redact == nil {
		return nil
	}
	spans := slices.Clone(r.Redact.Secrets(s))
	slices.SortFunc(spans, func(a, b Span) int { return a.Start - b.Start })
	return spans
}

// replaceSecrets replaces each secret in s.
func (r renderer) replaceSecrets(s string, instead func(kind, secret string) string) string {
	var b strings.Builder
	at := 0
	for _, sp := range r.secrets(s) {
		start, end := max(sp.Start, at), min(sp.End, len(s))
		if end <= start {
			continue
		}
		b.WriteString(s[at:start] + instead(sp.Kind, s[start:end]))
		at = end
	}
	return b.String() + s[at:]
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
