// Package hints adds to an error what the operator can do about it.
package hints

import (
	"fmt"
	"slices"
	"strings"
)

// hinted is an error with advice. Packages that may not import this one declare their
// own type with a method Hint.
type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }
func (h *hinted) Hint() string  { return h.hint }

// Add adds advice to an error: what the operator can do. The text of the error
// stays the same; [Of] returns the advice.
func Add(err error, hint string) error {
	if err == nil || hint == "" {
		return err
	}
	return &hinted{err, hint}
}

// Of returns the advice of an error, by its method Hint or that of the errors that it
// wraps. The outermost advice counts; that of joined errors is separated by "; ".
func Of(err error) string {
	if h, ok := err.(interface{ Hint() string }); ok && h.Hint() != "" {
		return h.Hint()
	}
	var all []string
	for _, e := range unwrap(err) {
		if hint := Of(e); hint != "" && !slices.Contains(all, hint) {
			all = append(all, hint)
		}
	}
	return strings.Join(all, "; ")
}

// Split splits an error as [errors.Join] returns it, also below wrappers that add no
// text. An error that is not joined, or that has advice for the whole, is the only one.
func Split(err error) []error {
	if err == nil {
		return nil
	}
	inner := unwrap(err)
	if h, ok := err.(interface{ Hint() string }); ok && h.Hint() != "" || len(inner) == 0 {
		return []error{err}
	}
	var texts []string
	var all []error
	for _, e := range inner {
		texts = append(texts, e.Error())
		all = append(all, Split(e)...)
	}
	if len(all) == 1 || strings.Join(texts, "\n") != err.Error() {
		return []error{err}
	}
	return all
}

func unwrap(err error) []error {
	switch x := err.(type) { //nolint:errorlint // it walks the tree itself
	case interface{ Unwrap() []error }:
		return slices.DeleteFunc(slices.Clone(x.Unwrap()), func(e error) bool { return e == nil })
	case interface{ Unwrap() error }:
		if inner := x.Unwrap(); inner != nil {
			return []error{inner}
		}
	}
	return nil
}

// Plural counts things for a message: 1 file, 2 entries.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %s", n, many(what))
}

// Span names a range of numbers for a message: entry 5, entries 5 to 7.
func Span(what string, from, to int64) string {
	if from == to {
		return fmt.Sprintf("%s %d", what, from)
	}
	return fmt.Sprintf("%s %d to %d", many(what), from, to)
}

func many(what string) string {
	if y, ok := strings.CutSuffix(what, "y"); ok {
		return y + "ies"
	}
	return what + "s"
}
