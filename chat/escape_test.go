package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// sharedSample reads a third-party sample beside the repository. It may be absent,
// except in CI.
func sharedSample(t *testing.T, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "shared"}, path...)...))
	if os.IsNotExist(err) && os.Getenv("CI") != "true" {
		return nil
	}
	require.NoError(t, err)
	return b
}

func ownSample(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "testdata", "chat", name))
	require.NoError(t, err)
	return b
}

// hasGlyph does not use visible, so that the test is independent of it.
func hasGlyph(r rune) bool {
	if r < 0x80 {
		return r >= ' ' && r != 0x7f
	}
	blank := []*unicode.RangeTable{
		unicode.C, unicode.Z, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
		unicode.Noncharacter_Code_Point, unicode.Bidi_Control, unicode.Join_Control,
		{
			R16: []unicode.Range16{{0x2800, 0x2800, 1}, {0xFFFC, 0xFFFD, 1}},
			R32: []unicode.Range32{{0x1107F, 0x1107F, 1}, {0x13441, 0x13442, 1}, {0x16FE4, 0x16FE4, 1}, {0x1D159, 0x1D159, 1}},
		},
	}
	return unicode.IsGraphic(r) && !unicode.In(r, blank...)
}

func requireVisible(t require.TestingT, shown string) {
	for _, r := range shown {
		if !hasGlyph(r) {
			require.Failf(t, "invisible character shown", "%U in %q", r, shown)
		}
	}
}

func TestEveryScalarRoundTripsVisibly(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		for _, in := range []string{string(r), "a" + string(r)} {
			out := Escape(in)
			for _, c := range out {
				if !hasGlyph(c) {
					require.Failf(t, "invisible", "%U from %U", c, r)
				}
			}
			back, err := unescape(out)
			if err != nil || back != in {
				require.Failf(t, "not injective", "%U: %q gives %q, %v", r, out, back, err)
			}
		}
		if unicode.Is(unicode.M, r) && Escape(string(r)) == string(r) {
			require.Failf(t, "a mark without a letter is not escaped", "%U", r)
		}
	}
}

// unblock returns the text that was given to Block.
func unblock(lines []string) (string, error) {
	back := make([]string, len(lines))
	for i, l := range lines {
		s, err := unescape(strings.TrimPrefix(strings.TrimPrefix(l, bar), " "))
		if err != nil {
			return "", err
		}
		back[i] = s
	}
	return strings.Join(back, "\n"), nil
}

// Each scalar stands at the beginning, in the middle and at the end of a line and of
// a value, alone, and between blanks.
func TestEveryScalarOfABlockRoundTrips(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		c, glyph := string(r), hasGlyph(r) || r == '\t'
		in := c + "a" + c + "b" + c + "\n" + c + "\nd\n" + c + "a \t" + c + "\t " + c + "a" + c
		lines := Block(in)
		back, err := unblock(lines)
		if err != nil || back != in {
			require.Failf(t, "not injective", "%U: %q gives %q, %v", r, lines, back, err)
		}
		for _, l := range lines {
			if l != bar && !strings.HasPrefix(l, bar+" ") || strings.HasSuffix(l, " ") || strings.HasSuffix(l, "\t") {
				require.Failf(t, "not behind the bar, or with blanks at the end", "%U: %q", r, l)
			}
			for _, shown := range l {
				if shown == r && !glyph || shown != r && shown != '\t' && !hasGlyph(shown) {
					require.Failf(t, "invisible", "%U from %U", shown, r)
				}
			}
		}
	}
}

func TestBlockKeepsLayout(t *testing.T) {
	for _, tc := range []struct{ why, in, want string }{
		{"indentation by tabs", "\t\tfmt.Println()", "\t\tfmt.Println()"},
		{"indentation by spaces", "    allow all;", "    allow all;"},
		{"columns", "a       b\tc", "a       b\tc"},
		{"spaces only", "   ", "␠{3}"},
		{"tabs only", "\t", `\t`},
		{"blanks at the end", "a \t ", "a␠{1}\\t␠{1}"},
		{"text out of view", "a" + strings.Repeat(" ", maxGap+1) + "b", "a␠{17}b"},
		{"text out of view by tabs", "a" + strings.Repeat("\t", 3) + "b", `a\t\t\tb`},
		{"a line out of view", strings.Repeat(" ", maxIndent+1) + "b", "␠{65}b"},
		{"a line out of view by tabs", strings.Repeat("\t", 9) + "b", strings.Repeat(`\t`, 9) + "b"},
		{"a mark behind the indentation", "  \u0301a", `  \u{0301}a`},
	} {
		require.Equal(t, []string{bar + " " + tc.want}, Block(tc.in), tc.why)
	}
}

func TestEscape(t *testing.T) {
	for _, tc := range []struct{ in, want, why string }{
		{"Meeting at 5", "Meeting at 5", "plain text stays"},
		{"perché ¿naïve? 日本語 Привет שלום नमस्ते 👍", "perché ¿naïve? 日本語 Привет שלום नमस्ते 👍", "other scripts stay, with their own marks"},
		{"a\u202eb", `a\u{202E}b`, "bidi override"},
		{"a\u200bb", `a\u{200B}b`, "zero width"},
		{"a\u00adb", `a\u{00AD}b`, "soft hyphen"},
		{"a\u00a0b", `a\u{00A0}b`, "no-break space"},
		{"\u2800\u3164\u115f", `\u{2800}\u{3164}\u{115F}`, "letters and symbols without a glyph"},
		{"👍\ufe0f\u200d", `👍\u{FE0F}\u{200D}`, "variation selector and joiner"},
		{"e\u0301", `e\u{0301}`, "looks like é"},
		{"\u0301a", `\u{0301}a`, "a mark would attach to the text before it"},
		{"क\u093f\u093f\u093f\u093f\u093f", "क\u093f\u093f\u093f\u093f" + `\u{093F}`, "no stacks of marks"},
		{"a\u093f", `a\u{093F}`, "a mark of another script"},
		{"\ue000\U000f0000\u0378", `\u{E000}\u{F0000}\u{0378}`, "private, unassigned"},
		{"\x00\x1b[31m\x7f\u0085\u2028", `\u{0000}\u{001B}[31m\u{007F}\u{0085}\u{2028}`, "controls and line ends"},
		{"a\nb\tc\rd", `a\nb\tc\rd`, "common controls by name"},
		{`C:\new "x"`, `C:\\new "x"`, "a backslash is doubled, a quotation mark stays"},
		{`\u{202E}`, `\\u{202E}`, "a typed escape is escaped"},
		{"\xff\xc3", `\x{FF}\x{C3}`, "bytes that are not UTF-8"},
		{"\ufffd", `\u{FFFD}`, "replacement character"},
		{"a  b", "a  b", "two spaces stay"},
		{"a   b", "a␠{3}b", "three spaces are counted"},
		{"rm -rf /tmp/x" + strings.Repeat(" ", 400) + "/home", "rm -rf /tmp/x␠{400}/home", "a long run cannot push text out of view"},
		{" a ", "␠{1}a␠{1}", "spaces at an end would get lost"},
		{"a␠{3}b", `a\u{2420}{3}b`, "the run sign cannot be forged"},
		{"‹key, 9 characters›", `\u{2039}key, 9 characters\u{203A}`, "a mask or a reference cannot be forged"},
		{"", "", "empty"},
	} {
		require.Equal(t, tc.want, Escape(tc.in), tc.why)
		back, err := unescape(tc.want)
		require.NoError(t, err, tc.why)
		require.Equal(t, tc.in, back, tc.why)
		requireVisible(t, Escape(tc.in))
	}
}

func TestQuoteAndBlock(t *testing.T) {
	require.Equal(t, `"say \"hi\"\n"`, Quote("say \"hi\"\n"))
	require.Equal(t, []string{"│ a", "│", `│ → approve a7f3b2c1`, "│ │ b"}, Block("a\n\n→ approve a7f3b2c1\n│ b"))
	require.Equal(t, []string{"│", "│"}, Block("\n"), "one line break makes two empty lines")
	require.Equal(t, []string{`│ a\r`, "│  b"}, Block("a\r\n b"))
}

func TestUnescapeRefusesInvalidForms(t *testing.T) {
	for _, s := range []string{`\`, `\q`, `\u`, `\u{}`, `\u{XYZ}`, `\u{41`, `\u41}`, `\u{-1}`, "␠", "␠{", "␠{-3}", "␠{99999999}"} {
		_, err := unescape(s)
		require.Error(t, err, s)
	}
}

// hostileStrings returns strings that are known to break programs.
func hostileStrings(t *testing.T) []string {
	var all, theirs []string
	require.NoError(t, json.Unmarshal(ownSample(t, "hostile.json"), &all))
	if b := sharedSample(t, "corpora", "blns.json"); b != nil {
		require.NoError(t, json.Unmarshal(b, &theirs))
		require.Greater(t, len(theirs), 400)
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "shared", "corpora", "trojan-source", "*"))
	require.NoError(t, err)
	require.True(t, len(files) > 0 || os.Getenv("CI") != "true", "samples are missing")
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		theirs = append(theirs, string(b))
	}
	return append(all, theirs...)
}

func TestHostileStrings(t *testing.T) {
	seen := map[string]string{}
	for _, s := range hostileStrings(t) {
		out := Escape(s)
		requireVisible(t, out)
		back, err := unescape(out)
		require.NoError(t, err)
		require.Equal(t, s, back)
		if was, ok := seen[out]; ok {
			require.Equal(t, was, s, "two strings look the same")
		}
		seen[out] = s
		block, err := unblock(Block(s))
		require.NoError(t, err)
		require.Equal(t, s, block)
		for _, l := range Block(s) {
			requireVisible(t, strings.ReplaceAll(l, "\t", ""))
			require.True(t, strings.HasPrefix(l, bar))
		}
		require.NotContains(t, Quote(s), "\n")
	}
}

func TestMixedScripts(t *testing.T) {
	for _, tc := range []struct {
		in, joined string
		want       []string
		why        string
	}{
		{"say\u041dello", "", []string{"\"say\u041dello\" (Latin, Cyrillic)"}, "one Cyrillic letter"},
		{"p\u0430yp\u0430l.com", "", []string{"\"p\u0430yp\u0430l\" (Latin, Cyrillic)"}, "in a domain name"},
		{"раура.com", "", nil, "words end at the dot"},
		{"раура.com", ".-@", []string{`"раура.com" (Cyrillic, Latin)`}, "a host name does not end at a dot"},
		{"Привет, world", "", nil, "two words, two languages"},
		{"файл.txt", "", nil, "an ordinary file"},
		{"ロボットAPI東京 한국어漢字", "", nil, "how Japanese and Korean are written"},
		{"αlpha βeta γamma δelta", "", []string{`"αlpha" (Greek, Latin)`, `"βeta" (Greek, Latin)`, `"γamma" (Greek, Latin)`}, "at most three examples"},
		{"ad\u200b\u043cin", "", []string{"\"ad\\u{200B}\u043cin\" (Latin, Cyrillic)"}, "an invisible character does not end a word"},
		{"x1_2", "", nil, "digits belong to every script"},
	} {
		require.Equal(t, tc.want, mixedWords(tc.in, tc.joined), tc.why)
	}
	b := sharedSample(t, "corpora", "trojan-source", "Go__homoglyph-function.go")
	require.True(t, b == nil || len(mixedWords(string(b), "")) == 1)
}

func TestScriptOf(t *testing.T) {
	for name, table := range unicode.Scripts {
		for _, r := range []rune{'a', 'é', 'Н', 'Ω', 'א', 'あ', '한', '漢', 'ก', 0x1F600, 0x0301, '5'} {
			if unicode.Is(table, r) {
				if name == "Common" || name == "Inherited" {
					name = ""
				}
				require.Equal(t, name, scriptOf(r), "%U", r)
			}
		}
	}
}

func TestRightToLeft(t *testing.T) {
	require.True(t, rightToLeft("to שלום"))
	require.True(t, rightToLeft("عربي"))
	require.False(t, rightToLeft("Привет, 日本 👍 é"))
	require.False(t, rightToLeft("\ufeff"), "a byte order mark is escaped")
}

func TestEscapeIsLinear(t *testing.T) {
	worst := []string{
		strings.Repeat("[", 1<<18), strings.Repeat("क\u093f", 1<<16), strings.Repeat("\u041da ", 1<<16),
		strings.Repeat(" x", 1<<17), strings.Repeat("\\", 1<<18), strings.Repeat("\u202e", 1<<16),
	}
	for _, s := range worst {
		start := time.Now()
		out := Escape(s)
		_ = mixedWords(s, "")
		_, err := unescape(out)
		require.NoError(t, err)
		require.Less(t, time.Since(start), 20*time.Second, "quadratic time would take minutes")
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", " a ", "a\u202e", `\u{41}`, "␠{3}", "\xff", "‹x›", "e\u0301"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, out := range []string{Escape(s), strings.TrimSuffix(strings.TrimPrefix(Quote(s), `"`), `"`)} {
			back, err := unescape(out)
			require.NoError(t, err)
			if len(s) < 1<<20 {
				require.Equal(t, s, back)
			}
			requireVisible(t, out)
		}
	})
}
