package telegram

import "github.com/permesso-dev/permesso/chat"

// setupCatalog holds the texts that Setup sends.
type setupCatalog struct {
	title, card, tap, works                   string // {workspace}
	tapArrived, tapped, notTapped, notAllowed string
	codeMissing                               string
}

func setupCatalogFor(language string) *setupCatalog {
	if chat.Language(language) == "it" {
		return &setupCatalog{
			title: "🔐 Scheda di prova", card: "Qui permesso chiederà per lo spazio {workspace}. Nulla aspetta e nulla viene eseguito.",
			tap: "Tocca il pulsante, perché si veda che la tua risposta arriva.", works: "✅ Funziona",
			tapArrived: "Il tuo tocco è arrivato.", tapped: "✅ Toccata: la tua risposta arriva.", notTapped: "Nessuno l'ha toccata in tempo.",
			notAllowed:  "Qui non c'è nulla per te.",
			codeMissing: "Manca il numero che permesso telegram setup mostra nel terminale: /start e quel numero.",
		}
	}
	return &setupCatalog{
		title: "🔐 Test card", card: "This is where permesso will ask about workspace {workspace}. Nothing waits, and nothing runs.",
		tap: "Tap the button, so that it shows whether your answer gets through.", works: "✅ It works",
		tapArrived: "Your tap got through.", tapped: "✅ Tapped: your answer gets through.", notTapped: "Nobody tapped in time.",
		notAllowed:  "There is nothing here for you.",
		codeMissing: "The number is missing that permesso telegram setup shows in the terminal: /start and that number.",
	}
}
