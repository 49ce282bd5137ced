package telegram

import (
	"github.com/permesso-dev/permesso/chat"
)

// catalog holds the texts that only this service uses. Comments about them are in chat/messages/en.toml.
type catalog struct {
	Commands map[string]string
}

// setupCatalog holds the texts that Setup sends.
type setupCatalog struct {
	Title, Card, Tap, Works                   string
	TapArrived, Tapped, NotTapped, NotAllowed string
	CodeMissing                               string
}

func catalogFor(language string) *catalog { return chat.Messages[catalog](language, "telegram") }

func setupCatalogFor(language string) *setupCatalog {
	return chat.Messages[setupCatalog](language, "telegram_setup")
}
