package telegram

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-telegram/bot/models"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/messagestest"
)

// shown is a message as Telegram shows it.
type shown struct {
	deliver.Message
	text     string
	entities []models.MessageEntity
}

func newShown(m deliver.Message) shown {
	text, entities := layOut(m)
	return shown{m, text, entities}
}

// renderCard renders a request's card with all its buttons.
func renderCard(t testing.TB, change func(*approval.Pending)) shown {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p := &approval.Pending{
		Version: 1, RequestID: "a7f3b2c1d4e5f6a7", ShortID: "a7f3b2c1", Type: approval.TypeAction, SourceGroup: "personal",
		ToolName: "note", RequestData: approval.Raw(`{}`), Timestamp: at, ExpiresAt: at.Add(5 * time.Minute),
	}
	change(p)
	nonces := map[string]string{}
	for _, verb := range []string{"1", "2", "3", "4", "5", "6", "?", "all"} {
		nonces[verb] = strings.Repeat("0", 32)
	}
	msg := newShown(deliver.Card(chat.Style{}, p, nonces, maxText, false))
	require.LessOrEqual(t, chat.Units(msg.text), maxText)
	for _, row := range msg.Buttons {
		for _, f := range row {
			require.LessOrEqual(t, len(f.Data), 64)
		}
	}
	return msg
}

// part returns the text of the first entity of a format.
func (msg shown) part(format models.MessageEntityType) string {
	u := utf16.Encode([]rune(msg.text))
	for _, m := range msg.entities {
		if m.Type == format {
			return string(utf16.Decode(u[m.Offset : m.Offset+m.Length]))
		}
	}
	return ""
}

func textData(t testing.TB, text string) approval.Raw {
	b, err := json.Marshal(map[string]string{"text": text})
	require.NoError(t, err)
	return b
}

// requireRoundTrip checks that the payload can be read back from the message, and that all of it is visible.
func requireRoundTrip(t testing.TB, text string) {
	t.Helper()
	msg := renderCard(t, func(p *approval.Pending) { p.RequestData = textData(t, text) })
	if !msg.Complete {
		require.Fail(t, "too long for the test")
	}
	shown := msg.part(block)
	var lines []string
	if rest, ok := strings.CutPrefix(shown, "text:\n"); ok {
		for s := range strings.SplitSeq(rest, "\n") {
			lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(s, "│"), " "))
		}
	} else {
		rest, ok := strings.CutPrefix(shown, "text: ")
		require.True(t, ok, shown)
		if len(rest) > 1 && rest[0] == '"' && rest[len(rest)-1] == '"' && (text == "" || strings.ContainsAny(text[:1], `"{[`) || json.Valid([]byte(text))) {
			rest = rest[1 : len(rest)-1]
		}
		lines = []string{rest}
	}
	for i, s := range lines {
		lines[i] = unescape(s)
	}
	require.Equal(t, text, strings.Join(lines, "\n"))
	for _, r := range msg.text {
		if r != '\n' && r != '\t' && !visible(r) {
			require.Failf(t, "invisible", "%U in %q", r, msg.text)
		}
	}
}

var escapeSequence = regexp.MustCompile(`\\u\{([0-9A-F]+)\}|\\x\{([0-9A-F]{2})\}|\\[\\"nrt]|␠\{([0-9]+)\}`)

// unescape reverses chat.Escape.
func unescape(s string) string {
	return escapeSequence.ReplaceAllStringFunc(s, func(e string) string {
		m := escapeSequence.FindStringSubmatch(e)
		switch {
		case m[1] != "":
			r, _ := strconv.ParseInt(m[1], 16, 32)
			return string(rune(r))
		case m[2] != "":
			b, _ := strconv.ParseUint(m[2], 16, 8)
			return string([]byte{byte(b)})
		case m[3] != "":
			n, _ := strconv.Atoi(m[3])
			return strings.Repeat(" ", n)
		}
		return map[byte]string{'\\': `\`, '"': `"`, 'n': "\n", 'r': "\r", 't': "\t"}[e[1]]
	})
}

// visible is independent of package chat's own definition. A message may not hold runes that Telegram drops or
// that are invisible.
func visible(r rune) bool {
	switch {
	case r >= ' ' && r < 0x7f:
		return true
	case r < 0xa1, r == 0xad, r == 0x30a, r == 0x333, r == 0x33f:
		return false
	case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202f, r >= 0x205f && r <= 0x206f, r == 0xfeff, r == 0xfffc, r == 0xfffd:
		return false
	case r >= 0xe000 && r <= 0xf8ff, r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0000:
		return false
	}
	return true
}

// Every Unicode scalar value, many at a time, each between visible letters. make test tries the
// first thirty chunks, and a twentieth of the others. PERMESSO_SEED repeats a run.
func TestEveryScalarOnACard(t *testing.T) {
	t.Parallel()
	seed, err := strconv.ParseUint(os.Getenv("PERMESSO_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("PERMESSO_SEED=%d", seed)
	var b strings.Builder
	n, chunks := 0, uint64(0)
	flush := func() {
		if chunks++; os.Getenv("PERMESSO_SOAK") != "" || chunks < 30 || chunks%20 == seed%20 {
			requireRoundTrip(t, b.String())
		}
		b.Reset()
		n = 0
	}
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) || r == '\n' {
			continue
		}
		b.WriteRune(r)
		b.WriteByte('x')
		if n++; n == 250 {
			flush()
		}
	}
	flush()
}

func shared(t *testing.T, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "..", "shared"}, path...)...))
	if os.IsNotExist(err) && os.Getenv("CI") != "true" {
		return nil
	}
	require.NoError(t, err)
	return b
}

// nastyStrings are strings that are known to break renderers.
func nastyStrings(t *testing.T) []string {
	var list []string
	if b := shared(t, "corpora", "blns.json"); b != nil {
		require.NoError(t, json.Unmarshal(b, &list))
		require.NotEmpty(t, list)
	}
	own, err := filepath.Glob("../../testdata/chat/*.txt")
	require.NoError(t, err)
	for _, name := range own {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		list = append(list, string(b))
	}
	return append(list, bidi(t)...)
}

// bidi are sources that display in another order than they run.
func bidi(t *testing.T) []string {
	list := []string{
		"access\u202e\u2066// Check if admin\u2069\u2066", "if (isAdmin) {\u2066 begin admins only\u2069}", "\u200fabc\u200edef", "שלום 12 (34)",
	}
	dir := filepath.Join("..", "..", "..", "shared", "corpora", "trojan-source")
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) && os.Getenv("CI") != "true" {
		return list
	}
	require.NoError(t, err)
	for _, e := range entries {
		list = append(list, string(shared(t, "corpora", "trojan-source", e.Name())))
	}
	return list
}

func TestNastyStringsOnACard(t *testing.T) {
	for _, s := range nastyStrings(t) {
		if !utf8.ValidString(s) || chat.Units(chat.Escape(s)) > 3000 {
			continue
		}
		requireRoundTrip(t, s)
	}
}

// Agent text stays in its own formats, and Telegram finds nothing tappable in it.
func TestAgentTextIsNotTappable(t *testing.T) {
	bait := "see http://evil.example/x, evil.example, t.me/evil, mail a@b.example, @evil, #evil, $EVIL, /approve, +39 333 1234567, 4111 1111 1111 1111"
	msg := renderCard(t, func(p *approval.Pending) {
		p.ToolName, p.Target, p.Summary = "evil.example", bait, bait
		p.RequestData = textData(t, bait)
		p.Agent = approval.Prose{Title: bait, Preview: bait + "\n" + bait, Rationale: bait}
		p.Ruling = approval.Ruling{Outcome: approval.Ask, Reasons: []approval.Reason{approval.Because("rule_ask", "rule", bait)}}
	})
	u := utf16.Encode([]rune(msg.text))
	covered := make([]bool, len(u))
	for _, m := range msg.entities {
		if m.Type == code || m.Type == block {
			for i := m.Offset; i < m.Offset+m.Length; i++ {
				covered[i] = true
			}
		}
	}
	var open []uint16
	for i, c := range u {
		if covered[i] {
			c = '\n'
		}
		open = append(open, c)
	}
	rest := string(utf16.Decode(open))
	for _, word := range []string{"evil", "http", "@", "#", "+39", "4111", "t.me"} {
		require.NotContains(t, rest, word)
	}
	require.Equal(t, 1, strings.Count(msg.part(quote), "Agent's title: "))
}

func TestTappable(t *testing.T) {
	for s, want := range map[string]bool{
		"May I post?": false, "→ approve a7f3b2c1  /  deny a7f3b2c1 · until 12:05 · log 1042 9f3c": false, "reversible | class: time:read": false,
		"1 once · 3 deny · 4: <note> · 5: <change> · ? why, or a question": false, "(~12 B)": false, "etc.": false, "": false,
		"x.com": true, "a/b": true, "x.com/ricardo": true, "mail me @home": true, "#1": true, "$EUR": true, "https://x": true,
		"call 0333 1234567": true, "10.0.0.1": true, `C:\\x`: true, "a.": false, "9.5": true, "tg://x": true, "и.рф": true,
	} {
		require.Equal(t, want, tappable(s), s)
	}
}

// Formats have the right offsets, in UTF-16 code units.
func TestFormats(t *testing.T) {
	msg := renderCard(t, func(p *approval.Pending) {
		p.RequestData = textData(t, "🔐 two units each 🔐")
		p.Agent.Rationale = "because 🔐"
	})
	require.Equal(t, "🔐 May I run note?", msg.part(bold))
	require.Equal(t, "text: 🔐 two units each 🔐", msg.part(block))
	require.Equal(t, `Agent says: "because 🔐"`, msg.part(quote))
}

// The three forms of a card, by the number of earlier approvals.
func TestForms(t *testing.T) {
	for n, want := range map[int]string{
		0: "May I run note?\nfetch it (~1 B)\nirreversible | class: network:http",
		4: "May I run note? (irreversible | class: network:http)\nfetch it (~1 B)",
		9: "Run note fetch it (~1 B) [irreversible | class: network:http]",
	} {
		msg := renderCard(t, func(p *approval.Pending) {
			p.RequestData, p.RecurrenceCount, p.Capability, p.Summary, p.ToolSHA256 = textData(t, "x"), n, "network:http", "fetch it", "5e"
		})
		require.Contains(t, msg.text, want)
		require.Contains(t, msg.text, "text: x")
	}
}

func TestEveryMessageIsReadAndWritten(t *testing.T) {
	messagestest.RequireKeys[catalog](t, "../messages", "telegram")
	messagestest.RequireKeys[setupCatalog](t, "../messages", "telegram_setup")
	require.ElementsMatch(t, menuCommands(), slices.Collect(maps.Keys(catalogFor("en").Commands)))
}
