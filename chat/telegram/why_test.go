package telegram_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// One tap tells why a person is asked and decides nothing. A stranger learns nothing by it.
func TestWhy(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	const why = "💡 Why?"
	before := len(h.api.State().FromBot(ann))
	require.NotEmpty(t, h.tap(eve, m, why).Text, "the neutral refusal")
	require.Len(t, h.api.State().FromBot(ann), before, "a stranger's tap writes no message")

	h.tap(ann, m, why)
	told := h.waitForMessage(ann, "the reasons", func(x botapi.Message) bool {
		return x.ReplyTo != nil && x.ReplyTo.ID == m.ID
	})
	require.Contains(t, told.Text, "a7000001 needs your decision because:\nx_post: dangerous writes")
	story, err := h.viewer().Story(h.ctx, k)
	require.NoError(t, err)
	require.Nil(t, story.Decision)
	require.Zero(t, h.handler.count(k))

	h.tap(ann, m, "✅ Once")
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
	require.True(t, strings.HasPrefix(h.waitForText(m, "✅ Approved by ann at ").Text, "🔐 May I post?"))
}
