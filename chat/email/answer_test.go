package email

import (
	"bytes"
	"encoding/json"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat"
)

// ownReplies lists our own fixtures. Each is an email in the style of some program. Its
// X-Answer field has the new text as a JSON string, or "unclear".
func ownReplies(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "mail", "replies", "*.eml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func TestOwnReplies(t *testing.T) {
	for _, file := range ownReplies(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			head, err := mail.ReadMessage(bytes.NewReader(raw))
			require.NoError(t, err)
			m, err := readMail(raw)
			require.NoError(t, err)
			text, clear := m.Answer()
			var want string
			if json.Unmarshal([]byte(head.Header.Get("X-Answer")), &want) != nil {
				require.Equal(t, "unclear", head.Header.Get("X-Answer"))
				require.False(t, clear, "%q", text)
				return
			}
			require.True(t, clear, "%q of\n%s", text, m.Text)
			require.Equal(t, want, text)
		})
	}
}

// keptOtherwise are the cases in which our answer differs from that of another public
// gate, with the reason.
var keptOtherwise = map[string]string{
	"'5 npm test\\n\\nOn Tue, 3 Jan 2026 at 10:00, Bob\\n<bob@x> wrote:\\n> q'": "an attribution on two lines is recognized",
}

func TestCasesOfTruncation(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "cases", "rest-menu-email.json"))
	if os.IsNotExist(err) && os.Getenv("CI") != "true" {
		return
	}
	require.NoError(t, err)
	var doc struct {
		Cases []struct {
			Suite, Name string
			Input       struct{ Body, Text string }
			Expected    struct{ Kept, ID string }
		}
	}
	require.NoError(t, json.Unmarshal(lenient(b), &doc))
	seen := 0
	for _, c := range doc.Cases {
		switch c.Suite {
		case "email.truncate":
			seen++
			text, clear := answer(c.Input.Body, false)
			require.Equal(t, text != "", clear, c.Name)
			if why := keptOtherwise[c.Name]; why != "" {
				require.NotEqual(t, c.Expected.Kept, text, "%s: no longer: %s", c.Name, why)
				continue
			}
			require.Equal(t, c.Expected.Kept, text, c.Name)
		case "email.id":
			// Our ids have at least 16 hex digits, so a shorter one is not an id.
			require.Empty(t, (&inboundMail{Text: c.Input.Text}).Refs(replySub), c.Name)
			require.NotEmpty(t, (&inboundMail{Text: c.Input.Text + "abcd"}).Refs(replySub), c.Name)
		}
	}
	require.Greater(t, seen, 10)
}

// lenient skips the cases of other suites, whose input has other types.
func lenient(b []byte) []byte {
	var doc struct{ Cases []map[string]any }
	if json.Unmarshal(b, &doc) != nil {
		return b
	}
	var mine []map[string]any
	for _, c := range doc.Cases {
		if suite, _ := c["suite"].(string); suite == "email.truncate" || suite == "email.id" {
			mine = append(mine, c)
		}
	}
	out, _ := json.Marshal(map[string]any{"cases": mine})
	return out
}

func TestAnswers(t *testing.T) {
	const on = "On Tue, 3 Jan 2026 at 10:00, Bob <bob@example.org> wrote:\n"
	for _, c := range []struct {
		text, want string
		clear      bool
		why        string
	}{
		{"1", "1", true, "without a line end"},
		{"\n\n  1  \n\n", "1", true, "blanks around it"},
		{"1\r\n", "1", true, "CRLF"},
		{"\ufeff1\u200b\u00a0\n", "1", true, "invisible characters are removed"},
		{"\u200e4\u200e note with \u2764\ufe0f and \u200d\n", "4 note with \u2764\ufe0f and", true, "in a note they may have a meaning"},
		{"4 two\nlines\n\nBob", "4 two\nlines", true, "down to a blank line"},
		{"4 indented:\n  - a\n  - b\n", "4 indented:\n  - a\n  - b", true, "kept as it is"},
		{"1\n\n1", "1", false, "twice"},
		{"1\n\n2 Rue de Rivoli\nParis", "1", false, "could be another answer"},
		{"1\n\nBob\n2 Rue de Rivoli\nParis", "1", true, "a house number in a signature"},
		{"1\n\nBob\n2\n", "1", false, "a number by itself"},
		{"1\n\nNo\n", "1", false, "a retraction"},
		{"1\n\nNo virus found in this message.\n", "1", true, "a footer"},
		{"1\n\nThanks!\nBob", "1", true, "a greeting"},
		{"1\n\n-- \n3 Harbour Street\n\n" + on + "> 4 x\n", "1", true, "a signature is no answer"},
		{"1\n\n-----\n\n3 no\n", "1", false, "below the writer's own rule"},
		{"1\n-----\n3 no\n", "1", false, "the same"},
		{"3\n--\nBob", "3", true, "a signature right below"},
		{"4 a\n-- b\nc", "4 a\n-- b\nc", true, "no signature"},
		{"4 a\nOn Friday we wrote to them:\nb", "4 a", false, "perhaps an attribution"},
		{"4 see what he said:\n\n> this\n", "", false, "perhaps an attribution in another language"},
		{"4 a\n> b\nc", "4 a", false, "perhaps a part of the note"},
		{"4 a\n> " + on + "> b", "4 a", true, "a quotation that names its author"},
		{"1\n> b", "1", true, "a code that takes no text"},
		{"1\n\n--\n\n3\n", "1", false, "a code is no signature"},
		{"> a\n\n1", "1", true, "below a quotation"},
		{"> a\n1", "", false, "perhaps the rest of a long line"},
		{"> a\nthe rest of it\n\n1", "1", true, "the rest of a long line"},
		{"> a\n4 the rest of it\n\n1", "", false, "the rest of a long line, perhaps"},
		{"> a\n\n1\n\n> b\n", "", false, "between quotations"},
		{"> a\n\n1\n\n-- \nBob", "1", true, "below, with a signature"},
		{"> a\n\n1\n\n3\n", "1", false, "below, twice"},
		{"> a\n\n1\n\nFrom: x\nSent: y\nTo: z\n\n3\n", "", false, "below one quotation and above another"},
		{"Hi\n\n> a\n\n1", "Hi", false, "above and below"},
		{on + "> a\n\n1", "1", true, "with an attribution"},
		{on + "a\n\n1", "", false, "the quotation is not marked"},
		{on + "\n1", "", false, "the same"},
		{"Sent from my iPhone\n\n1\n", "1", true, "below the signature"},
		{"JD> a\n\n1", "1", true, "initials"},
		{"4 a\x1b[2Jb", "4 a\x1b[2Jb", false, "a control character"},
		{"4 caf\ufffd", "4 caf\ufffd", false, "a replacement character"},
		{"4\u3000全角", "4 全角", true, "a wide blank"},
		{"4 Feb 2026, Bob", "4 Feb 2026, Bob", false, "a date"},
		{"4. februar 2026 Bob", "4. februar 2026 Bob", false, "a date"},
		{"4 de enero de 2026, Bob", "4 de enero de 2026, Bob", false, "a date"},
		{"3 minutes are too short", "3 minutes are too short", true, "no date"},
		{"Zum 5.1.2026 14:30 Anna Bell blorbte:\n\n4 old words", "", false, "an attribution in an unknown language"},
		{"Blorb: Anna <anna@example.org>\nZimp: 5.1.2026 14:30\nFoob: Bob\n\n4 old words", "", false, "a header in an unknown language"},
		{"4 a\nFrom: Anna Bell Sent: yesterday To: Bob Subject: x\n", "4 a", true, "a complete header on one line"},
		{"4 a\nTo: Bob\n", "4 a", false, "a field by itself may be part of a note"},
		{on + "\nOn Mon, 2 Jan 2026, Ann wrote:\n> a\n\n1", "", false, "the second of two attributions is quoted, and so is what follows"},
		{on + "On Mon, 2 Jan 2026, Ann wrote:\n> a\n\n1", "", false, "the same without a line between"},
		{"> a\n\n" + on + "> b\n\n1", "", false, "the same below a quotation"},
		{"4 <Notiz>, 5 <Änderung>\n", "", false, "a placeholder, in any language"},
		{"4: <Notiz>\n5: <Änderung>\n", "", false, "the same with a colon"},
		{"🔐 Erlaubnis nötig\n\n4 x", "", false, "a card in an unknown language"},
		{"4 a\n🔐 Erlaubnis nötig\n4 x", "4 a", true, "the same, right below"},
		{"", "", false, "nothing"},
		{"***\n1", "", false, "a rule of asterisks"},
	} {
		text, clear := answer(newlines.Replace(c.text), false)
		require.Equal(t, c.clear, clear, "%s: %q gave %q", c.why, c.text, text)
		require.Equal(t, c.want, text, "%s: %q", c.why, c.text)
	}
	text, clear := answer("> a\n1", true)
	require.True(t, clear, "without wrapped lines the mark is enough")
	require.Equal(t, "1", text)
	_, clear = answer(strings.Repeat("\n", maxLines+1)+"1", false)
	require.False(t, clear, "too long")
}

// TestCardWords checks that no part of a card counts as an answer, wherever a program
// wrapped its lines, and without the lines above that part. It uses no text by an agent:
// such text cannot be recognized without its context.
func TestCardWords(t *testing.T) {
	for _, language := range chat.Languages() {
		card := strings.ReplaceAll(mildCard(language), "\n", " ")
		step := 7
		if os.Getenv("PERMESSO_SOAK") != "" {
			step = 1
		}
		for width := 16; width < 100; width += step {
			lines := strings.Split(wrapAt(card, width), "\n")
			for i := range lines {
				rest := strings.Join(lines[i:], "\n")
				for _, text := range []string{rest, "> a\n\n" + rest, strings.ReplaceAll(rest, "·", "?"), strings.NewReplacer("<", "", ">", "").Replace(rest)} {
					got, clear := answer(text, false)
					require.False(t, clear && decides(got), "%q of %q, %d wide", got, text, width)
				}
			}
		}
	}
}
