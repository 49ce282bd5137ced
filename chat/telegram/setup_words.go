package telegram

import "github.com/permesso-dev/permesso/chat"

// setupWords are what people read of the setup in their chats.
type setupWords struct {
	title, card, tap, works           string // {workspace}
	through, tapped, nobody, notYours string
	almost                            string
}

func setupWordsIn(language string) *setupWords {
	if chat.Language(language) == "it" {
		return &setupWords{
			title: "🔐 Scheda di prova", card: "Qui permesso chiederà per lo spazio {workspace}. Nulla aspetta e nulla viene eseguito.",
			tap: "Tocca il pulsante, perché si veda che la tua risposta arriva.", works: "✅ Funziona",
			through: "Il tuo tocco è arrivato.", tapped: "✅ Toccata: la tua risposta arriva.", nobody: "Nessuno l'ha toccata in tempo.",
			notYours: "Qui non c'è nulla per te.",
			almost:   "Manca il numero che permesso telegram setup mostra nel terminale: /start e quel numero.",
		}
	}
	return &setupWords{
		title: "🔐 Test card", card: "This is where permesso will ask about workspace {workspace}. Nothing waits, and nothing runs.",
		tap: "Tap the button, so that it shows whether your answer gets through.", works: "✅ It works",
		through: "Your tap got through.", tapped: "✅ Tapped: your answer gets through.", nobody: "Nobody tapped in time.",
		notYours: "There is nothing here for you.",
		almost:   "The number is missing that permesso telegram setup shows in the terminal: /start and that number.",
	}
}
