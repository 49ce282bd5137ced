package terminal

import (
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// words are the sentences that only this channel says; {} is filled in.
type words struct {
	welcome   string
	help      string
	whichCard string
	newCard   string // {}: its short id
	tooLong   string
	inputOver string
	running   string // {}: short id
	resumed   string // {}: workspace
	waiting   string // {}: how many
}

func catalogue(language string) *words {
	if chat.Language(language) == "it" {
		return italian()
	}
	return english()
}

func fill(sentence, with string) string { return strings.Replace(sentence, "{}", with, 1) }

func english() *words {
	return &words{
		welcome:   "Requests that wait for you appear here. Write help for what you can answer.",
		help:      "approve <id> · deny <id> [reason] · undo <id> · pending · help\nor, for the card shown last: 1 once · 2 session · 3 [reason] deny · 4 <note> · 5 <change> · 6 always · ? <question>",
		whichCard: "Unclear, nothing was decided. Name the request (approve <id>), or write help.",
		newCard:   "A new card has just appeared: {}. Type that again if you mean this one, or name the request.",
		tooLong:   "That line is too long: nothing was decided.",
		inputOver: "Nothing more can be typed here. Cards are still shown; decide with: permesso approve <id>",
		running:   "{} · decided; the outcome follows",
		resumed:   "{} ▶ resumed: what was held runs",
		waiting:   "Still waiting: {} (write pending)",
	}
}

func italian() *words {
	return &words{
		welcome:   "Le richieste che aspettano te appaiono qui. Scrivi help per sapere come rispondere.",
		help:      "approve <id> · deny <id> [motivo] · undo <id> · pending · help\noppure, per l'ultima scheda mostrata: 1 una volta · 2 sessione · 3 [motivo] nega · 4 <nota> · 5 <modifica> · 6 sempre · ? <domanda>",
		whichCard: "Non è chiaro, nulla è stato deciso. Nomina la richiesta (approve <id>) oppure scrivi help.",
		newCard:   "È appena apparsa una nuova scheda: {}. Ripeti se intendi questa, oppure nomina la richiesta.",
		tooLong:   "La riga è troppo lunga: nulla è stato deciso.",
		inputOver: "Qui non si può più scrivere. Le schede appaiono ancora; decidi con: permesso approve <id>",
		running:   "{} · deciso; segue l'esito",
		resumed:   "{} ▶ si riprende: quel che era in attesa viene eseguito",
		waiting:   "Ancora in attesa: {} (scrivi pending)",
	}
}
