package telegram_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// tokenFree holds that the token is nowhere that people read.
func (h *house) tokenFree() {
	h.t.Helper()
	_, secret, _ := strings.Cut(botapi.Token, ":")
	require.NotContains(h.t, h.logs(), secret)
	require.NotContains(h.t, h.trouble(), secret)
}

// Whatever keeps a card from being sent, it is sent as soon as that is over, and once where Telegram did
// not take it.
func TestOutages(t *testing.T) {
	for _, tc := range []struct {
		why    string
		fault  botapi.Fault
		copies int
	}{
		{"too many requests", botapi.Fault{Kind: botapi.TooMany, Times: 2}, 1},
		{"a proxy's page", botapi.Fault{Kind: botapi.BadGateway, Times: 3}, 1},
		{"cut off", botapi.Fault{Kind: botapi.Offline, Times: 3}, 1},
		{"sent, and the answer lost", botapi.Fault{Kind: botapi.AnswerLost, Times: 2}, 3},
	} {
		t.Run(tc.why, func(t *testing.T) {
			h := newHouse(t)
			h.api.Fail("sendMessage", tc.fault)
			h.open()
			k := keyIn(personal, 1)
			h.request(k, post)
			h.until("a card that is noted", func() bool { return strings.Contains(h.page(k), `"state":"sent"`) })
			cards := h.api.State().FromBot(ann)
			require.Len(t, cards, tc.copies)
			h.taps(ann, cards[0], "✅ Once") // also one that we do not know of
			require.Equal(t, approval.StatusApproved, h.settled(k).Status)
			require.Equal(t, 1, h.hands.count(k))
			h.says(cards[0], "✅ Approved by ann")
			h.tokenFree()
		})
	}
}

// Telegram is away for as long as it likes: what waits is asked when it is back, and people hear of it
// meanwhile from the gate itself.
func TestTelegramIsAway(t *testing.T) {
	h := newHouse(t)
	h.api.Close()
	h.open()
	k := keyIn(personal, 1)
	h.request(k, post)
	h.until("a complaint", func() bool { return strings.Contains(h.trouble(), "Telegram is not reached") })
	require.Contains(t, h.page(k), `"state":"sending"`)
	require.NoError(t, h.api.Listen())
	m := h.card(k, ann)
	h.taps(ann, m, "✅ Once")
	require.Equal(t, approval.StatusApproved, h.settled(k).Status)
	h.until("the end of the complaint", func() bool { return h.trouble() == "" })
	h.tokenFree()
}

// Away over a restart, too: what was not sent is in the notebook.
func TestTelegramIsAwayOverARestart(t *testing.T) {
	h := newHouse(t)
	h.api.Close()
	h.open()
	k := keyIn(personal, 1)
	h.request(k, post)
	h.until("the page", func() bool { return h.page(k) != "" })
	h.close()
	h.open()
	require.NoError(t, h.api.Listen())
	m := h.card(k, ann)
	require.Contains(t, h.taps(ann, m, "❌ Deny").Text, "Denied: ")
}

// An edit that fails is made good for.
func TestEditsAreRetried(t *testing.T) {
	h := newHouse(t)
	h.open()
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	h.api.Fail("editMessageText", botapi.Fault{Kind: botapi.BadGateway, Times: 5})
	h.taps(ann, m, "✅ Once")
	require.Empty(t, h.says(m, "✅ Approved by ann").Buttons())
}

// A chat that cannot be written to is told of, stays told of while something waits for it, and is tried
// again as soon as there is hope.
func TestAChatThatCannotBeWrittenTo(t *testing.T) {
	for _, tc := range []struct {
		why, want string
		spoil     func(h *house)
		mend      func(h *house)
	}{
		{"blocked", "do not block it", func(h *house) { h.api.Block(ann, true) }, func(h *house) { h.api.Block(ann, false) }},
		{"never started", "bot can't initiate conversation with a user", func(h *house) {
			h.api.AddChat(botapi.Chat{ID: ann, Type: botapi.Private})
		}, func(h *house) { h.api.Say(ann, ann, "/start") }},
		{"no such chat", "chat not found", func(h *house) {
			h.workspaces[0].Places = []telegram.Place{{Chat: 424242}}
		}, func(h *house) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.workspaces[0].Places = []telegram.Place{{Chat: ann}}
		}},
		{"another group by now", "chat_id = -1009", func(h *house) {
			h.api.AddChat(botapi.Chat{ID: -77, Type: botapi.Group, Title: "G"})
			h.workspaces[0].Places = []telegram.Place{{Chat: -77}}
			h.api.Upgrade(ann, -77, -1009)
		}, func(h *house) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.workspaces[0].Places = []telegram.Place{{Chat: ann}}
		}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			h := newHouse(t)
			tc.spoil(h)
			var hint string
			h.open(func(c *telegram.Channel) {
				tell := c.Problem
				c.Problem = func(what, why string) {
					tell(what, why)
					h.mu.Lock()
					defer h.mu.Unlock()
					hint += why
				}
			})
			k := keyIn(personal, 1)
			h.request(k, post)
			h.until("a complaint", func() bool { return strings.Contains(h.trouble(), "cannot be written to") })
			h.until("the reason", func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				return strings.Contains(h.problem+" "+hint, tc.want)
			})
			h.until("its page", func() bool { return strings.Contains(h.page(k), `"state":"sending"`) })
			tc.mend(h)
			h.card(k, ann)
			h.until("the end of the complaint", func() bool { return h.trouble() == "" })
		})
	}
}

// Somebody else uses the token: people are told, and the two do not throw one another out without end.
func TestTwoOnOneToken(t *testing.T) {
	h := newHouse(t)
	h.api.ConflictPause = time.Millisecond
	h.open(func(c *telegram.Channel) { c.Retry = 20 * time.Millisecond })
	h.sayAndHear()
	other := make(chan struct{})
	go func() {
		defer close(other)
		for range 100 { // a greedy one, which asks again at once
			resp, err := http.Post(h.api.URL+"/bot"+botapi.Token+"/getUpdates", "application/json", strings.NewReader(`{"timeout":0}`))
			if err == nil {
				resp.Body.Close()
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	h.until("a complaint", func() bool { return strings.Contains(h.trouble(), "somebody else gets the messages") })
	<-other
	polls := 0
	for _, c := range h.api.State().Calls {
		if c.Method == "getUpdates" && c.Code == http.StatusConflict {
			polls++
		}
	}
	require.Less(t, polls, 20, "no loop")
	k := keyIn(personal, 1)
	h.asks(k, ann, post) // cards are sent all the same
	h.sayAndHear()
	h.until("the end of the complaint", func() bool { return h.trouble() == "" })
}

func (h *house) sayAndHear() {
	h.t.Helper()
	h.answered(h.api.Say(ann, ann, "/help"))
}

// A token that Telegram does not know ends the channel, so that the next start reads another.
func TestAWrongToken(t *testing.T) {
	h := newHouse(t)
	c := h.channel()
	c.Token = "110201543:AAwrongwrongwrongwrongwrongwrong"
	done := make(chan error, 1)
	go func() { done <- c.Run(h.ctx) }()
	select {
	case err := <-done:
		require.ErrorContains(t, err, "Telegram does not accept the token")
		require.NotContains(t, err.Error(), "wrongwrong")
	case <-time.After(awhile):
		require.Fail(t, "it goes on")
	}
	require.NotContains(t, h.logs(), "wrongwrong")
	require.False(t, telegram.ValidToken("hunter2"))
	require.True(t, telegram.ValidToken(botapi.Token))
}

// A chat in which something hangs holds up no tap, and no other chat.
func TestASlowChatHoldsNobodyUp(t *testing.T) {
	h := newHouse(t)
	h.open()
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	h.api.Fail("editMessageText", botapi.Fault{Kind: botapi.Hang})
	require.Contains(t, h.taps(ann, m, "✅ Once").Text, "Approved: ")
	require.Equal(t, approval.StatusApproved, h.settled(k).Status)
	h.await("the edit to hang", func(s botapi.State) bool { return s.Count("answerCallbackQuery") == 1 })
	b, _ := m.Button("❌ Deny")
	require.Contains(t, h.answer(h.api.TapData(bob, ann, m.ID, b.CallbackData)).Text, "You are not an approver here", "a tap in another's chat")
	require.Contains(t, h.answer(h.api.TapData(ann, ann, m.ID, b.CallbackData)).Text, "Already approved by ann")
	two := keyIn(other, 2)
	n := h.asks(two, carl, post)
	require.Contains(t, h.taps(carl, n, "✅ Once").Text, "Approved: ")
	h.settled(two)
	h.api.Close() // or the hanging edit would be waited for
}

// Decide takes its time: the tap is answered first, and the outcome said after.
func TestASlowDecision(t *testing.T) {
	h := newHouse(t)
	h.open(func(c *telegram.Channel) {
		ic := *c.Interceptor
		ic.Decider = slow{h}
		c.Interceptor = &ic
	})
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	a := h.taps(ann, m, "✅ Once")
	require.Contains(t, a.Text, "One moment")
	h.sees(ann, "the confirmation", func(x botapi.Message) bool { return strings.HasPrefix(x.Text, "Approved: ") })
	require.Equal(t, approval.StatusApproved, h.settled(k).Status)
}
