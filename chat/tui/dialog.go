package tui

import (
	"cmp"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// maxText is the longest text of a dialog, in characters.
const maxText = 4096

// dialog asks for a text or for Enter, below the card.
type dialog struct {
	name     string // for the hint about Tab
	sentence string // what Enter does
	label    string // before the text; "": no text
	text     []rune
	other    *dialog // the one that Tab shows
	harmless bool    // it decides nothing
	yes      string  // the hint for Enter; "": the usual one
	submit   func(text string) tea.Cmd
}

func (d *dialog) takesText() bool { return d.label != "" }

// identity is what a key decides about, besides the card.
func (d *dialog) identity() string { return d.sentence + "\n" + d.label }

// insert adds text as it would be typed. Nothing in it is a key.
func (d *dialog) insert(text string) {
	if !d.takesText() {
		return
	}
	for _, r := range strings.ReplaceAll(text, "\r\n", "\n") {
		switch {
		case len(d.text) >= maxText:
			return
		case r == '\n' || r == '\r' || r == '\t':
			d.text = append(d.text, ' ')
		case unicode.Is(unicode.M, r) && d.marks() == maxMarks: // a stack of them overlaps other rows
		case unicode.IsPrint(r):
			d.text = append(d.text, r)
		}
	}
}

// maxMarks is how many combining marks a letter of the text has at most.
const maxMarks = 4

// marks is the number of combining marks at the end of the text.
func (d *dialog) marks() (n int) {
	for n < len(d.text) && unicode.Is(unicode.M, d.text[len(d.text)-1-n]) {
		n++
	}
	return n
}

func (d *dialog) line() string { return d.label + ": " + string(d.text) }

// cursor is the place behind the text, from the dialog's first row.
func (d *dialog) cursor(width int) (x, y int) {
	rows := wrap([]line{{plain, d.line(), false}}, width)
	above := len(d.rows(width)) - len(rows)
	return min(width-1, textWidth(rows[len(rows)-1].text)), above + len(rows) - 1
}

func (d *dialog) rows(width int) []row {
	rows := []row{{dim, strings.Repeat("─", width)}}
	rows = append(rows, wrap([]line{{bold, d.sentence, true}}, width)...)
	if d.takesText() {
		rows = append(rows, wrap([]line{{plain, d.line(), false}}, width)...)
	}
	return rows
}

func (m *model) dialogRows() []row {
	if m.dialog == nil {
		return nil
	}
	rows := m.dialog.rows(m.width)
	enter := m.Keys.Yes
	if m.dialog.takesText() {
		enter = m.Keys.Send
	}
	keys := []string{cmp.Or(m.dialog.yes, enter), m.Keys.Cancel}
	if m.dialog.other != nil {
		keys = append(keys, "Tab "+m.dialog.other.name)
	}
	for _, text := range hintRows(keys, m.width) {
		rows = append(rows, row{dim, text})
	}
	return rows
}

// dialogKey handles a key of a dialog. Enter is dropped if the card and the dialog have not been on the screen long
// enough.
func (m *model) dialogKey(k tea.KeyPressMsg) tea.Cmd {
	d := m.dialog
	switch k.String() {
	case "esc":
		m.dialog = nil
	case "tab":
		if d.other != nil {
			d.other.text, d.other.other = d.text, d
			m.dialog = d.other
		}
	case "enter":
		if d.harmless || m.card == nil && m.barrier.counts(m.now()) || m.card != nil && m.counts() {
			return d.submit(strings.TrimSpace(string(d.text)))
		}
	case "backspace":
		d.text = d.text[:max(0, len(d.text)-1)]
	case "ctrl+u":
		d.text = nil
	default:
		d.insert(k.Text)
	}
	return nil
}

// textDialog asks for the text of a command.
func (m *model) textDialog(sentence string, command func(text string) chat.Command) *dialog {
	return &dialog{sentence: sentence, label: m.Text, submit: func(text string) tea.Cmd { return m.decide(command(text)) }}
}

// noteDialog asks for a note to the agent, or what it should do instead.
func (m *model) noteDialog() *dialog {
	note := &dialog{sentence: m.Note, label: m.Text, submit: func(text string) tea.Cmd {
		switch {
		case text == "":
			return nil
		case !m.card.endShown:
			m.say(warn, m.ReadOn)
			return nil
		}
		return m.approve(chat.Command{Kind: chat.Menu, Code: "4", Text: text}, "")
	}}
	change := m.textDialog(m.Change, func(text string) chat.Command { return chat.Command{Kind: chat.Menu, Code: "5", Text: text} })
	note.name, change.name = m.Scopes["note"], m.Scopes["change"]
	note.other, change.other = change, note
	if m.card != nil && m.card.stored.Pending.Editable != "" {
		edit := m.textDialog(m.Edit, func(text string) chat.Command {
			return chat.Command{Kind: chat.Menu, Code: approval.CodeEdit, Text: text}
		})
		edit.name = m.Scopes["edit"]
		change.other, edit.other = edit, note
	}
	return note
}

// questionDialog asks for a question. The facts answer it, or else the agent may, which ends the request.
func (m *model) questionDialog() *dialog {
	return &dialog{sentence: m.Question, label: m.Text, submit: func(text string) tea.Cmd {
		c := chat.Command{Kind: chat.Question, Text: text}
		msg, ok := m.message(c)
		m.dialog = nil
		if !ok {
			m.say(warn, m.NotUnderstood)
			return nil
		}
		if facts := m.Interceptor.AnswerFromFacts(msg); facts != "" {
			m.say(plain, facts)
			return nil
		}
		c.ToAgent = true
		m.dialog = &dialog{sentence: chat.Format(m.AskAgent, "text", chat.Quote(text)), submit: func(string) tea.Cmd { return m.decide(c) }}
		return nil
	}}
}

// wordDialog asks for a word before what cannot be undone.
func (m *model) wordDialog(approve func() tea.Cmd) *dialog {
	short := m.card.stored.Pending.ShortID
	return &dialog{
		sentence: chat.Format(m.Confirm, "word", m.Word, "id", chat.Escape(short)), label: m.Text,
		submit: func(text string) tea.Cmd {
			if !strings.EqualFold(text, m.Word) && !strings.EqualFold(text, short) {
				m.say(warn, chat.Format(m.OtherWord, "word", m.Word, "id", chat.Escape(short)))
				return nil
			}
			return approve()
		},
	}
}

// filterDialog asks for a part of what the list shows.
func (m *model) filterDialog() *dialog {
	return &dialog{label: m.FilterLabel, sentence: m.Keys.Filter, text: []rune(m.list.filter), harmless: true, submit: func(text string) tea.Cmd {
		m.list.filter, m.dialog = strings.ToLower(text), nil
		m.list.move(0, m.bodyHeight())
		return nil
	}}
}
