package email

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// requireAnswer checks the properties of every answer.
func requireAnswer(t *testing.T, text, answer string, clear bool) {
	t.Helper()
	if !clear {
		return
	}
	require.NotEmpty(t, answer)
	require.True(t, utf8.ValidString(answer))
	require.NotContains(t, answer, lock)
	lines := map[string]bool{}
	for l := range strings.SplitSeq(text, "\n") {
		lines[normalize(l)] = true
	}
	for l := range strings.SplitSeq(answer, "\n") {
		require.False(t, isQuoted(strings.TrimSpace(visibleText(l))), "%q", l)
		require.NotEmpty(t, strings.TrimSpace(l))
		require.True(t, lines[normalize(l)], "%q is not in the text", l)
	}
}

func FuzzRead(f *testing.F) {
	for _, file := range ownReplies(f) {
		raw, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Add(nested(6))
	f.Add(withParts(21))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := readMail(raw)
		if err != nil {
			require.Nil(t, m)
			return
		}
		require.True(t, utf8.ValidString(m.Text))
		require.NotContains(t, m.Subject, "\n")
		require.LessOrEqual(t, len(m.Text), 64+16*len(raw))
		text, clear := m.Answer()
		if m.Doubt != "" || len(m.From) == 0 {
			require.False(t, clear)
		}
		requireAnswer(t, m.Text+"\n"+m.htmlText, text, clear)
		require.LessOrEqual(t, len(m.Refs(replySub)), maxRefs)
	})
}

// unmarked is a text without its quoted lines: after a quoted line right below an
// attribution, the text that follows may be new.
func unmarked(text string) string {
	var lines []string
	for l := range strings.SplitSeq(text, "\n") {
		if !isQuoted(strings.TrimLeft(visibleText(l), " ")) {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, "\n")
}

func FuzzAnswer(f *testing.F) {
	for i, file := range ownReplies(f) {
		raw, err := os.ReadFile(file)
		require.NoError(f, err)
		if m, err := readMail(raw); err == nil {
			f.Add(m.Text, uint8(i))
		}
	}
	card := mildCard("en")
	const on = "On Tue, 3 Jan 2026 at 10:00, Bob <bob@example.org> wrote:\n\n"
	const from = "From: Bob <bob@example.org>\nSent: Tuesday, 3 January 2026 10:00\nTo: Ann\nSubject: x\n\n"
	f.Fuzz(func(t *testing.T, text string, style uint8) {
		if len(text) > 2<<10 {
			return
		}
		text = newlines.Replace(text)
		got, clear := answer(text, style%2 == 0)
		requireAnswer(t, text, got, clear)

		marked := quoteAs("> ", text)
		styles := []string{marked, on + marked, on + unmarked(text), from + text, from + marked, card + "\n" + text, "-----Original Message-----\n" + text}
		style %= uint8(len(styles))
		old := styles[style]
		got, clear = answer(old, false)
		require.False(t, clear && decides(got), "quoted words decide: %q of %q", got, old)
		for _, code := range []string{"1", "4 keep it\nshort"} {
			got, clear := answer(code+"\n\n"+old, false)
			require.True(t, !clear || got == code, "%q of %q", got, old)
			require.True(t, clear || style > 1, "words behind marks make it unclear: %q", old)
		}
	})
}
