package telegram_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// The main road: a card, a tap, the deed, and a card that says so.
func TestOneTap(t *testing.T) {
	h := newHouse(t)
	h.open()
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	require.True(t, strings.HasPrefix(m.Text, "🔐 Approval required · personal · x_post · a7000001\nMay I post?\n\"Meeting at 5\" (~12 B)\n"), m.Text)
	require.True(t, strings.HasSuffix(m.Text, " · log 1042 9f3c"), m.Text)
	require.Equal(t, []string{"✅ Once", "✅ This session", "✅ Always", "✎ Allow with a note", "✎ Change", "❌ Deny", "❓ Ask"}, m.Buttons())
	require.Contains(t, h.page(k), `"state":"sent"`)

	a := h.taps(ann, m, "✅ Once")
	require.Contains(t, a.Text, `Approved: post "Meeting at 5"`)
	require.False(t, a.Alert)
	require.Equal(t, approval.StatusApproved, h.settled(k).Status)
	require.Equal(t, 1, h.hands.count(k))
	m = h.says(m, "✅ Approved by ann at ")
	require.Empty(t, m.Buttons())
	require.Equal(t, 1, m.Edits, "one edit tells who decided and how it ended")
	h.until("the end of the page", func() bool { return h.page(k) == "" })
	require.Empty(t, h.api.State().Refused())
}

// Every button does what its code would do.
func TestButtons(t *testing.T) {
	h := newHouse(t)
	h.open()
	for i, tc := range []struct {
		button, answer, card string
		status               approval.Status
		ran                  int
	}{
		{"✅ Once", "Approved: post", "✅ Approved by ann at ", approval.StatusApproved, 1},
		{"✅ This session", "Approved: post", "✅ Approved for this session by ann at ", approval.StatusApproved, 1},
		{"✅ Always", "Approved: post", "✅ Approved always by ann at ", approval.StatusApproved, 1},
		{"❌ Deny", "Denied: post", "❌ Denied by ann at ", approval.StatusDenied, 0},
	} {
		t.Run(tc.button, func(t *testing.T) {
			h.t = t
			k := keyIn(personal, 10+i)
			m := h.asks(k, ann, post)
			require.Contains(t, h.taps(ann, m, tc.button).Text, tc.answer)
			require.Equal(t, tc.status, h.settled(k).Status)
			require.Equal(t, tc.ran, h.hands.count(k))
			h.says(m, tc.card)
		})
	}
}

// A failure is told on the card, and so is what the decision was.
func TestTheCardTellsTheOutcome(t *testing.T) {
	h := newHouse(t)
	h.hands.fail = "no network, http://evil.example/?x=1 says"
	h.open()
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	h.taps(ann, m, "✅ Once")
	m = h.says(m, "failed")
	require.Contains(t, m.Text, "✅ Approved by ann at ")
	require.Contains(t, m.Text, "no network")
	h.requirePlain(m)
}

// requirePlain holds that nothing in a message can be tapped on but our buttons.
func (h *house) requirePlain(m botapi.Message) {
	h.t.Helper()
	for _, e := range m.Entities {
		switch e.Type {
		case "bold", "code", "pre", "blockquote":
		default:
			require.Failf(h.t, "something to tap on", "%+v in\n%s", e, m.Text)
		}
	}
}

// Who answers first wins, wherever; the others hear who it was, and every card says so.
func TestFirstAnswerWins(t *testing.T) {
	h := newHouse(t, telegram.Place{Chat: ann}, telegram.Place{Chat: bob, Language: "it"})
	h.open()
	k := keyIn(personal, 1)
	toAnn := h.asks(k, ann, post)
	toBob := h.card(k, bob)
	require.Contains(t, toBob.Text, "Vuoi che pubblichi su X?", "each in their own language")
	require.Contains(t, toBob.Buttons(), "✅ Una volta")
	require.Contains(t, h.taps(bob, toBob, "❌ Nega").Text, "Negato")
	require.Equal(t, approval.StatusDenied, h.settled(k).Status)
	h.says(toAnn, "❌ Denied by bob at ")
	h.says(toBob, "❌ Negato da bob alle ")

	data := toAnn.Keyboard.Rows[0][0].CallbackData
	late := h.answer(h.api.TapData(ann, ann, toAnn.ID, data))
	require.Contains(t, late.Text, "Already denied by bob at ")
	require.True(t, late.Alert)
	require.Zero(t, h.hands.count(k))
}

// Two people tap at the same moment, over and over: there is one decision each time, and the other one is
// told.
func TestARace(t *testing.T) {
	h := newHouse(t, telegram.Place{Chat: family})
	h.open()
	rounds := 40
	for i := range rounds {
		k := keyIn(personal, 100+i)
		m := h.asks(k, family, post)
		var answers [2]botapi.Answer
		var wg sync.WaitGroup
		for j, who := range []int64{ann, bob} {
			button := []string{"✅ Once", "❌ Deny"}[(i+j)%2]
			b, ok := m.Button(button)
			require.True(t, ok)
			tap := h.api.TapData(who, family, m.ID, b.CallbackData)
			wg.Go(func() { answers[j] = h.answer(tap) })
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
		h.settled(k)
		require.LessOrEqual(t, h.hands.count(k), 1)
	}
}

// A tap that comes twice is confirmed twice and decides once.
func TestATapThatComesTwice(t *testing.T) {
	h := newHouse(t)
	h.open()
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	b, _ := m.Button("✅ This session")
	first := h.answer(h.api.TapData(ann, ann, m.ID, b.CallbackData))
	require.Contains(t, first.Text, "Approved: ")
	h.settled(k)
	again := h.answer(h.api.TapData(ann, ann, m.ID, b.CallbackData))
	require.Equal(t, first.Text, again.Text, "the same words, not a reproach")
	require.False(t, again.Alert)
	h.until("the page to go or to wait for an undo", func() bool { return !strings.Contains(h.page(k), `"phase":"asked"`) })
	other, _ := m.Button("❌ Deny")
	late := h.answer(h.api.TapData(ann, ann, m.ID, other.CallbackData))
	require.Contains(t, late.Text, "Already approved by ann at ")
	require.Equal(t, 1, h.hands.count(k))
}

// A tap after the end hears of it, whether it expired or was taken back.
func TestALateTap(t *testing.T) {
	h := newHouse(t)
	h.open()
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post+`,"expires_in_sec":5`) // time enough to see it with its buttons
	require.Equal(t, approval.StatusExpired, h.settled(k).Status)
	h.says(m, "⌛ Expired at ")
	late := h.answer(h.api.TapData(ann, ann, m.ID, m.Keyboard.Rows[0][0].CallbackData))
	require.Contains(t, late.Text, "Already expired")
	require.Zero(t, h.hands.count(k))

	k = keyIn(personal, 2)
	m = h.asks(k, ann, post)
	h.operator(k, approval.Denied)
	m = h.says(m, "❌ Denied by operator:root at ")
	require.Contains(t, m.Text, "(cli)")
	require.Empty(t, m.Buttons())
}

func TestUndo(t *testing.T) {
	h := newHouse(t, telegram.Place{Chat: family})
	h.open()
	k := keyIn(personal, 1)
	m := h.asks(k, family, post)
	h.taps(ann, m, "✅ Always")
	h.settled(k)
	h.revoker.grants = append(h.revoker.grants, approval.Grant{ID: k.ID, Workspace: personal, Kind: approval.GrantRule, ActionType: "send_message", By: "ann"})
	m = h.becomes(m, "an undo button", func(m botapi.Message) bool { return strings.Contains(strings.Join(m.Buttons(), ""), "↩ Undo") })
	require.Equal(t, []string{"↩ Undo"}, m.Buttons())

	require.Equal(t, "You are not an approver here.", h.taps(eve, m, "↩ Undo").Text)
	a := h.taps(bob, m, "↩ Undo")
	require.Contains(t, a.Text, "Revoked: a7000001")
	m = h.says(m, "↩ taken back")
	require.Empty(t, m.Buttons())
	require.Equal(t, "1002", h.revoker.grants[0].RevokedBy)
	h.until("the end of the page", func() bool { return h.page(k) == "" })
}
