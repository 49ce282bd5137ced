package telegram

import (
	"testing"

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
