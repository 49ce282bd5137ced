package email

import (
	_ "embed"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

//go:embed card.html
var cardFile string

// cardPage is the HTML part: the same facts as the plain part, and buttons. It loads
// nothing. Its only links are mailto links: a program that follows links decides nothing.
// Each style is in the element, for mail programs that drop the style sheet. The sheet
// holds the dark colors.
var cardPage = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("card").Funcs(template.FuncMap{"style": lineStyle, "class": lineClass}).Parse(cardFile))
})

// pageData is what the template shows.
type pageData struct {
	Language string
	Card     chat.Card
	Complete bool
	Text     string // of the card, if it is not complete
	Refusal  string // why it cannot be approved
	Notes    []string
	Options  []string // of a question, if a button cuts one
	Codes    []code
	Buttons  [][]mailButton // rows
	Blocks   [][]chat.Line  // of what would run
	Hang     bool           // each line is a block, whose continuation is indented
	Final    bool           // it cannot be undone
	Says     string
	Asked    string
	Other    string
	Hint     string
}

func (m *cardMail) page(d *pageData) (string, error) {
	question := m.pending.Type == approval.TypeQuestion
	d.Language, d.Final = chat.Language(m.style.Language), !question && knownReversibility(m.pending.Reversibility) == approval.Irreversible
	isCut := func(row []mailButton) bool { return row[0].Cut }
	if slices.ContainsFunc(d.Buttons, isCut) {
		d.Options = d.Card.Menu
	}
	d.Blocks = [][]chat.Line{d.Card.Runs}
	if d.Hang = len(d.Card.Runs) <= maxHanging; d.Hang {
		d.Blocks = slices.Collect(slices.Chunk(d.Card.Runs, 1))
	}
	d.Says, d.Asked, d.Other, d.Hint = m.texts.AgentWords, m.texts.WhyAsked, m.texts.OtherCodes, m.texts.Buttons.Hint
	var b strings.Builder
	err := cardPage().Execute(&b, d)
	return b.String(), err
}

// maxHanging limits the size of the page: a block is a hundred bytes.
const maxHanging = 1000

// mailButton is a link that opens a reply.
type mailButton struct {
	Label, Link string
	Deny, Cut   bool
}

// buttons are the rows of buttons: an approval beside a denial, or one row for each option of a question.
func (m *cardMail) buttons(approvable bool) (rows [][]mailButton) {
	w := m.texts.Buttons
	deny := mailButton{Label: w.Deny, Link: m.link("deny"), Deny: true}
	if m.pending.Type == approval.TypeQuestion {
		for i, o := range m.pending.Options {
			n := strconv.Itoa(i + 1)
			full := "✓ " + n + " · " + m.style.OneLine(m.pending, o)
			label := cutTo(full, maxButton, utf8.RuneCountInString)
			rows = append(rows, []mailButton{{Label: label, Link: m.link(n), Cut: label != full}})
		}
		return append(rows, []mailButton{deny})
	}
	if !approvable {
		return [][]mailButton{{deny}}
	}
	return [][]mailButton{{{Label: w.Approve, Link: m.link("approve")}, deny}}
}

const (
	maxButton = 60  // characters of an option on its button
	maxLinked = 900 // bytes of a subject in a link: some programs cut a link of 2000
)

// link opens a reply that has the subject of the card and begins with the answer (RFC 6068).
// A blank line separates what a mail program adds.
func (m *cardMail) link(answer string) string {
	size := func(s string) int { return len(percent(s)) }
	subject := cutTo("Re: "+headline(m.style, m.pending), maxLinked, size) + " " + m.tag
	return "mailto:" + strings.ReplaceAll(percent(m.to), "%40", "@") + "?subject=" + percent(subject) + "&body=" + percent(answer+"\r\n\r\n")
}

// percent encodes everything but letters, digits and "-._~". Some programs read a plus sign as a space.
func percent(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// lineStyle is how a line of what would run looks.
func lineStyle(k chat.LineKind) template.CSS {
	switch k {
	case chat.LineStrong:
		return "font-weight: bold; font-size: 16px"
	case chat.LineWarn:
		return "font-weight: bold; color: #8a3b00"
	case chat.LineAdded:
		return "background: #dafbe1; color: #0a3d1a"
	case chat.LineRemoved:
		return "background: #ffe2e0; color: #6b0f0a"
	case chat.LineLabel, chat.LineSame:
		return "color: #57606a"
	}
	return ""
}

// lineClass is the class for its dark colors.
func lineClass(k chat.LineKind) string {
	switch k {
	case chat.LineWarn:
		return "warn"
	case chat.LineAdded:
		return "added"
	case chat.LineRemoved:
		return "removed"
	case chat.LineLabel, chat.LineSame:
		return "quiet"
	}
	return ""
}
