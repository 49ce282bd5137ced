package email

import (
	"html/template"
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// cardPage is the HTML part: the same facts as the plain part, in the same order. It
// has no links, because spam filters follow links, and loads nothing.
var cardPage = template.Must(template.New("card").Parse(`<!DOCTYPE html>
<html lang="{{.Language}}"><head><meta charset="utf-8"><title>{{.Card.Head}}</title></head>
<body style="font-family: sans-serif; line-height: 1.4">
{{- if .Complete}}
<p style="font-weight: bold">{{.Card.Head}}</p>
{{range .Card.Facts}}<p style="margin: 0.3em 0">{{.}}</p>
{{end}}
{{- range .Card.Evidence}}<p style="margin: 0.3em 0">{{.Text}}</p>
{{end}}
{{- if .Payload}}<pre style="white-space: pre-wrap; padding: 0.6em; border: 1px solid #888">{{.Payload}}</pre>
{{end}}
{{- if .Changes}}<pre style="white-space: pre-wrap; padding: 0.6em; border: 1px dotted #888">{{.Changes}}</pre>
{{end}}
{{- if .Prose}}<div style="padding: 0.6em; border: 2px dashed #b60; color: #555">
<p style="margin: 0 0 0.4em; font-size: small">{{.Says}}</p>
<pre style="white-space: pre-wrap; margin: 0">{{.Prose}}</pre></div>
{{end}}
{{range .Card.Menu}}<p style="margin: 0.3em 0">{{.}}</p>
{{end}}<p style="font-weight: bold">{{.Card.Foot}}</p>
{{else}}
<pre style="white-space: pre-wrap">{{.Text}}</pre>
{{end}}
{{range .Notes}}<p style="font-size: small">{{.}}</p>
{{end}}</body></html>
`))

func cardHTML(card chat.Card, text string, notes []string, complete bool, m *cardMail) (string, error) {
	var b strings.Builder
	err := cardPage.Execute(&b, map[string]any{
		"Language": chat.Language(m.style.Language), "Card": card, "Complete": complete, "Text": text, "Notes": notes, "Says": m.texts.AgentWords,
		"Payload": strings.Join(card.Payload, "\n"), "Changes": strings.Join(card.Changes, "\n"), "Prose": strings.Join(card.Prose, "\n"),
	})
	return b.String(), err
}
