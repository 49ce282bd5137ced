package terminal

import (
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// messages are the sentences that only this channel uses. {} is a placeholder.
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
		welcome:        "Pending requests appear here. Type help for the commands.",
		help:           "approve <id> · deny <id> [reason] · undo <id> · pending · help\nor, for the card shown last: 1 once · 2 session · 3 [reason] deny · 4 <note> · 5 <change> · 6 always · ? <question>",
		nameRequest:    "Not understood, nothing was decided. Name the request (approve <id>), or type help.",
		newCard:        "A new card has just appeared: {}. Repeat the code for this card, or name the request.",
		lineTooLong:    "Line too long: nothing was decided.",
		inputClosed:    "Input closed. Cards are still shown; decide with: permesso approve <id>",
		outcomeFollows: "{} · decided; the outcome follows",
		resumed:        "{} ▶ resumed: paused requests run now",
		stillWaiting:   "Still pending: {} (type pending for the list)",
	}
}

func italian() *messages {
	return &messages{
		welcome:        "Le richieste in attesa appaiono qui. Scrivi help per i comandi.",
		help:           "approve <id> · deny <id> [motivo] · undo <id> · pending · help\noppure, per l'ultima scheda mostrata: 1 una volta · 2 sessione · 3 [motivo] nega · 4 <nota> · 5 <modifica> · 6 sempre · ? <domanda>",
		nameRequest:    "Non ho capito, nulla è stato deciso. Indica la richiesta (approve <id>) oppure scrivi help.",
		newCard:        "È appena apparsa una nuova scheda: {}. Ripeti il codice se intendi questa, oppure indica la richiesta.",
		lineTooLong:    "Riga troppo lunga: nulla è stato deciso.",
		inputClosed:    "Input chiuso. Le schede appaiono ancora; decidi con: permesso approve <id>",
		outcomeFollows: "{} · deciso; segue l'esito",
		resumed:        "{} ▶ pausa terminata: le richieste sospese vengono eseguite",
		stillWaiting:   "Ancora in attesa: {} (scrivi pending per l'elenco)",
	}
}
