package email

import (
	_ "embed"
	"html/template"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/chat"
)

//go:embed card.html
var cardFile string

// cardPage is the HTML part: the same facts as the plain part, in the same order. It
// has no links, because spam filters follow links, and loads nothing.
var cardPage = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("card").Funcs(template.FuncMap{"style": lineStyle}).Parse(cardFile))
})

func cardHTML(card chat.Card, text string, notes []string, complete bool, m *cardMail) (string, error) {
	var b strings.Builder
	err := cardPage().Execute(&b, map[string]any{
		"Language": chat.Language(m.style.Language), "Card": card, "Complete": complete, "Text": text, "Notes": notes, "Says": m.texts.AgentWords,
		"Facts": append([]string{card.Object, card.Meta}, card.Warnings...), "Asked": m.texts.WhyAsked, "Changes": strings.Join(card.Changes, "\n"), "Prose": strings.Join(card.Prose, "\n"),
	})
	return b.String(), err
}

// lineStyle is how a line of what would run looks.
func lineStyle(k chat.LineKind) template.CSS {
	switch k {
	case chat.LineStrong:
		return "font-weight: bold; font-size: larger"
	case chat.LineWarn:
		return "font-weight: bold; color: #a40"
	case chat.LineAdded:
		return "background: #dfd; color: #030"
	case chat.LineRemoved:
		return "background: #fdd; color: #400"
	case chat.LineSame:
		return "color: #777"
	}
	return ""
}
