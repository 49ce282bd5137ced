package telegram_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram"
)

// A key may name the one person whom its requests are for: nobody else's private
// chat hears of them, and a chat of several does.
func TestOnlyThePrincipalIsAsked(t *testing.T) {
	h := newRig(t, telegram.Place{Chat: ann, Person: "ann"}, telegram.Place{Chat: bob, Person: "bob"}, telegram.Place{Chat: family})
	h.start()
	one, two := keyIn(personal, 1), keyIn(personal, 2)
	body := `{"request_id":"` + one.ID + `",` + sentCopy + `}`
	_, err := h.gate.Submit(h.ctx, one, []byte(body), approval.Origin{ClientID: "0123456789ab", Principal: "ann"})
	require.NoError(t, err)
	h.waitForCard(one, ann)
	h.waitForCard(one, family)

	// What is for everybody comes later, and is the first that bob hears of.
	h.ask(two, bob, sentCopy)
	for _, m := range h.api.Messages(bob) {
		require.NotContains(t, m.Text, approval.ShortID(one.ID))
	}
}
