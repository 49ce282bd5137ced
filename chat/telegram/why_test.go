package telegram_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/chat"
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

// A card that is over has no button. A tap on one that a phone still shows tells the outcome, and decides nothing.
func TestWhyOfASettledRequest(t *testing.T) {
	h := newRig(t)
	h.start()
	for i, tc := range []struct {
		verdict approval.Verdict
		says    string // the card
		late    string // the answer to a tap
	}{
		{approval.Approved, "✅ Approved by ", "^(✅ Approved|Already approved) by operator:root "},
		{approval.Denied, "❌ Denied by ", "^(❌ Denied|Already denied) by operator:root "},
		{approval.Cancelled, "⊘ Cancelled by ", "^(⊘ Cancelled|Already cancelled) by operator:root "},
		{approval.Expired, "⌛ Expired at ", "^(⌛ Expired at |Already expired )"},
	} {
		k := keyIn(personal, 1+i)
		members := postRequest
		if tc.verdict == approval.Expired {
			members += `,"expires_in_sec":4`
		}
		m := h.ask(k, ann, members)
		if tc.verdict == approval.Cancelled {
			by := approval.Person{Channel: "local", ID: "9", Name: "operator:root"}
			_, err := h.decider().Cancel(h.ctx, decide.Input{Key: k, By: by, Via: "cli"})
			require.NoError(t, err)
		} else if tc.verdict != approval.Expired {
			h.decideAsOperator(k, tc.verdict)
		}
		now := h.waitForText(m, tc.says)
		require.Empty(t, now.Buttons(), tc.says)
		h.waitForResponse(k)
		before, ran := len(h.api.State().FromBot(ann)), h.handler.count(k)
		for _, row := range m.Keyboard.InlineKeyboard {
			for _, b := range row {
				answer := h.waitForAnswer(h.api.TapData(ann, ann, m.ID, b.CallbackData))
				require.Regexp(t, tc.late, answer.Text, b.Text)
			}
		}
		require.Len(t, h.api.State().FromBot(ann), before, tc.says)
		require.Equal(t, ran, h.handler.count(k), tc.says)
	}
}

// A card that cannot be approved here has only buttons that do something.
func TestWhyOfABlockedCard(t *testing.T) {
	h := newRig(t)
	h.style = func(s *chat.Style) { s.Redact = unmaskable{} }
	h.start()
	m := h.ask(keyIn(personal, 1), ann, postRequest)
	require.Equal(t, []string{"✎ Change", "❌ Deny", "❓ Ask", "💡 Why?"}, m.Buttons())
	h.tap(ann, m, "💡 Why?")
	h.waitForMessage(ann, "the reasons", func(x botapi.Message) bool {
		return x.ReplyTo != nil && x.ReplyTo.ID == m.ID && strings.Contains(x.Text, "needs your decision because:")
	})
}
