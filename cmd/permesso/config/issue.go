package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// maxPrintedIssues is how many problems are printed; whoever has more is helped by
// the first ones.
const maxPrintedIssues = 20

// Problem is one thing wrong with a file. Its text quotes nothing but keys,
// names, and words that are nearly right.
type Issue struct {
	Line, Col int    // from 1, in bytes; 0: the file as a whole
	Key       string // as a dotted path, where there is one
	Message   string
	Hint      string
}

// In is the problem as one line and, where there is advice, a second one.
func (p Issue) In(file string) string {
	var b strings.Builder
	b.WriteString(file)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Col)
	}
	b.WriteString(": " + p.Message)
	if p.Hint != "" {
		b.WriteString("\nhint: " + p.Hint)
	}
	return b.String()
}

// Error is everything wrong with one file, in the order of its lines.
type Error struct {
	File   string
	Errors []Issue
	cause  error
}

// Error gives one or two lines to each problem, for the first twenty.
func (e *Error) Error() string {
	var lines []string
	for i, p := range e.Errors {
		if i == maxPrintedIssues {
			lines = append(lines, fmt.Sprintf("%s: %d more", e.File, len(e.Errors)-i))
			break
		}
		lines = append(lines, p.In(e.File))
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives what the system said of a file that could not be read.
func (e *Error) Unwrap() error { return e.cause }

func sortIssues(ps []Issue) {
	slices.SortStableFunc(ps, func(a, b Issue) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}

// quote shows a key or name: visible, and not longer than a line bears.
func quote(s string) string {
	if r := []rune(s); len(r) > 64 {
		s = string(r[:64]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// visible makes text that is not ours fit to be printed.
func visible(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case i >= 200:
			return b.String() + "..."
		case r == ' ' || r <= unicode.MaxASCII && unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return b.String()
}

// list is the words as a person would say them.
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
