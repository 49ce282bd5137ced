package telegram

import (
	"slices"
	"strings"

	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
)

// Telegram's limits on messages, in UTF-16 code units.
const (
	maxText      = 4096 // of a message
	maxTapAnswer = 200  // of the answer to a tap
)

// The formats in use. parse_mode is never set: formats are given by offsets, so no text can format itself.
const (
	bold  = models.MessageEntityTypeBold
	code  = models.MessageEntityTypeCode
	block = models.MessageEntityTypePre
	quote = models.MessageEntityTypeBlockquote
	fold  = models.MessageEntityTypeExpandableBlockquote
)

// writer builds a text line by line, with the offsets of its formats in UTF-16 code units.
type writer struct {
	b        strings.Builder
	at       int
	entities []models.MessageEntity
}

// line writes a line with a format, or with none.
func (w *writer) line(format models.MessageEntityType, s string) {
	w.lines([]models.MessageEntityType{format}, []string{s})
}

// lines writes lines as one block with all these formats, the outermost first.
func (w *writer) lines(formats []models.MessageEntityType, lines []string) {
	if len(lines) == 0 {
		return
	}
	if w.b.Len() > 0 {
		w.put("\n")
	}
	from := w.at
	w.put(strings.Join(lines, "\n"))
	for _, f := range formats {
		if f != "" && w.at > from {
			w.entities = append(w.entities, models.MessageEntity{Type: f, Offset: from, Length: w.at - from})
		}
	}
}

// untrusted writes a line that may hold text from an agent. It is formatted as code if Telegram might make part
// of it tappable.
func (w *writer) untrusted(format models.MessageEntityType, s string) {
	if tappable(s) {
		format = code
	}
	w.line(format, s)
}

// some writes a line, if it is not empty.
func (w *writer) some(format models.MessageEntityType, s string) {
	if s != "" {
		w.untrusted(format, s)
	}
}

// runs writes what would run: a warning as a line of its own, what matters most in bold, and all else in fixed
// width.
func (w *writer) runs(lines []chat.Line) {
	var fixed []string
	flush := func() {
		w.lines([]models.MessageEntityType{block}, fixed)
		fixed = nil
	}
	for _, l := range lines {
		switch l.Kind {
		case chat.LineWarn:
			flush()
			w.untrusted("", l.Text)
		case chat.LineStrong:
			flush()
			w.untrusted(bold, l.Text)
		default:
			fixed = append(fixed, l.Text)
		}
	}
	flush()
}

func (w *writer) put(s string) {
	w.b.WriteString(s)
	w.at += chat.Units(s)
}

// tappable reports whether Telegram might turn a part of s into a link, a mention, a command or a phone number.
// A link that an agent wrote would look like the gate's. False positives are harmless.
func tappable(s string) bool {
	digits, runes := 0, []rune(s+" ")
	for i, r := range runes[:len(runes)-1] {
		next := runes[i+1]
		switch {
		case strings.ContainsRune("@#$+\\", r), r == '/' && continuesLink(next), r == '.' && continuesLink(next), r == ':' && next == '/':
			return true
		case r >= '0' && r <= '9':
			if digits++; digits >= 10 {
				return true
			}
		case strings.ContainsRune(" -().", r): // allowed between the digits of a phone number
		default:
			digits = 0
		}
	}
	return false
}

// continuesLink reports whether r, after a dot or a slash, could continue a link or a command.
func continuesLink(r rune) bool {
	return r != ' ' && r != '\n' && !strings.ContainsRune(`,;:!?)]}"'…·|`, r)
}

// layOut formats a card: head in bold, payload in a fixed-width block, the agent's prose as a quotation; what the buttons
// repeat and where the request is from, folded. Telegram parses no part of it.
func layOut(m deliver.Message) (text string, entities []models.MessageEntity) {
	w := &writer{}
	if m.Card == nil {
		for _, line := range m.Lines {
			w.untrusted("", line)
		}
		return w.b.String(), w.entities
	}
	c := m.Card
	w.untrusted(bold, c.Question)
	for _, line := range append([]string{c.Object, c.Meta}, c.Warnings...) {
		w.some("", line)
	}
	for _, k := range c.Evidence {
		w.untrusted("", k.Text)
	}
	w.runs(c.Runs)
	w.lines([]models.MessageEntityType{block}, c.Changes)
	if slices.ContainsFunc(c.Prose, tappable) {
		w.lines([]models.MessageEntityType{quote, code}, c.Prose)
	} else {
		w.lines([]models.MessageEntityType{quote}, c.Prose)
	}
	w.some(bold, c.Blocked)
	var codes []string
	for _, line := range c.Menu {
		if c.ListsCodes(line) {
			codes = append(codes, line)
		} else {
			w.untrusted("", line)
		}
	}
	w.some("", m.More)
	if c.Typed == "" {
		w.some("", c.Foot)
	} else {
		w.folded(append(codes, c.Typed, c.Foot))
	}
	return w.b.String(), w.entities
}

// folded writes lines as a quotation that opens with a tap. Nothing that decides may be in it.
func (w *writer) folded(lines []string) {
	from, first := w.at, len(w.entities)
	if w.b.Len() > 0 {
		from++ // the line break
	}
	for _, line := range lines {
		w.some("", line)
	}
	w.entities = slices.Insert(w.entities, first, models.MessageEntity{Type: fold, Offset: from, Length: w.at - from})
}
