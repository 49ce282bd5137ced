package telegram_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// A conversation through an independent Bot API server: a card, a tap, a text, a prompt.
func TestThirdPartyServer(t *testing.T) {
	f := botapi.StartThirdParty(t)
	h := newRig(t)
	person := botapi.User{ID: ann, FirstName: "Ann", Username: "ann"}
	private := botapi.Chat{ID: ann, Type: botapi.Private, FirstName: "Ann"}
	h.start(func(c *channel) {
		c.ServerURL, c.Client, c.Token = f.URL, &botapi.JSONClient{}, f.Token
	})
	shown := func(what string, ok func(botapi.Message) bool) (found botapi.Message) {
		t.Helper()
		h.waitFor(what, func() bool {
			all, err := f.FromBot(h.ctx, ann)
			require.NoError(t, err)
			for _, m := range all {
				if ok(m) {
					found = m
					return true
				}
			}
			return false
		})
		return found
	}
	card := func(k approval.Key) botapi.Message {
		t.Helper()
		h.request(k, postRequest)
		m := shown("a card", func(m botapi.Message) bool {
			return strings.Contains(m.Text, approval.ShortID(k.ID)) && len(m.Buttons()) > 0
		})
		h.waitFor("the sent record", func() bool { return strings.Contains(h.record(k), `"state":"sent"`) })
		return m
	}

	one := keyIn(personal, 1)
	m := card(one)
	require.Equal(t, []string{"✅ Once", sessionButton, alwaysButton, "✎ Allow with a note", "✎ Change", "❌ Deny", "❓ Ask", "💡 Why?"}, m.Buttons())
	b, _ := m.Button("✅ Once")
	require.NoError(t, f.Tap(h.ctx, person, botapi.Message{ID: m.ID, Chat: private, Text: m.Text}, b.CallbackData))
	require.Equal(t, approval.StatusApproved, h.waitForResponse(one).Status)
	m = shown("the settled card", func(x botapi.Message) bool {
		return x.ID == m.ID && strings.Contains(x.Text, "✅ Approved by ann") && len(x.Buttons()) == 0
	})

	two := keyIn(personal, 2)
	card(two)
	require.NoError(t, f.Say(h.ctx, person, private, "deny a7000002 not now"))
	require.Equal(t, approval.StatusDenied, h.waitForResponse(two).Status)
	shown("the confirmation", func(x botapi.Message) bool { return strings.HasPrefix(x.Text, "Denied: ") })

	three := keyIn(personal, 3)
	m = card(three)
	b, _ = m.Button("✎ Allow with a note")
	require.NoError(t, f.Tap(h.ctx, person, botapi.Message{ID: m.ID, Chat: private, Text: m.Text}, b.CallbackData))
	shown("a prompt", func(x botapi.Message) bool { return strings.Contains(x.Text, "Reply to this message with your note") })
	require.Equal(t, approval.StatusApproved, func() approval.Status {
		require.NoError(t, f.Say(h.ctx, person, private, "approve a7000003"))
		return h.waitForResponse(three).Status
	}())
}
