package terminal

import (
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// words are the sentences that only this channel says; {} is filled in.
type messages struct {
	welcome        string
	help           string
	nameRequest    string
	newCard        string // {}: its short id
	lineTooLong    string
	inputClosed    string
	outcomeFollows string // {}: short id
	resumed        string // {}: workspace
	stillWaiting   string // {}: how many
}

func catalog(language string) *messages {
	if chat.Language(language) == "it" {
		return italian()
	}
	return english()
}

func format(sentence, with string) string { return strings.Replace(sentence, "{}", with, 1) }

func english() *messages {
	return &messages{
		welcome:        "Requests that wait for you appear here. Write help for what you can answer.",
		help:           "approve <id> · deny <id> [reason] · undo <id> · pending · help\nor, for the card shown last: 1 once · 2 session · 3 [reason] deny · 4 <note> · 5 <change> · 6 always · ? <question>",
		nameRequest:    "Not understood, nothing was decided. Name the request (approve <id>), or write help.",
		newCard:        "A new card has just appeared: {}. Type that again if you mean this one, or name the request.",
		lineTooLong:    "That line is too long: nothing was decided.",
		inputClosed:    "Nothing more can be typed here. Cards are still shown; decide with: permesso approve <id>",
		outcomeFollows: "{} · decided; the outcome follows",
		resumed:        "{} ▶ resumed: what was held runs",
		stillWaiting:   "Still waiting: {} (write pending)",
	}
}

func italian() *messages {
	return &messages{
		welcome:        "Le richieste che aspettano te appaiono qui. Scrivi help per sapere come rispondere.",
		help:           "approve <id> · deny <id> [motivo] · undo <id> · pending · help\noppure, per l'ultima scheda mostrata: 1 una volta · 2 sessione · 3 [motivo] nega · 4 <nota> · 5 <modifica> · 6 sempre · ? <domanda>",
		nameRequest:    "Non è chiaro, nulla è stato deciso. Nomina la richiesta (approve <id>) oppure scrivi help.",
		newCard:        "È appena apparsa una nuova scheda: {}. Ripeti se intendi questa, oppure nomina la richiesta.",
		lineTooLong:    "La riga è troppo lunga: nulla è stato deciso.",
		inputClosed:    "Qui non si può più scrivere. Le schede appaiono ancora; decidi con: permesso approve <id>",
		outcomeFollows: "{} · deciso; segue l'esito",
		resumed:        "{} ▶ si riprende: quel che era in attesa viene eseguito",
		stillWaiting:   "Ancora in attesa: {} (scrivi pending)",
	}
}
