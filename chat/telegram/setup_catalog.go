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
			title: "🔐 Scheda di prova", card: "In questa chat permesso chiederà le approvazioni per il workspace {workspace}. Nessuna richiesta è in attesa e non si esegue nulla.",
			tap: "Tocca il pulsante per verificare che la tua risposta arrivi.", works: "✅ Funziona",
			tapArrived: "Il tuo tocco è arrivato.", tapped: "✅ La tua risposta è arrivata.", notTapped: "Tempo scaduto: nessun tocco.",
			notAllowed:  "Questo pulsante non è per te.",
			codeMissing: "Il numero manca o è sbagliato. Scrivi /start e il numero che permesso telegram setup mostra nel terminale.",
		}
	}
	return &setupCatalog{
		title: "🔐 Test card", card: "In this chat permesso will ask for approvals in workspace {workspace}. No request is pending, and nothing runs.",
		tap: "Tap the button to check that your answer arrives.", works: "✅ It works",
		tapArrived: "Your tap arrived.", tapped: "✅ Your answer arrived.", notTapped: "Timeout: no tap.",
		notAllowed:  "This button is not for you.",
		codeMissing: "The number is missing or wrong. Write /start and the number that permesso telegram setup shows in the terminal.",
	}
}
