package main

import (
	"testing"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/cardtest"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// Nothing of what would run is hidden on the card that show prints and approve asks about.
func TestHostilePairsOfShow(t *testing.T) {
	style := chat.Style{Redact: home.NewRedaction(), Local: true}
	cardtest.Run(t, style, func(style chat.Style, p *approval.Pending) (forms []string, approvable bool) {
		return []string{style.Card(p).String()}, true
	})
}
