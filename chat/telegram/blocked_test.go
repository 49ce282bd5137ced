package telegram_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// unmaskable finds a private key in every request, and masks nothing.
type unmaskable struct{}

func (u unmaskable) For(*approval.Pending) chat.Redactor { return u }
func (unmaskable) Secrets(string) []chat.Span            { return nil }
func (unmaskable) Tokens(string) []chat.Span             { return nil }
func (unmaskable) Withheld(string) string                { return "" }
func (unmaskable) Unmaskable() []string                  { return []string{"private-key"} }

// What has a secret that no mask may hide is approved here by no button, reply or text.
func TestSecretThatCannotBeMasked(t *testing.T) {
	h := newRig(t)
	h.style = func(s *chat.Style) { s.Redact = unmaskable{} }
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	require.Contains(t, m.Text, "cannot be approved here")
	require.NotContains(t, m.Text, "approve "+approval.ShortID(k.ID)+"  /")
	for _, label := range m.Buttons() {
		require.NotContains(t, label, "✅")
		require.NotContains(t, label, "Allow")
	}
	for _, text := range []string{"1", "2", "4 fine", "6", "approve " + approval.ShortID(k.ID)} {
		sent := h.api.Reply(ann, ann, m.ID, text)
		require.Contains(t, h.waitForReply(sent).Text, "cannot be approved here", text)
	}
	sent := h.api.Say(ann, ann, "approve "+approval.ShortID(k.ID))
	require.Contains(t, h.waitForReply(sent).Text, "cannot be approved here")
	h.waitForReply(h.api.Reply(ann, ann, m.ID, "3 no"))
	require.Equal(t, approval.StatusDenied, h.waitForResponse(k).Status)
}
