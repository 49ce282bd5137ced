package telegram_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// The common case: a card, a tap, the action, and the outcome on the card.
func TestOneTap(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	require.True(t, strings.HasPrefix(m.Text, "🔐 May I post?\n\"Meeting at 5\" (~12 B)\n"), m.Text)
	require.True(t, strings.HasSuffix(m.Text, " · log 1042 9f3c"), m.Text)
	require.Equal(t, []string{"✅ Once", sessionButton, alwaysButton, "✎ Allow with a note", "✎ Change", "❌ Deny", "❓ Ask", "💡 Why?"}, m.Buttons())
	require.Contains(t, h.record(k), `"state":"sent"`)

	a := h.tap(ann, m, "✅ Once")
	require.Contains(t, a.Text, `Approved: post "Meeting at 5"`)
	require.False(t, a.Alert)
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
	require.Equal(t, 1, h.handler.count(k))
	m = h.waitForText(m, "✅ Approved by ann at ")
	require.Empty(t, m.Buttons())
	require.Equal(t, 1, m.Edits, "one edit shows both decision and outcome")
	h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
	require.Empty(t, h.api.State().Refused())
}

// Every button has the effect of its code.
func TestButtons(t *testing.T) {
	h := newRig(t)
	h.start()
	for i, tc := range []struct {
		button, answer, card string
		gives                string // the sentence of what it gives
		status               approval.Status
		ran                  int
	}{
		{"✅ Once", "Approved: post", "✅ Approved by ann at ", "", approval.StatusApproved, 1},
		{sessionButton, "Approved: post", "✅ Approved for this session by ann at ", "For this session: x_post to x.com/ricardo in personal", approval.StatusApproved, 1},
		{alwaysButton, "Approved: post", "✅ Approved always by ann at ", "Always: x_post to x.com/ricardo in personal, 90 days", approval.StatusApproved, 1},
		{"❌ Deny", "Denied: post", "❌ Denied by ann at ", "", approval.StatusDenied, 0},
	} {
		t.Run(tc.button, func(t *testing.T) {
			h.t = t
			k := keyIn(personal, 10+i)
			m := h.ask(k, ann, postRequest)
			said := h.tap(ann, m, tc.button).Text
			require.Contains(t, said, tc.answer)
			require.Contains(t, said, tc.gives)
			require.Equal(t, tc.status, h.waitForResponse(k).Status)
			require.Equal(t, tc.ran, h.handler.count(k))
			require.Contains(t, h.waitForText(m, tc.card).Text, tc.gives)
		})
	}
}

// The card shows a failure as well as the decision.
func TestCardShowsTheOutcome(t *testing.T) {
	h := newRig(t)
	h.handler.fail = "no network, http://evil.example/?x=1 says"
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	h.tap(ann, m, "✅ Once")
	m = h.waitForText(m, "failed")
	require.Contains(t, m.Text, "✅ Approved by ann at ")
	require.Contains(t, m.Text, "no network")
	h.requirePlain(m)
}

// requirePlain checks that only buttons are tappable in a message.
func (h *rig) requirePlain(m botapi.Message) {
	h.t.Helper()
	for _, e := range m.Entities {
		switch e.Type {
		case "bold", "code", "pre", "blockquote":
		default:
			require.Failf(h.t, "tappable entity", "%+v in\n%s", e, m.Text)
		}
	}
}

// The first decision wins. Later taps get the decision, and every copy shows it.
func TestFirstAnswerWins(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(ann, 0)}, deliver.Place{Address: at(bob, 0), Language: "it"})
	h.start()
	k := keyIn(personal, 1)
	toAnn := h.ask(k, ann, postRequest)
	toBob := h.waitForCard(k, bob)
	require.Contains(t, toBob.Text, "Vuoi che pubblichi su X?", "in the language of the place")
	require.Contains(t, toBob.Buttons(), "✅ Una volta")
	require.Contains(t, h.tap(bob, toBob, "❌ Nega").Text, "Negato")
	require.Equal(t, approval.StatusDenied, h.waitForResponse(k).Status)
	h.waitForText(toAnn, "❌ Denied by bob at ")
	h.waitForText(toBob, "❌ Negato da bob alle ")

	data := toAnn.Keyboard.InlineKeyboard[0][0].CallbackData
	late := h.waitForAnswer(h.api.TapData(ann, ann, toAnn.ID, data))
	require.Contains(t, late.Text, "Already denied by bob at ")
	require.True(t, late.Alert)
	require.Zero(t, h.handler.count(k))
}

// Two users tap at the same moment, many times: there is one decision each time, and the other user is told.
func TestRace(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(family, 0)})
	h.start()
	rounds := 40
	for i := range rounds {
		k := keyIn(personal, 100+i)
		m := h.ask(k, family, postRequest)
		var answers [2]botapi.Answer
		var wg sync.WaitGroup
		for j, who := range []int64{ann, bob} {
			button := []string{"✅ Once", "❌ Deny"}[(i+j)%2]
			b, ok := m.Button(button)
			require.True(t, ok)
			tap := h.api.TapData(who, family, m.ID, b.CallbackData)
			wg.Go(func() { answers[j] = h.waitForAnswer(tap) })
		}
		wg.Wait()
		won := 0
		for _, a := range answers {
			if strings.HasPrefix(a.Text, "Approved: ") || strings.HasPrefix(a.Text, "Denied: ") {
				won++
			} else {
				require.Regexp(t, "^(Already |Too late: )", a.Text)
			}
		}
		require.Equal(t, 1, won, "%+v", answers)
		h.waitForResponse(k)
		require.LessOrEqual(t, h.handler.count(k), 1)
	}
}

// A repeated tap is confirmed twice and decides once.
func TestRepeatedTap(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	b, _ := m.Button(sessionButton)
	first := h.waitForAnswer(h.api.TapData(ann, ann, m.ID, b.CallbackData))
	require.Contains(t, first.Text, "Approved: ")
	h.waitForResponse(k)
	again := h.waitForAnswer(h.api.TapData(ann, ann, m.ID, b.CallbackData))
	require.Equal(t, first.Text, again.Text, "the same confirmation")
	require.False(t, again.Alert)
	h.waitFor("the record to be removed or to wait for an undo", func() bool { return !strings.Contains(h.record(k), `"phase":"asked"`) })
	other, _ := m.Button("❌ Deny")
	late := h.waitForAnswer(h.api.TapData(ann, ann, m.ID, other.CallbackData))
	require.Contains(t, late.Text, "Already approved by ann at ")
	require.Equal(t, 1, h.handler.count(k))
}

// A late tap is answered with the outcome.
func TestLateTap(t *testing.T) {
	t.Parallel()
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest+`,"expires_in_sec":5`) // time enough to see the buttons
	require.Equal(t, approval.StatusExpired, h.waitForResponse(k).Status)
	h.waitForText(m, "⌛ Expired at ")
	late := h.waitForAnswer(h.api.TapData(ann, ann, m.ID, m.Keyboard.InlineKeyboard[0][0].CallbackData))
	require.Contains(t, late.Text, "Already expired")
	require.Zero(t, h.handler.count(k))

	k = keyIn(personal, 2)
	m = h.ask(k, ann, postRequest)
	h.decideAsOperator(k, approval.Denied)
	m = h.waitForText(m, "❌ Denied by operator:root at ")
	require.Contains(t, m.Text, "(cli)")
	require.Empty(t, m.Buttons())
}

func TestUndo(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(family, 0)})
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, family, postRequest)
	h.tap(ann, m, alwaysButton)
	h.waitForResponse(k)
	h.revoker.grants = append(h.revoker.grants, grant.Grant{ID: k.ID, Terms: approval.Terms{Workspace: personal}, By: "ann"})
	m = h.waitForEdit(m, "an undo button", func(m botapi.Message) bool { return strings.Contains(strings.Join(m.Buttons(), ""), "↩ Undo") })
	require.Equal(t, []string{"↩ Undo"}, m.Buttons())

	require.Equal(t, "You are not an approver here.", h.tap(eve, m, "↩ Undo").Text)
	a := h.tap(bob, m, "↩ Undo")
	require.Contains(t, a.Text, "Revoked: a7000001")
	m = h.waitForText(m, "↩ grant revoked")
	require.Empty(t, m.Buttons())
	require.Equal(t, "1002", h.revoker.grants[0].RevokedBy)
	h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
}

// The answer to a tap is sent again after a failure, in the next session too. The decision counts once.
func TestAnswersAreRetried(t *testing.T) {
	h := newRig(t)
	h.start()
	one, two := keyIn(personal, 1), keyIn(personal, 2)
	m := h.ask(one, ann, postRequest)
	h.api.Fail("answerCallbackQuery", botapi.Fault{Kind: botapi.BadGateway, Times: 3})
	require.Contains(t, h.tap(ann, m, "✅ Once").Text, "Approved: ")

	m = h.ask(two, ann, postRequest)
	h.api.Fail("answerCallbackQuery", botapi.Fault{Kind: botapi.Offline})
	tap, err := h.api.Tap(ann, ann, m.ID, "✅ Once")
	require.NoError(t, err)
	require.Equal(t, approval.StatusApproved, h.waitForResponse(two).Status)
	h.stopChannel()
	h.api.ClearFaults()
	h.start()
	require.Contains(t, h.waitForAnswer(tap).Text, "Approved: ")
	require.Equal(t, 1, h.handler.count(two))
	h.waitFor("an empty journal", func() bool {
		names, err := h.channel().Updates.List()
		return err == nil && !strings.Contains(strings.Join(names, " "), "update-")
	})
}
