package hints_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/hints"
)

// ownHint is a hint of a package that may not import approval.
type ownHint struct{ error }

func (ownHint) Hint() string { return "own" }

func TestHint(t *testing.T) {
	a, b := hints.Add(io.EOF, "read on"), hints.Add(io.ErrShortWrite, "write on")
	for _, tt := range []struct {
		why  string
		err  error
		want string
	}{
		{"no error", nil, ""},
		{"no hint", io.EOF, ""},
		{"an empty hint", hints.Add(io.EOF, ""), ""},
		{"its own", a, "read on"},
		{"wrapped", fmt.Errorf("load: %w", a), "read on"},
		{"by the method", fmt.Errorf("load: %w", ownHint{io.EOF}), "own"},
		{"the outer one counts", hints.Add(fmt.Errorf("load: %w", a), "load again"), "load again"},
		{"joined", fmt.Errorf("both: %w", errors.Join(a, io.EOF, b)), "read on; write on"},
		{"the same once", errors.Join(a, a), "read on"},
	} {
		t.Run(tt.why, func(t *testing.T) { require.Equal(t, tt.want, hints.Of(tt.err)) })
	}
	require.NoError(t, hints.Add(nil, "x"))
	require.EqualError(t, a, "EOF", "the text is without the hint")
	require.ErrorIs(t, a, io.EOF)
}

func TestNumbers(t *testing.T) {
	require.Equal(t, []string{"0 files", "1 file", "2 files", "1 entry", "3 entries"}, []string{
		hints.Plural(0, "file"), hints.Plural(1, "file"), hints.Plural(2, "file"), hints.Plural(1, "entry"), hints.Plural(3, "entry"),
	})
	require.Equal(t, []string{"entry 5", "entries 5 to 7", "number 1", "numbers 1 to 2"}, []string{
		hints.Span("entry", 5, 5), hints.Span("entry", 5, 7), hints.Span("number", 1, 1), hints.Span("number", 1, 2),
	})
}

func TestErrors(t *testing.T) {
	a, b := hints.Add(io.EOF, "read on"), errors.New("b")
	for _, tt := range []struct {
		why  string
		err  error
		want []error
	}{
		{"none", nil, nil},
		{"one", a, []error{a}},
		{"joined", errors.Join(a, b), []error{a, b}},
		{"joined twice", errors.Join(errors.Join(a, b), io.EOF), []error{a, b, io.EOF}},
	} {
		t.Run(tt.why, func(t *testing.T) { require.Equal(t, tt.want, hints.Split(tt.err)) })
	}
	for _, whole := range []error{
		fmt.Errorf("both: %w", errors.Join(a, b)), // the prefix belongs to the whole
		fmt.Errorf("%w: %w", a, b),
		hints.Add(errors.Join(a, b), "for both"),
		fmt.Errorf("load: %w", a),
	} {
		require.Equal(t, []error{whole}, hints.Split(whole))
	}
}
