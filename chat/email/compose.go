package email

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/emersion/go-message"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
)

// maxText is how much of a card an email shows, in bytes. A card that does not fit
// cannot be approved by email.
const maxText = 200 << 10

// outgoing is an email that we send.
type outgoing struct {
	From, To   string
	ReplyTo    string // "": From
	Subject    string // with the tag
	MessageID  string
	InReplyTo  string // "": it begins a thread
	References []string
	Auto       string // auto-generated, auto-replied
	Date       time.Time
	Text       string
	HTML       string // "": plain text only
}

// bytes is the email in wire format. The header contains only addresses, identifiers
// and encoded text.
func (d *outgoing) bytes() ([]byte, error) {
	var h message.Header
	h.Set("MIME-Version", "1.0")
	// Suppresses out-of-office notes of Microsoft servers.
	h.Set("X-Auto-Response-Suppress", "All")
	h.Set("Auto-Submitted", d.Auto)
	if len(d.References) > 0 {
		h.Set("References", strings.Join(d.References, " "))
	}
	if d.InReplyTo != "" {
		h.Set("In-Reply-To", d.InReplyTo)
	}
	h.Set("Message-Id", d.MessageID)
	h.SetText("Subject", d.Subject)
	h.Set("Date", d.Date.Format(time.RFC1123Z))
	if d.ReplyTo != "" {
		h.Set("Reply-To", d.ReplyTo)
	}
	h.Set("To", d.To)
	h.Set("From", "permesso <"+d.From+">")
	var out bytes.Buffer
	if err := d.body(&out, h); err != nil {
		return nil, fmt.Errorf("compose email: %w", err)
	}
	return out.Bytes(), nil
}

func (d *outgoing) body(out io.Writer, h message.Header) error {
	if d.HTML == "" {
		textual(&h, "text/plain")
		w, err := message.CreateWriter(out, h)
		if err != nil {
			return err
		}
		return writePart(w, d.Text)
	}
	h.SetContentType("multipart/alternative", nil)
	all, err := message.CreateWriter(out, h)
	if err != nil {
		return err
	}
	for _, part := range []struct{ kind, text string }{{"text/plain", d.Text}, {"text/html", d.HTML}} {
		var ph message.Header
		textual(&ph, part.kind)
		w, err := all.CreatePart(ph)
		if err != nil {
			return err
		}
		if err := writePart(w, part.text); err != nil {
			return err
		}
	}
	return all.Close()
}

func textual(h *message.Header, kind string) {
	h.SetContentType(kind, map[string]string{"charset": "utf-8"})
	h.Set("Content-Transfer-Encoding", "quoted-printable")
}

func writePart(w *message.Writer, text string) error {
	if _, err := io.WriteString(w, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		return err
	}
	return w.Close()
}

// tagLike matches what an agent's text must not bring into a subject: the prefix of a
// request tag, which must occur only in our own tag, and an encoded word, which a mail
// program would decode.
var tagLike = pattern(`(?i)(appr)_|(=)\?`)

// headline is what would be done, where, and in which workspace, in one line that is valid
// in a header.
func headline(s chat.Style, p *approval.Pending) string {
	line := tagLike().ReplaceAllStringFunc(s.Headline(p), func(m string) string {
		return fmt.Sprintf(`%s\u{%X}`, m[:len(m)-1], m[len(m)-1])
	})
	const longest = 300
	return cutTo(line, longest, func(s string) int { return len(s) })
}

// cutTo is the longest beginning of s that has at most that size, with a mark of the cut.
func cutTo(s string, most int, size func(string) int) string {
	if size(s) <= most {
		return s
	}
	runes := []rune(s)
	n := sort.Search(len(runes), func(n int) bool { return size(string(runes[:n])) > most })
	return string(runes[:max(0, n-1)]) + "…"
}

// cardMail is a card for one approver.
type cardMail struct {
	pending *approval.Pending
	style   chat.Style
	texts   *catalog
	ceiling approval.Reversibility
	to      string // the address that a reply goes to
	tag     string // the end of the subject
	inText  bool   // the text ends with the tag, too: the address carries no token
}

// longCard is the size, in bytes, above which a reply that quotes the complete card, as
// text and as HTML, may be too large to be read.
const longCard = 64 << 10

// refusal says why the card cannot be approved by email, "" if it can or if the card itself says it.
func (m *cardMail) refusal(complete, blocked bool) string {
	switch p := m.pending; {
	case p.Type == approval.TypeQuestion || blocked:
		return ""
	case !complete:
		return chat.Format(m.texts.Incomplete, "id", p.ShortID)
	case exceeds(p.Reversibility, m.ceiling):
		return m.texts.aboveCeiling(p, m.ceiling)
	}
	return ""
}

// notes are the notes below the card.
func (m *cardMail) notes(size int, approvable bool) (notes []string) {
	switch w := m.texts; {
	case m.pending.Type == approval.TypeQuestion:
		notes = append(notes, w.HowToAnswer)
	case approvable:
		notes = append(notes, w.HowTo)
	default:
		notes = append(notes, w.HowToDeny)
	}
	if size > longCard {
		notes = append(notes, m.texts.LongCard)
	}
	if m.inText {
		notes = append(notes, m.tag)
	}
	return notes
}

// render returns the two parts of the email.
func (m *cardMail) render() (deliver.Message, error) {
	card := m.style.Card(m.pending)
	question, blocked := m.pending.Type == approval.TypeQuestion, card.Blocked != ""
	approvable := !question && !blocked && !exceeds(m.pending.Reversibility, m.ceiling)
	var codes []code
	if question {
		card.Why = nil // a question is no ruling of the policy
		if len(card.Menu) > 0 {
			card.Menu = card.Menu[:len(card.Menu)-1] // the last line does not apply to email
		}
	} else {
		codes = m.codes(approvable)
		card.Menu = menuOf(codes)
	}
	text, complete := m.fitCard(card)
	if approvable && !complete {
		approvable, codes = false, m.codes(false)
		card.Menu = menuOf(codes)
		text, _ = m.fitCard(card)
	}
	refusal, notes := m.refusal(complete, blocked), m.notes(len(text), approvable)
	page, err := m.page(&pageData{
		Card: card, Complete: complete, Text: text, Refusal: refusal, Notes: notes, Codes: codes, Buttons: m.buttons(approvable),
	})
	below := slices.DeleteFunc(append([]string{text, refusal}, notes...), func(s string) bool { return s == "" })
	return deliver.Message{Lines: strings.Split(strings.Join(below, "\n\n"), "\n"), Page: page, Complete: complete && !blocked}, err
}

// code is a code that a reply can begin with, as a line of the card.
type code struct {
	Code, Text string
	Effect     string // in parentheses: whether the request runs
	Runs       bool
}

func (c code) String() string { return c.Code + " " + c.Text + " (" + c.Effect + ")" }

func menuOf(codes []code) (lines []string) {
	for _, c := range codes {
		lines = append(lines, c.String())
	}
	return lines
}

// codes are the codes that are possible.
func (m *cardMail) codes(approvable bool) []code {
	session, always := "", ""
	if s := m.style.Offer(m.pending, approval.Session); s != "" {
		session = "2 " + s
	}
	if s := m.style.Offer(m.pending, approval.Always); s != "" {
		always = "6 " + s
	}
	return m.texts.codeLines(approvable, m.pending.Editable != "", session, always)
}

// codeLines are the lines of the codes. The sentences of 2 and 6 are empty if they are not possible.
func (w *catalog) codeLines(approvable, editable bool, session, always string) (all []code) {
	c, edit := w.Codes, ""
	if editable {
		edit = w.Codes.Edit
	}
	for _, l := range []struct {
		line string
		runs bool
	}{{c.Once, true}, {session, true}, {c.Deny, false}, {c.Note, true}, {c.Change, false}, {edit, false}, {always, true}, {c.Ask, false}} {
		if l.line == "" || l.runs && !approvable {
			continue
		}
		effect := c.RunsNothing
		if l.runs {
			effect = c.Runs
		}
		first, rest, _ := strings.Cut(l.line, " ")
		all = append(all, code{first, rest, effect, l.runs})
	}
	return all
}

// fitCard is the card as text, as the HTML part has it.
func (m *cardMail) fitCard(card chat.Card) (text string, complete bool) {
	if len(card.Prose) > 0 {
		card.Prose = append([]string{m.texts.AgentWords}, card.Prose...)
	}
	if text, complete = card.Text(0); len(text) <= maxText {
		return text, complete
	}
	text, _ = card.Text(maxText / 3) // a unit has at most three bytes
	return text, false
}

func (w *catalog) aboveCeiling(p *approval.Pending, ceiling approval.Reversibility) string {
	return chat.Format(w.Ceiling, "it", w.Reversibility[string(knownReversibility(p.Reversibility))], "ceiling", w.Reversibility[string(knownReversibility(ceiling))])
}

// exceeds says whether r exceeds a ceiling; "" is no ceiling.
func exceeds(r, ceiling approval.Reversibility) bool {
	order := []approval.Reversibility{approval.Reversible, approval.Partial, approval.Irreversible}
	return ceiling != "" && slices.Index(order, knownReversibility(r)) > slices.Index(order, knownReversibility(ceiling))
}

// knownReversibility is r; an unknown value counts as irreversible.
func knownReversibility(r approval.Reversibility) approval.Reversibility {
	if r == approval.Reversible || r == approval.Partial {
		return r
	}
	return approval.Irreversible
}
