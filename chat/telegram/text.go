package telegram

import (
	"strings"
	"unicode/utf16"

	"github.com/go-telegram/bot/models"
)

// Telegram's limits on what we send, in UTF-16 code units.
const (
	maxText  = 4096 // of a message
	maxToast = 200  // of the answer to a tap
)

// The formats that we use. There is no parse_mode anywhere: what is formatted is said by offsets, so no
// text can format itself.
const (
	bold  = models.MessageEntityTypeBold
	code  = models.MessageEntityTypeCode
	block = models.MessageEntityTypePre
	quote = models.MessageEntityTypeBlockquote
)

// writer makes a text line by line, with the places of its formats, which Telegram counts in UTF-16 code
// units.
type writer struct {
	b     strings.Builder
	at    int
	marks []models.MessageEntity
}

// line writes a line in a format, or in none.
func (w *writer) line(format models.MessageEntityType, s string) {
	w.lines([]models.MessageEntityType{format}, []string{s})
}

// lines writes some lines as one piece in all of these formats, the outermost first.
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
			w.marks = append(w.marks, models.MessageEntity{Type: f, Offset: from, Length: w.at - from})
		}
	}
}

// foreign writes a line that may hold what an agent wrote: in plain letters where Telegram would find
// nothing in it to tap on, and as code where it might.
func (w *writer) foreign(format models.MessageEntityType, s string) {
	if tappable(s) {
		format = code
	}
	w.line(format, s)
}

func (w *writer) put(s string) {
	w.b.WriteString(s)
	w.at += units(s)
}

// tappable says whether Telegram might make a link, a mention, a command or a phone number of a part of s.
// It does so in any text of ours, wherever the words come from: a link that an agent wrote would stand
// there as the gate's. It is better to say so once too often.
func tappable(s string) bool {
	digits, runes := 0, []rune(s+" ")
	for i, r := range runes[:len(runes)-1] {
		next := runes[i+1]
		switch {
		case strings.ContainsRune("@#$+\\", r), r == '/' && wordy(next), r == '.' && wordy(next), r == ':' && next == '/':
			return true
		case r >= '0' && r <= '9':
			if digits++; digits >= 10 {
				return true
			}
		case strings.ContainsRune(" -().", r): // stands between the digits of a number, too
		default:
			digits = 0
		}
	}
	return false
}

// wordy says whether r, which stands behind a dot or a slash, could go on a link or a command.
func wordy(r rune) bool {
	return r != ' ' && r != '\n' && !strings.ContainsRune(`,;:!?)]}"'…·|`, r)
}

// units is the length of s as Telegram counts it.
func units(s string) int {
	n := 0
	for _, r := range s {
		n += max(1, utf16.RuneLen(r))
	}
	return n
}

// cut shortens s to that many units, and shows that it did.
func cut(s string, most int) string {
	if units(s) <= most {
		return s
	}
	n := 0
	for i, r := range s {
		if n += max(1, utf16.RuneLen(r)); n > most-1 {
			return strings.TrimRight(s[:i], " \n") + "…"
		}
	}
	return s
}
