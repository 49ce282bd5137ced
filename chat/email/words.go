package email

import (
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// words are the sentences that only this channel says. Names in braces are
// filled in by fill. No line begins with what could be taken for an answer where
// it comes back as a quotation.
type words struct {
	howTo         string // below an action's card
	howToAnswer   string // below a question's card
	notWhole      string // {id}
	ceiling       string // {it}, {ceiling}
	reversibility map[string]string
	says          string // above the agent's own words, in the HTML part
	unclear       string // before howTo or howToAnswer
	doubt         string // {why}
	wrongToken    string
	otherRequest  string
	late          string // {outcome}
	gone          string
	answerWith    string // where a question was answered without the word
}

func catalogue(language string) *words {
	if chat.Language(language) == "it" {
		return italian()
	}
	return english()
}

// fill replaces the names in braces. What is filled in is never read again.
func fill(sentence string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "{" + pairs[i] + "}"
	}
	return strings.NewReplacer(pairs...).Replace(sentence)
}

func english() *words {
	return &words{
		howTo: "To answer, reply to this mail and begin with a code of the menu. These will do: 1, 2, 3, 3 <reason>, 4 <note>, 5 <change>, 6, " +
			"? <question>, approve, deny, deny <reason>. Only the first lines of the reply count, down to a blank line; what is quoted does not.",
		howToAnswer: "To answer, reply to this mail and begin with the number of an option, or with: answer <your words>. deny will do, too. " +
			"Only the first lines of the reply count, down to a blank line; what is quoted does not.",
		notWhole:      "✂ By mail this cannot be approved (codes 1, 2, 4 and 6), because the mail does not show all of it. See it with: permesso show {id}",
		ceiling:       "By mail this cannot be approved (codes 1, 2, 4 and 6): it is {it}, and here mail approves only what is {ceiling}. Deny it here, or answer elsewhere.",
		reversibility: map[string]string{"reversible": "reversible", "partial": "partly reversible", "irreversible": "irreversible"},
		says:          "In the agent's own words, which nobody has checked:",
		unclear:       "Unclear, nothing was decided.",
		doubt:         "Nothing was decided, because the mail could not be read for certain: {why}.",
		wrongToken:    "Nothing was decided: this mail does not carry the code of a card that was sent to you. Reply to the card itself, from the address that got it.",
		otherRequest:  "Nothing was decided: the request is no longer the one that the card shows.",
		late:          "Too late, nothing was changed. {outcome}",
		gone:          "Too late, nothing was changed: the request is settled.",
		answerWith:    "Unclear, nothing was answered.",
	}
}

func italian() *words {
	return &words{
		howTo: "Per rispondere, rispondi a questa mail e comincia con un codice del menu. Valgono: 1, 2, 3, 3 <motivo>, 4 <nota>, 5 <modifica>, 6, " +
			"? <domanda>, approve, deny, deny <motivo>. Contano solo le prime righe della risposta, fino a una riga vuota; ciò che è citato non conta.",
		howToAnswer: "Per rispondere, rispondi a questa mail e comincia con il numero di un'opzione, oppure con: answer <le tue parole>. Vale anche deny. " +
			"Contano solo le prime righe della risposta, fino a una riga vuota; ciò che è citato non conta.",
		notWhole:      "✂ Per mail non si può approvare (codici 1, 2, 4 e 6), perché la mail non mostra tutto. Per vedere tutto: permesso show {id}",
		ceiling:       "Per mail non si può approvare (codici 1, 2, 4 e 6): è {it}, e qui per mail si approva solo ciò che è {ceiling}. Nega qui, oppure rispondi altrove.",
		reversibility: map[string]string{"reversible": "reversibile", "partial": "reversibile in parte", "irreversible": "irreversibile"},
		says:          "Nelle parole dell'agente, che nessuno ha verificato:",
		unclear:       "Non è chiaro, nulla è stato deciso.",
		doubt:         "Nulla è stato deciso, perché la mail non si legge con certezza: {why}.",
		wrongToken:    "Nulla è stato deciso: questa mail non porta il codice di una scheda mandata a te. Rispondi alla scheda stessa, dall'indirizzo che l'ha ricevuta.",
		otherRequest:  "Nulla è stato deciso: la richiesta non è più quella che la scheda mostra.",
		late:          "Troppo tardi, nulla è cambiato. {outcome}",
		gone:          "Troppo tardi, nulla è cambiato: la richiesta è chiusa.",
		answerWith:    "Non è chiaro, nulla è stato risposto.",
	}
}
