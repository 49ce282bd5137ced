package telegram_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// requireNoToken checks that logs and reports do not hold the token.
func (h *rig) requireNoToken() {
	h.t.Helper()
	_, secret, _ := strings.Cut(botapi.Token, ":")
	require.NotContains(h.t, h.logs(), secret)
	require.NotContains(h.t, h.reported(), secret)
}

// A card is sent as soon as the outage is over, and only once if Telegram had not taken it.
func TestOutages(t *testing.T) {
	for _, tc := range []struct {
		why    string
		fault  botapi.Fault
		copies int
	}{
		{"too many requests", botapi.Fault{Kind: botapi.TooMany, Times: 2}, 1},
		{"a proxy's page", botapi.Fault{Kind: botapi.BadGateway, Times: 3}, 1},
		{"offline", botapi.Fault{Kind: botapi.Offline, Times: 3}, 1},
		{"sent, but the answer is lost", botapi.Fault{Kind: botapi.AnswerLost, Times: 2}, 3},
	} {
		t.Run(tc.why, func(t *testing.T) {
			h := newRig(t)
			h.api.Fail("sendMessage", tc.fault)
			h.start()
			k := keyIn(personal, 1)
			h.request(k, postRequest)
			h.waitFor("a recorded card", func() bool { return strings.Contains(h.record(k), `"state":"sent"`) })
			cards := h.api.State().FromBot(ann)
			require.Len(t, cards, tc.copies)
			b, _ := h.waitForEdit(cards[0], "approve buttons", approving).Button("✅ Once")
			h.waitForAnswer(h.api.TapData(ann, ann, cards[0].ID, b.CallbackData)) // also one whose message ID was not recorded
			require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
			require.Equal(t, 1, h.handler.count(k))
			h.waitForText(cards[0], "✅ Approved by ann")
			h.requireNoToken()
		})
	}
}

// While Telegram is unreachable the operator gets a report. Pending cards are sent afterwards.
func TestTelegramUnreachable(t *testing.T) {
	h := newRig(t)
	h.api.Close()
	h.start()
	k := keyIn(personal, 1)
	h.request(k, postRequest)
	h.waitFor("a report", func() bool { return strings.Contains(h.reported(), "Telegram is unreachable") })
	require.Contains(t, h.record(k), `"state":"sending"`)
	require.NoError(t, h.api.Listen())
	m := h.waitForCard(k, ann)
	h.tap(ann, m, "✅ Once")
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
	h.waitFor("the end of the report", func() bool { return h.reported() == "" })
	h.requireNoToken()
}

// Pending cards survive a restart during the outage.
func TestTelegramUnreachableAcrossRestart(t *testing.T) {
	h := newRig(t)
	h.api.Close()
	h.start()
	k := keyIn(personal, 1)
	h.request(k, postRequest)
	h.waitFor("the sent record", func() bool { return h.record(k) != "" })
	h.stopChannel()
	h.start()
	require.NoError(t, h.api.Listen())
	m := h.waitForCard(k, ann)
	require.Contains(t, h.tap(ann, m, "❌ Deny").Text, "Denied: ")
}

// A failed edit is retried.
func TestEditsAreRetried(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	h.api.Fail("editMessageText", botapi.Fault{Kind: botapi.BadGateway, Times: 5})
	h.tap(ann, m, "✅ Once")
	require.Empty(t, h.waitForText(m, "✅ Approved by ann").Buttons())
}

// An unreachable chat is reported as long as a card is pending for it, and retried when it may be reachable
// again.
func TestUnreachableChat(t *testing.T) {
	for _, tc := range []struct {
		why, want string
		fail      func(h *rig)
		repair    func(h *rig)
	}{
		{"blocked", "unblock it", func(h *rig) { h.api.Block(ann, true) }, func(h *rig) { h.api.Block(ann, false) }},
		{"never started", "bot can't initiate conversation with a user", func(h *rig) {
			h.api.AddChat(botapi.Chat{ID: ann, Type: botapi.Private})
		}, func(h *rig) { h.api.Say(ann, ann, "/start") }},
		{"no such chat", "chat not found", func(h *rig) {
			h.workspaces[0].Places = []deliver.Place{{Address: at(424242, 0)}}
		}, func(h *rig) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.workspaces[0].Places = []deliver.Place{{Address: at(ann, 0)}}
		}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			h := newRig(t)
			tc.fail(h)
			var hint string
			h.start(func(c *channel) {
				tell := c.Problem
				c.Problem = func(what, why string) {
					tell(what, why)
					h.mu.Lock()
					defer h.mu.Unlock()
					hint += why
				}
			})
			k := keyIn(personal, 1)
			h.request(k, postRequest)
			h.waitFor("a report", func() bool { return strings.Contains(h.reported(), "is unreachable") })
			h.waitFor("the reason", func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				return strings.Contains(h.problem+" "+hint, tc.want)
			})
			h.waitFor("its sent record", func() bool { return strings.Contains(h.record(k), `"state":"sending"`) })
			tc.repair(h)
			h.waitForCard(k, ann)
			h.waitFor("the end of the report", func() bool { return h.reported() == "" })
		})
	}
}

// Another program uses the token: the operator gets a report, and the two pollers do not interrupt each other
// without end.
func TestTwoPollersOnOneToken(t *testing.T) {
	t.Parallel()
	h := newRig(t)
	h.api.ConflictPause = time.Millisecond
	h.start(func(c *channel) { c.Retry = 20 * time.Millisecond })
	h.helpRoundTrip()
	other := make(chan struct{})
	go func() {
		defer close(other)
		for range 100 { // without any delay between polls
			resp, err := http.Post(h.api.URL+"/bot"+botapi.Token+"/getUpdates", "application/json", strings.NewReader(`{"timeout":0}`))
			if err == nil {
				resp.Body.Close()
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	h.waitFor("a report", func() bool { return strings.Contains(h.reported(), "another program gets the updates") })
	<-other
	polls := 0
	for _, c := range h.api.State().Calls {
		if c.Method == "getUpdates" && c.Code == http.StatusConflict {
			polls++
		}
	}
	require.Less(t, polls, 20, "no busy loop")
	k := keyIn(personal, 1)
	h.ask(k, ann, postRequest) // cards are sent anyway
	h.helpRoundTrip()
	h.waitFor("the end of the report", func() bool { return h.reported() == "" })
}

func (h *rig) helpRoundTrip() {
	h.t.Helper()
	h.waitForReply(h.api.Say(ann, ann, "/help"))
}

// A rejected token ends the channel, so that the next start reads the token again.
func TestWrongToken(t *testing.T) {
	h := newRig(t)
	c := h.channel()
	c.Token = "110201543:AAwrongwrongwrongwrongwrongwrong"
	done := make(chan error, 1)
	go func() { done <- c.Run(h.ctx) }()
	select {
	case err := <-done:
		require.ErrorContains(t, err, "Telegram does not accept the token")
		require.NotContains(t, err.Error(), "wrongwrong")
	case <-time.After(testTimeout):
		require.Fail(t, "the channel still runs")
	}
	require.NotContains(t, h.logs(), "wrongwrong")
	require.False(t, telegram.ValidToken("hunter2"))
	require.True(t, telegram.ValidToken(botapi.Token))
}

// A hanging call delays no tap and no other chat.
func TestSlowChatBlocksNoOtherChat(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	h.api.Fail("editMessageText", botapi.Fault{Kind: botapi.Hang})
	require.Contains(t, h.tap(ann, m, "✅ Once").Text, "Approved: ")
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
	h.waitForState("a hanging edit", func(s botapi.State) bool { return s.Count("answerCallbackQuery") == 1 })
	b, _ := m.Button("❌ Deny")
	require.Contains(t, h.waitForAnswer(h.api.TapData(bob, ann, m.ID, b.CallbackData)).Text, "You are not an approver here", "a tap in another user's chat")
	require.Contains(t, h.waitForAnswer(h.api.TapData(ann, ann, m.ID, b.CallbackData)).Text, "Already approved by ann")
	two := keyIn(other, 2)
	n := h.ask(two, carl, postRequest)
	require.Contains(t, h.tap(carl, n, "✅ Once").Text, "Approved: ")
	h.waitForResponse(two)
	h.api.Close() // otherwise cleanup would wait for the hanging edit
}

// A slow decision: the tap is answered first, the outcome is sent later.
func TestSlowDecision(t *testing.T) {
	t.Parallel()
	h, release := newRig(t), make(chan struct{})
	h.start(func(c *channel) {
		ic := *c.Interceptor
		ic.Decider = slowDecider{h, release}
		c.Interceptor = &ic
	})
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	a := h.tap(ann, m, "✅ Once")
	require.Contains(t, a.Text, "One moment")
	close(release)
	h.waitForMessage(ann, "the confirmation", func(x botapi.Message) bool { return strings.HasPrefix(x.Text, "Approved: ") })
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
}

// A group becomes a supergroup: the channel takes over the new ID, also in later sessions, and tells the operator what
// to write into the configuration.
func TestSupergroup(t *testing.T) {
	for _, how := range []string{"by an error", "by a message"} {
		t.Run(how, func(t *testing.T) {
			h := newRig(t, deliver.Place{Address: at(-77, 0)})
			h.api.AddChat(botapi.Chat{ID: -77, Type: botapi.Group, Title: "G"})
			hint := ""
			withHint := func(c *channel) {
				tell := c.Problem
				c.Problem = func(what, why string) {
					tell(what, why)
					h.mu.Lock()
					defer h.mu.Unlock()
					hint = why
				}
			}
			upgrade := func() { h.api.Upgrade(ann, -77, -1009) }
			if how == "by an error" {
				h.start(withHint)
				h.helpRoundTrip()
				h.stopChannel()
				upgrade()
				h.api.Forget()
			}
			h.start(withHint)
			one, two := keyIn(personal, 1), keyIn(personal, 2)
			if how == "by a message" {
				h.ask(one, -77, postRequest)
				upgrade()
			} else {
				h.request(one, postRequest)
			}
			m := h.waitForCard(one, -1009)
			h.waitFor("a report", func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				return strings.Contains(h.problem, "Telegram chat -77 has a new id, -1009; cards go there") &&
					strings.Contains(hint, "under [workspaces.personal]: telegram = { chat_id = -1009 }")
			})
			require.Contains(t, h.tap(ann, m, "✅ Once").Text, "Approved: ")
			h.stopChannel()
			h.start(withHint)
			h.ask(two, -1009, postRequest)
			require.Contains(t, h.waitForReply(h.api.Say(ann, -1009, "/pending")).Text, "Pending: 1")
			h.waitFor("the report of the new session", func() bool { return strings.Contains(h.reported(), "has a new id") })
			h.mu.Lock()
			h.workspaces[0].Places = []deliver.Place{{Address: at(-1009, 0)}}
			h.mu.Unlock()
			h.waitFor("the end of the report", func() bool { return h.reported() == "" })
		})
	}
}

// A closed topic is tried again when it was reopened, and within 30 s if Telegram does not say so.
func TestReopenedTopic(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		t.Run(fmt.Sprint("quiet ", quiet), func(t *testing.T) {
			t.Parallel()
			h := newRig(t)
			topic := h.api.AddTopic(forum, "T")
			h.workspaces[0].Places = []deliver.Place{{Address: at(forum, int64(topic))}}
			h.api.CloseTopic(forum, topic, true, true)
			h.start(func(c *channel) { c.Retry = time.Second })
			k := keyIn(personal, 1)
			h.request(k, postRequest)
			h.waitFor("a report", func() bool { return strings.Contains(h.reported(), "TOPIC_CLOSED") })
			began := time.Now()
			h.api.CloseTopic(forum, topic, false, quiet)
			h.waitForCard(k, forum)
			require.Less(t, time.Since(began), 30*time.Second)
			h.waitFor("the end of the report", func() bool { return h.reported() == "" })
		})
	}
}

// A report of an earlier session ends when a message got through, even if other calls fail.
func TestReportEndsWithAMessage(t *testing.T) {
	h := newRig(t)
	h.problem = "channel telegram is down"
	h.api.Fail("getMe", botapi.Fault{Kind: botapi.BadGateway})
	h.start()
	h.ask(keyIn(personal, 1), ann, postRequest)
	h.waitFor("the end of the report", func() bool { return h.reported() == "" })
}
