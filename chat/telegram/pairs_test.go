package telegram

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/cardtest"
	"github.com/permesso-dev/permesso/chat/deliver"
)

// Nothing of what would run is hidden on a message with an approve button.
func TestHostilePairsInTelegram(t *testing.T) {
	nonces := map[string]string{"1": "n", "2": "n", "3": "n", "4": "n", "6": "n", "?": "n"}
	cardtest.Run(t, cardtest.Style(t, false), func(style chat.Style, p *approval.Pending) (forms []string, approvable bool) {
		msg := deliver.Card(style, p, nonces, maxText, false)
		text, _ := layOut(msg)
		for _, row := range msg.Buttons {
			for _, b := range row {
				approvable = approvable || b.Data[0] == '1'
			}
		}
		return []string{text}, approvable
	})
}

// No part of a secret is in a message, and none that is withheld can be approved.
func TestNoSecretLeavesByTelegram(t *testing.T) {
	nonces := map[string]string{"1": "n", "2": "n", "3": "n", "4": "n", "5": "n", "6": "n", "?": "n", "all": "n"}
	style := cardtest.Style(t, false)
	for _, s := range cardtest.SecretiveRequests() {
		msg := deliver.Card(style, s.Pending, nonces, maxText, true)
		text, _ := layOut(msg)
		s.RequireHidden(t, "the message", text)
		blocked := style.Card(s.Pending).Blocked != ""
		for _, b := range slices.Concat(msg.Buttons...) {
			s.RequireHidden(t, "a button", b.Text)
			if blocked {
				require.Contains(t, "35?", b.Data[:1], s.Name)
			}
		}
	}
}
