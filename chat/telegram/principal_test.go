package telegram_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/submit"
	"github.com/permesso-dev/permesso/chat/deliver"
)

// An API key may name the one person whom its requests are for. Other private chats do not get its cards; group
// chats do.
func TestOnlyThePrincipalIsAsked(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(ann, 0), Person: "ann"}, deliver.Place{Address: at(bob, 0), Person: "bob"}, deliver.Place{Address: at(family, 0)})
	h.start()
	one, two := keyIn(personal, 1), keyIn(personal, 2)
	body := `{"request_id":"` + one.ID + `",` + postRequest + `}`
	_, err := h.gate.Submit(h.ctx, one, []byte(body), submit.Origin{ClientID: "0123456789ab", Principal: "ann"})
	require.NoError(t, err)
	h.waitForCard(one, ann)
	h.waitForCard(one, family)

	// A later request for everyone is the first card that bob gets.
	h.ask(two, bob, postRequest)
	for _, m := range h.api.Messages(bob) {
		require.NotContains(t, m.Text, approval.ShortID(one.ID))
	}
}
