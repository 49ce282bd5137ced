package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/hints"
)

const maxPrintedIssues = 20

// Issue is one mistake in a file. It quotes only keys, names, and words that are
// similar to known ones.
type Issue struct {
	Line    int    `json:"line"`   // from 1; 0: the complete file
	Col     int    `json:"column"` // from 1, in bytes
	Key     string `json:"key"`    // as a dotted path; "": none
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

// Format is the issue as an error of one line, with its hint for [hints.Of].
func (p Issue) Format(file string) error {
	var b strings.Builder
	b.WriteString(file)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Col)
	}
	b.WriteString(": " + p.Message)
	return hints.Add(errors.New(b.String()), p.Hint)
}

// Error has all issues of one file, in the order of its lines.
type Error struct {
	File   string
	Errors []Issue
	cause  error
}

// Error formats the first twenty issues, without their hints.
func (e *Error) Error() string {
	var lines []string
	for _, err := range e.Unwrap() {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the first twenty issues, each with its hint.
func (e *Error) Unwrap() (issues []error) {
	for i, p := range e.Errors {
		if i == maxPrintedIssues {
			return append(issues, fmt.Errorf("%s: %d more", e.File, len(e.Errors)-i))
		}
		issues = append(issues, p.Format(e.File))
	}
	return issues
}

// Is reports whether the system's error, if the file could not be read, is target.
func (e *Error) Is(target error) bool { return errors.Is(e.cause, target) }

func sortIssues(ps []Issue) {
	slices.SortStableFunc(ps, func(a, b Issue) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}

// quote formats a key or name in ASCII, and cuts a long one.
func quote(s string) string {
	if r := []rune(s); len(r) > 64 {
		s = string(r[:64]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// visible escapes and cuts foreign text for printing.
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

// list joins words: "a, b or c".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// didYouMean returns a hint for s, or the fallback.
func didYouMean(s string, known []string, fallback string) string {
	if n := facts.Nearest(s, known); n != "" {
		return "did you mean " + quote(n) + "?"
	}
	return fallback
}
