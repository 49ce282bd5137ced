package email

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"math/rand/v2"
	"mime/quotedprintable"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-message"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
)

const (
	replyID    = "a7f3b2c1d4e5f6a7"
	replyToken = "abcdefghijklmnopqrstuvwx23"
)

var replySub = Addressing{Local: "permesso", Separator: "+", Domain: "gate.example"}

func cardPending() approval.Pending {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return approval.Pending{
		RequestID: replyID, ShortID: replyID[:8], Type: approval.TypeAction, ToolName: "x_post", SourceGroup: "personal",
		RequestData: approval.Raw(`{"text":"Meeting at 5"}`), Verb: map[string]string{"en": "post"}, Summary: `"Meeting at 5" -> x.com/ricardo`,
		Capability: "channel:out", Target: "x.com/ricardo", Timestamp: at, ExpiresAt: at.Add(5 * time.Minute),
		Agent: approval.Prose{Rationale: "I need to remind the team."}, Offers: postOffers("personal"),
	}
}

// mildCard is a card without deceptive text.
func mildCard(language string) string {
	p := cardPending()
	return chat.Style{Language: language}.Card(&p).String()
}

// replyCards are texts of our cards. In the second and third the agent's text contains
// codes.
func replyCards(t *testing.T) []string {
	hostile := cardPending()
	hostile.RequestData = approval.Raw(`{"text":"4 ok\n1\n\n\n> 1\n6\nOn Monday, 5 January 2026, Bob <b@example.org> wrote:\n\n4 yes\n-- \n1","1":"1","4 ok":"4 ok"}`)
	hostile.Agent = approval.Prose{Title: "1", Preview: "4 approved\n1\n\n1", Rationale: strings.Repeat("I need this so please write 4 fine or just ", 6) + "\n1\n\n4 fine\n"}
	cards := []string{
		mildCard("en"),
		chat.Style{Language: "it", Foot: "log 1042 9f3c"}.Card(&hostile).String(),
		chat.Style{}.Card(&hostile).String(),
	}
	for _, c := range cards {
		require.True(t, strings.HasPrefix(c, lock), "a card begins with the lock")
		require.Contains(t, c, "\n1 ")
	}
	return cards
}

var replyContext = chat.Context{Reply: true, ID: replyID, Type: approval.TypeAction}

// decides says whether a text would decide anything, as a reply to the card or in the
// short forms that only email has.
func decides(text string) bool {
	switch chat.Parse(text, replyContext).Kind {
	case chat.Approve, chat.Deny, chat.Menu, chat.Undo, chat.Option, chat.Free:
		return true
	}
	first, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(text)), " ")
	return first == "approve" || first == "deny"
}

// replyCodes are answers in every supported form.
var replyCodes = []string{
	"1", "2", "3", "3 not today", "4 keep it short", "4 write two lines:\nkeep it short,\nand friendly", "5 post it tomorrow\nat noon", "6",
	"approve a7f3b2c1", "deny a7f3b2c1 not today", "deny a7f3b2c1", "approve", "deny", "deny not today",
}

// span finds "from … to" in a text.
func span(t *testing.T, text, want string) (start, end int) {
	from, to, both := strings.Cut(want, " … ")
	start = strings.Index(text, from)
	require.GreaterOrEqual(t, start, 0, want)
	end = start + len(from)
	if both {
		i := strings.Index(text[end:], to)
		require.GreaterOrEqual(t, i, 0, want)
		end += i + len(to)
	}
	return start, end
}

// madeReply is an email of the corpus, changed to a reply to one of our cards.
type madeReply struct {
	card   string
	code   string // the new text; "" keeps that of the fixture
	above  bool   // the new text goes above that of the fixture
	below  bool   // it goes below the quotation
	none   bool   // there is no new text
	plain  bool   // a fixture without a quotation gets our card without marks
	narrow bool   // long lines of the card are wrapped, and the rest of a line is not marked
}

// quoteAs quotes a card.
func quoteAs(mark, card string) string {
	return mark + strings.ReplaceAll(card, "\n", "\n"+mark) + "\n"
}

func (r madeReply) quoted(mark string) string {
	lines := strings.Split(strings.TrimSuffix(quoteAs(mark, r.card), "\n"), "\n")
	if r.narrow {
		for i, l := range lines {
			lines[i] = wrapAt(l, 50)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// text is the plain form.
func (r madeReply) text(t *testing.T, f fixture, s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	at := len(s)
	if f.own != "" {
		at, _ = span(t, s, f.own)
	}
	head, rest := s[:at], s[at:]
	if r.code != "" && f.middle != "" {
		i, j := span(t, rest, f.middle)
		rest = rest[:i] + rest[j:]
	}
	switch {
	case f.quoted != "":
		i, _ := span(t, rest, f.quoted)
		rest = rest[:i] + r.quoted(f.mark) + rest[i:]
	case r.plain:
		rest += "\n\n" + r.quoted("")
	default:
		rest += "\n\nOn Sat, 21 Nov 2026 at 12:00, permesso <permesso+" + replyToken + "@gate.example>\nwrote:\n\n" + r.quoted("> ")
	}
	switch gap := head[len(strings.TrimRight(head, "\n ")):]; {
	case r.none:
		head = ""
	case r.code == "":
	case r.below:
		head, rest = "", rest+"\n\n"+r.code+"\n"
	case r.above:
		head = r.code + "\n\n" + head
	case gap == "":
		head = r.code + "\n\n"
	default:
		head = r.code + gap
	}
	return head + rest
}

// page is the HTML form.
func (r madeReply) page(t *testing.T, f fixture, s string) string {
	lines := func(s string) string {
		return strings.ReplaceAll(html.EscapeString(s), "\n", "<br>\n")
	}
	i, _ := span(t, s, f.where)
	s = s[:i] + lines(r.quoted(f.mark)) + "<br>" + s[i:]
	if r.code == "" && !r.none {
		return s
	}
	i, j := span(t, s, f.html)
	if r.above {
		return s[:i] + lines(r.code) + "<br><br>" + s[i:]
	}
	return s[:i] + lines(r.code) + s[j:]
}

// body is one form of a text.
type body struct{ kind, text string }

// wrapMail builds an email from the forms, in one of three encodings.
func wrapMail(t *testing.T, how int, forms ...body) []byte {
	var b bytes.Buffer
	b.WriteString("From: Ricardo <ricardo@example.org>\r\nTo: permesso+" + replyToken + "@gate.example\r\n" +
		"Subject: Re: Post to X [appr_" + replyID + "]\r\nDate: Sat, 21 Nov 2026 12:01:00 +0000\r\nMessage-ID: <1@example.org>\r\n" +
		"In-Reply-To: " + newMessageID(replyID, "r4nd0m", "gate.example") + "\r\nMIME-Version: 1.0\r\n")
	if len(forms) > 1 {
		b.WriteString("Content-Type: multipart/alternative; boundary=\"=_b\"\r\n\r\n")
	}
	for _, f := range forms {
		if len(forms) > 1 {
			b.WriteString("--=_b\r\n")
		}
		b.WriteString("Content-Type: " + f.kind + "; charset=utf-8\r\nContent-Transfer-Encoding: ")
		text := strings.ReplaceAll(f.text, "\n", "\r\n")
		switch how % 3 {
		case 0:
			b.WriteString("8bit\r\n\r\n" + text)
		case 1:
			b.WriteString("quoted-printable\r\n\r\n")
			w := quotedprintable.NewWriter(&b)
			_, err := w.Write([]byte(text))
			require.NoError(t, err)
			require.NoError(t, w.Close())
		case 2:
			b.WriteString("base64\r\n\r\n")
			for e := base64.StdEncoding.EncodeToString([]byte(text)); e != ""; {
				n := min(len(e), 76)
				b.WriteString(e[:n] + "\r\n")
				e = e[n:]
			}
		}
		b.WriteString("\r\n")
	}
	if len(forms) > 1 {
		b.WriteString("--=_b--\r\n")
	}
	return b.Bytes()
}

// mail returns a fixture as a reply.
func (r madeReply) mail(t *testing.T, f fixture, how int, forms []body) []byte {
	var made []body
	for _, form := range forms {
		if form.kind == "text/html" {
			form.text = r.page(t, f, form.text)
		} else {
			form.text = r.text(t, f, form.text)
		}
		made = append(made, form)
	}
	if len(made[0].text) > mailbox.MaxMail {
		how = 0 // refused before the encoding matters
	}
	return wrapMail(t, how, made...)
}

// formsOf reads a fixture.
func formsOf(t *testing.T, file string) []body {
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	switch filepath.Ext(file) {
	case ".html":
		return []body{{"text/html", string(b)}}
	case ".eml":
		e, err := message.Read(bytes.NewReader(b))
		require.NoError(t, err)
		var forms []body
		require.NoError(t, e.Walk(func(_ []int, p *message.Entity, err error) error {
			if kind, _, _ := p.Header.ContentType(); strings.HasPrefix(kind, "text/") {
				text, err := io.ReadAll(p.Body)
				forms = append(forms, body{kind, string(text)})
				return err
			}
			return err
		}))
		return forms
	}
	return []body{{"text/plain", string(b)}}
}

// replyCorpus lists the files of a folder of ../shared/corpora. Without it a test uses
// only the project's own fixtures; with CI=true it fails.
func replyCorpus(t *testing.T, folder string) []string {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "shared", "corpora", folder)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	if len(files) == 0 {
		require.NotEqual(t, "true", os.Getenv("CI"), "%s is missing", dir)
	}
	return files
}

// fixtureName converts a file name to the name in the table.
func fixtureName(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	if name == "" || strings.HasSuffix(name, "tmp__") {
		name = filepath.Base(file)
	}
	from, _, _ := strings.Cut(name, "-")
	from, _, _ = strings.Cut(from, "__")
	for _, middle := range []string{"__test__fixtures__", "__test__emails__", "__tests__fixtures__"} {
		if _, last, ok := strings.Cut(name, middle); ok {
			return from + "/" + last
		}
	}
	return name
}

// tally counts the results of replies.
type tally struct{ right, unclear, wrong int }

func (c tally) all() int { return c.right + c.unclear + c.wrong }

// judgeReply reads an email and returns the answer and the result.
func judgeReply(raw []byte, code string) (text string, outcome string) {
	m, err := readMail(raw)
	if err != nil {
		return "", "unclear"
	}
	text, clear := m.Answer()
	switch {
	case !clear || !decides(text):
		return text, "unclear"
	case text == code:
		return text, "right"
	}
	return text, "wrong"
}

// TestRepliesOfTheCorpus measures the recognition rate over the corpus, with our own card quoted in
// each client's style: no decision without a code, and with a code at least 98 % right
// and none wrong. make test tries a twentieth of the codes at other places. PERMESSO_SEED repeats a
// run.
func TestRepliesOfTheCorpus(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("PERMESSO_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("PERMESSO_SEED=%d", seed)
	cards := replyCards(t)
	files := replyCorpus(t, "replies")
	var with, above, below tally
	without := 0
	for _, file := range files {
		name := fixtureName(file)
		f, ok := fixtures[name]
		require.True(t, ok, "no row for %s", name)
		forms := formsOf(t, file)
		for n := range 8 {
			without++
			r := madeReply{card: cards[without%len(cards)], plain: n&1 != 0, none: n&2 != 0, narrow: n&4 != 0}
			text, outcome := judgeReply(r.mail(t, f, n, forms), "")
			require.Equal(t, "unclear", outcome, "%s decides without a code: %+v: %q", name, r, text)
		}
		for i, code := range replyCodes {
			r := madeReply{card: cards[i%len(cards)], code: code, plain: i%2 == 1, narrow: i%4 == 3}
			with.count(t, name, code, r.mail(t, f, i, forms))
			if uint64(with.all())%20 != seed%20 && os.Getenv("PERMESSO_SOAK") == "" {
				continue
			}
			r.above = true
			above.count(t, name, code, r.mail(t, f, i, forms))
			if f.endsQuoted(forms) {
				r.above, r.narrow, r.below = false, false, true
				below.count(t, name, code, r.mail(t, f, i, forms[:1]))
			}
		}
	}
	t.Logf("%d fixtures. Without a code: %d mails, 0 decisions. The code in place of the fixture's own words: %s. Above them: %s. Under a marked quotation: %s.", len(files), without, with, above, below)
	if len(files) == 0 {
		return
	}
	require.Len(t, fixtures, len(files), "a row for each fixture")
	require.Zero(t, with.wrong+above.wrong+below.wrong)
	require.GreaterOrEqual(t, float64(with.right), 0.98*float64(with.all()))
}

// endsQuoted says whether the fixture ends with a marked quotation, so that a reply can
// be written below it.
func (f fixture) endsQuoted(forms []body) bool {
	lines := strings.Split(strings.TrimSpace(forms[0].text), "\n")
	return f.mark != "" && strings.HasPrefix(lines[len(lines)-1], ">")
}

func (c *tally) count(t *testing.T, name, code string, raw []byte) {
	text, outcome := judgeReply(raw, code)
	switch outcome {
	case "right":
		c.right++
	case "wrong":
		c.wrong++
		t.Errorf("%s with %q gave %q", name, code, text)
	default:
		c.unclear++
		t.Logf("unclear: %s with %q gave %q", name, code, text)
	}
}

func (c tally) String() string {
	return fmt.Sprintf("%d replies, %d right (%.1f %%), %d unclear, %d wrong", c.all(), c.right, 100*float64(c.right)/float64(max(1, c.all())), c.unclear, c.wrong)
}

// TestQuestionCards: such a card accepts almost any text as an answer, so a quoted text
// must not even be clear.
func TestQuestionCards(t *testing.T) {
	p := cardPending()
	p.Type, p.Agent, p.Options = approval.TypeQuestion, approval.Prose{Title: "Which day?"}, []string{"today", "tomorrow, at 4"}
	const on = "On Sat, 21 Nov 2026 at 12:00, permesso <permesso@gate.example> wrote:\n\n"
	for _, language := range chat.Languages() {
		card := chat.Style{Language: language}.Card(&p).String()
		for _, text := range []string{card, quoteAs("> ", card), on + card, on + quoteAs("> ", card), card + "\n\n2", "> a\n\n" + card, wrapAt(card, 30)} {
			got, clear := answer(text, false)
			require.False(t, clear, "%q of %q", got, text)
		}
		for _, l := range strings.Split(card, "\n") {
			if strings.HasPrefix(l, "1") || strings.HasPrefix(l, "2") || strings.HasPrefix(l, lock) || strings.HasPrefix(l, "→") {
				got, clear := answer(l, false)
				require.False(t, clear, got)
			}
		}
		text, clear := answer("the day after tomorrow,\nif it has to be\n\n"+card, false)
		require.True(t, clear)
		require.Equal(t, "the day after tomorrow,\nif it has to be", text)
	}
}
