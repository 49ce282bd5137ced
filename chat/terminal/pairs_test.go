package terminal

import (
	"bytes"
	"testing"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/cardtest"
)

// Nothing of what would run is hidden on the terminal.
func TestHostilePairsOnTheTerminal(t *testing.T) {
	cardtest.Run(t, cardtest.Style(t, true), func(style chat.Style, p *approval.Pending) (forms []string, approvable bool) {
		var out bytes.Buffer
		v := (&Channel{Out: &out, Style: style}).newView()
		v.card(approval.StoredPending{Pending: p})
		v.flush()
		return []string{out.String()}, true
	})
}
