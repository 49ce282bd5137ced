package email

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

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

// headline is the question, the object and the short id in one line, valid in a header.
func headline(s chat.Style, p *approval.Pending) string {
	line := tagLike().ReplaceAllStringFunc(s.Headline(p), func(m string) string {
		return fmt.Sprintf(`%s\u{%X}`, m[:len(m)-1], m[len(m)-1])
	})
	const longest = 300
	if len(line) > longest {
		cut := line[:longest]
		for !utf8.ValidString(cut) {
			cut = cut[:len(cut)-1]
		}
		line = cut + "…"
	}
	return "🔐 " + line + " · " + chat.Escape(p.ShortID)
}

// cardMail is a card for one approver.
type cardMail struct {
	pending *approval.Pending
	style   chat.Style
	texts   *catalog
	ceiling approval.Reversibility
	tag     string // "": the reply address carries the token
}

// longCard is the size, in bytes, above which a reply that quotes the complete card, as
// text and as HTML, may be too large to be read.
const longCard = 64 << 10

// notes are the notes below the card. blocked says on the card why it cannot be approved.
func (m *cardMail) notes(size int, complete, blocked bool) (notes []string) {
	p, w := m.pending, m.texts
	switch {
	case p.Type == approval.TypeQuestion:
		notes = append(notes, w.HowToAnswer)
	case blocked:
		notes = append(notes, w.HowToDeny)
	case !complete:
		notes = append(notes, chat.Format(w.Incomplete, "id", p.ShortID), w.HowToDeny)
	case exceeds(p.Reversibility, m.ceiling):
		notes = append(notes, w.aboveCeiling(p, m.ceiling), w.HowToDeny)
	default:
		notes = append(notes, w.HowTo)
	}
	if size > longCard {
		notes = append(notes, w.LongCard)
	}
	if m.tag != "" {
		notes = append(notes, m.tag)
	}
	return notes
}

// render returns the two parts of the email.
func (m *cardMail) render() (deliver.Message, error) {
	card := m.style.Card(m.pending)
	if m.pending.Type == approval.TypeQuestion && len(card.Menu) > 0 {
		card.Menu = card.Menu[:len(card.Menu)-1] // the last line does not apply to email
		card.Why = nil                           // a question is no ruling of the policy
	}
	text, complete := fitCard(card)
	blocked := card.Blocked != ""
	notes := m.notes(len(text), complete, blocked)
	page, err := cardHTML(card, text, notes, complete, m)
	lines := strings.Split(text+"\n\n"+strings.Join(notes, "\n\n"), "\n")
	return deliver.Message{Lines: lines, Page: page, Complete: complete && !blocked}, err
}

func fitCard(card chat.Card) (text string, complete bool) {
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
