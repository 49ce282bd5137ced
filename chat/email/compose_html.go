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
var cardPage = sync.OnceValue(func() *template.Template { return template.Must(template.New("card").Parse(cardFile)) })

func cardHTML(card chat.Card, text string, notes []string, complete bool, m *cardMail) (string, error) {
	var b strings.Builder
	err := cardPage().Execute(&b, map[string]any{
		"Language": chat.Language(m.style.Language), "Card": card, "Complete": complete, "Text": text, "Notes": notes, "Says": m.texts.AgentWords,
		"Payload": strings.Join(card.Payload, "\n"), "Changes": strings.Join(card.Changes, "\n"), "Prose": strings.Join(card.Prose, "\n"),
	})
	return b.String(), err
}
