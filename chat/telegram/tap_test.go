package telegram_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// The main road: a card, a tap, the deed, and a card that says so.
func TestOneTap(t *testing.T) {
	h := newHouse(t)
	h.open()
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	require.True(t, strings.HasPrefix(m.Text, "🔐 Approval required · personal · x_post · a7000001\nMay I post?\n\"Meeting at 5\" (~12 B)\n"), m.Text)
	require.Equal(t, []string{"✅ Once", "✅ This session", "✅ Always", "✎ Allow with a note", "✎ Change", "❌ Deny", "❓ Ask"}, m.Buttons())

	a := h.taps(ann, m, "✅ Once")
	require.Contains(t, a.Text, `Approved: post "Meeting at 5"`)
	require.False(t, a.Alert)
	require.Equal(t, approval.StatusApproved, h.settled(k).Status)
	require.Equal(t, 1, h.hands.count(k))
	m = h.says(m, "✅ Approved by ann at ")
	require.Empty(t, m.Buttons())
	h.until("the end of the page", func() bool { return h.page(k) == "" })
	require.Empty(t, h.api.State().Refused())
}
