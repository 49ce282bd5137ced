package telegram_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// failingStore is a sent store whose writes can fail.
type failingStore struct {
	chat.SentStore
	fail func(p string) error
}

func (b failingStore) Save(k approval.Key, p []byte) error {
	if err := b.fail(string(p)); err != nil {
		return err
	}
	return b.SentStore.Save(k, p)
}

var errDiskFull = errors.New("no space left on device")

// The nonces of a card are on disk before the card is sent.
func TestRecordIsDurableBeforeSending(t *testing.T) {
	h := newRig(t)
	var full atomic.Bool
	full.Store(true)
	h.start(func(c *channel) {
		c.Sent = failingStore{c.Sent, func(string) error {
			if full.Load() {
				return errDiskFull
			}
			return nil
		}}
	})
	k := keyIn(personal, 1)
	h.request(k, postRequest)
	h.waitFor("a logged failure", func() bool { return strings.Contains(h.logs(), "no space left") })
	require.Empty(t, h.api.State().FromBot(ann))
	full.Store(false)
	h.waitForCard(k, ann)
}

// startForgetful starts a channel that sends cards but cannot record that.
func (h *rig) startForgetful() {
	h.writesFail = true
	h.start(func(c *channel) {
		c.Sent = failingStore{c.Sent, func(p string) error {
			if strings.Contains(p, `"message_id"`) {
				return errDiskFull
			}
			return nil
		}}
	})
}

// askForgetful asks and stops before the card is recorded.
func (h *rig) askForgetful(k approval.Key) (lost botapi.Message) {
	h.t.Helper()
	h.startForgetful()
	lost = h.ask(k, ann, postRequest)
	h.waitFor("the sent record", func() bool { return strings.Contains(h.record(k), `"state":"sending"`) })
	h.stopChannel()
	require.NotContains(h.t, h.record(k), "message_id")
	h.writesFail = false
	return lost
}

// The daemon dies between sending a card and recording it. A tap on that card is understood. The card that replaces
// it has approve buttons only once its message is durable. Then the first one is found, and both show the outcome.
func TestUnrecordedCard(t *testing.T) {
	for _, which := range []string{"the unrecorded card", "the new card", "none"} {
		t.Run(which, func(t *testing.T) {
			h := newRig(t)
			k := keyIn(personal, 1)
			old := h.askForgetful(k)
			h.api.Say(ann, ann, "hello?") // a message between both cards
			h.start()
			fresh := h.waitForMessage(ann, "a second card", func(m botapi.Message) bool { return m.ID > old.ID && strings.HasPrefix(m.Text, "🔐") && approving(m) })
			var cards []string // their buttons, as sent
			for _, call := range h.api.State().Calls {
				if call.Method == "sendMessage" && strings.HasPrefix(call.Params["text"], "🔐") {
					cards = append(cards, call.Params["reply_markup"])
				}
			}
			require.Len(t, cards, 2)
			require.NotContains(t, cards[1], "✅")
			switch which {
			case "none":
				h.decideAsOperator(k, approval.Approved)
			case "the new card":
				require.Contains(t, h.tap(ann, fresh, "✅ Once").Text, "Approved: ")
			default:
				b, _ := old.Button("✅ Once")
				require.Contains(t, h.waitForAnswer(h.api.TapData(ann, ann, old.ID, b.CallbackData)).Text, "Approved: ")
			}
			require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
			for _, m := range []botapi.Message{old, fresh} {
				require.Empty(t, h.waitForText(m, "✅ Approved by ").Buttons())
			}
			require.Equal(t, 1, h.handler.count(k))
			h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
		})
	}
}

// The same, but the request is settled before the next session: a second card shows the outcome, and so does the first
// one. The search survives lost answers and a restart.
func TestUnrecordedCardOfASettledRequest(t *testing.T) {
	h := newRig(t)
	k := keyIn(personal, 1)
	old := h.askForgetful(k)
	h.decideAsOperator(k, approval.Denied)
	h.waitForResponse(k)
	h.api.Fail("editMessageReplyMarkup", botapi.Fault{Kind: botapi.AnswerLost})
	h.start()
	h.waitForMessage(ann, "a second card", func(m botapi.Message) bool {
		return m.ID > old.ID && strings.Contains(m.Text, "❌ Denied by operator:root") && m.Silent && len(m.Buttons()) == 0
	})
	h.waitFor("the recorded card", func() bool { return strings.Contains(h.record(k), `"message_id"`) })
	h.stopChannel()
	h.api.ClearFaults()
	h.start()
	require.Empty(t, h.waitForText(old, "❌ Denied by operator:root").Buttons())
	h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
	require.Len(t, h.api.State().FromBot(ann), 2)
}

// Two daemons die before they record their card, and a tap on the first one decides: the second one is found, too.
func TestSecondUnrecordedCard(t *testing.T) {
	h := newRig(t)
	k := keyIn(personal, 1)
	first := h.askForgetful(k)
	h.api.Fail("sendMessage", botapi.Fault{Kind: botapi.AnswerHangs})
	h.start()
	second := h.waitForMessage(ann, "a second card", func(m botapi.Message) bool { return m.ID > first.ID && strings.HasPrefix(m.Text, "🔐") })
	h.api.Fail("editMessageText", botapi.Fault{Kind: botapi.BadGateway})
	h.api.Fail("editMessageReplyMarkup", botapi.Fault{Kind: botapi.BadGateway})
	require.Contains(t, h.tap(ann, first, "✅ Once").Text, "Approved: ")
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
	h.waitFor("the first message's ID", func() bool { return strings.Contains(h.record(k), `"message_id"`) })
	h.stopChannel()
	require.Equal(t, 1, strings.Count(h.record(k), `"message_id"`))
	h.api.ClearFaults()
	h.start()
	for _, m := range []botapi.Message{first, second} {
		require.Empty(t, h.waitForText(m, "✅ Approved by ann").Buttons())
	}
	h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
}

// A card that a timeout left in doubt, and a list of this session: the card is found, the list keeps its buttons.
func TestCardInDoubtIsFound(t *testing.T) {
	h := newRig(t)
	h.start()
	first := h.ask(keyIn(personal, 1), ann, postRequest)
	h.api.Fail("sendMessage", botapi.Fault{Kind: botapi.AnswerLost, Times: 1})
	k := keyIn(personal, 2)
	h.request(k, postRequest)
	h.waitForState("two cards", func(s botapi.State) bool { return len(s.FromBot(ann)) >= 2 })
	list := h.waitForReply(h.api.Say(ann, ann, "pending"))
	h.waitFor("the search", func() bool { return strings.Count(h.record(k), `"message_id"`) == 2 })
	h.decideAsOperator(k, approval.Denied)
	h.waitForState("no live card", func(s botapi.State) bool {
		n := 0
		for _, m := range s.FromBot(ann) {
			if strings.Contains(m.Text, "❌ Denied by operator:root") && m.Keyboard == nil {
				n++
			}
		}
		return n == 2
	})
	now, _ := h.api.State().Message(ann, list.ID)
	require.NotEmpty(t, now.Buttons())
	now, _ = h.api.State().Message(ann, first.ID)
	require.True(t, approving(now))
}

// The record of a possibly sent card is kept for a week, and at most 500 such records are.
func TestRecordsKeptForLateTaps(t *testing.T) {
	h := newRig(t)
	h.writesFail = true
	var ahead atomic.Int64
	clock := func(c *channel) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}
	h.start(clock)
	h.stopChannel()
	page := func(n int, began time.Time) string {
		return fmt.Sprintf(`{"version":1,"state":"sent","pending_sha256":"x","began":%q,"last":2,"posts":[`+
			`{"n":1,"chat_id":%d,"language":"en","nonces":{"1":"a%d"},"doubtful":true,"phase":"over","life":"x"},`+
			`{"n":2,"chat_id":%[2]d,"language":"en","nonces":{"1":"b%[3]d"},"message_id":9%03[3]d,"document_id":8%03[3]d,"phase":"over","life":"x"}]}`,
			began.Format(time.RFC3339), ann, n)
	}
	began := time.Now()
	for n := range 502 {
		require.NoError(t, h.channel().Sent.Save(keyIn(personal, n+1), []byte(page(n, began.Add(time.Duration(n)*time.Second)))))
	}
	h.start(clock)
	h.waitFor("two removed records", func() bool { return h.record(keyIn(personal, 1)) == "" && h.record(keyIn(personal, 2)) == "" })
	h.changed(keyIn(personal, 502))
	h.ask(keyIn(personal, 900), ann, postRequest) // reconciled after the hint
	for n := range 500 {
		require.NotEmpty(t, h.record(keyIn(personal, n+3)), "page %d", n+3)
	}
	ahead.Store(int64(8 * 24 * time.Hour))
	h.waitFor("the removal of the others", func() bool {
		ids, err := h.channel().Sent.List(personal)
		return err == nil && !slices.ContainsFunc(ids, func(id string) bool { return id != keyIn(personal, 900).ID })
	})
}

// After a restart a card is answered as before, from its record alone.
func TestRestart(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	h.stopChannel()
	b, _ := m.Button("✅ Once")
	tap := h.api.TapData(ann, ann, m.ID, b.CallbackData) // while the channel is stopped
	h.start(func(c *channel) { c.Retry = time.Second })
	require.Contains(t, h.waitForAnswer(tap).Text, "Approved: ")
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
	require.Len(t, h.api.State().FromBot(ann), 1, "neither asked again nor reminded so soon")
}

// A decision made while the channel was stopped is shown when it starts again.
func TestSettledWhileStopped(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	h.stopChannel()
	h.decideAsOperator(k, approval.Denied)
	h.waitForResponse(k)
	h.start()
	m = h.waitForText(m, "❌ Denied by operator:root")
	require.Empty(t, m.Buttons())
	h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
}

// A record with an Undo button survives a restart, and is removed after a day.
func TestUndoAfterRestart(t *testing.T) {
	h := newRig(t)
	var ahead atomic.Int64
	clock := func(c *channel) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}
	h.start(clock)
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	h.tap(ann, m, sessionButton)
	h.waitForResponse(k)
	m = h.waitForEdit(m, "an undo button", func(m botapi.Message) bool { return len(m.Buttons()) == 1 })
	h.stopChannel()
	h.start(clock)
	h.revoker.grants = append(h.revoker.grants, grant.Grant{ID: k.ID, Terms: approval.Terms{Workspace: personal}, By: "ann"})
	ahead.Store(int64(25 * time.Hour))
	m = h.waitForEdit(m, "no buttons", func(m botapi.Message) bool { return len(m.Buttons()) == 0 })
	require.Contains(t, m.Text, "✅ Approved for this session by ann")
	h.waitFor("the end of the record", func() bool { return h.record(k) == "" })
}

// A restart recalls a card by a reply: in silence if the card is younger than ten minutes. Not every restart does.
func TestRecall(t *testing.T) {
	h := newRig(t)
	var clock testClock
	open := func(c *channel) { c.Now = clock.now }
	h.start(open)
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	want := []bool{} // whether each is silent
	for _, tc := range []struct {
		after   time.Duration
		recalls []bool
	}{{time.Minute, []bool{true}}, {5 * time.Minute, nil}, {12 * time.Minute, []bool{false}}, {15 * time.Minute, nil}, {23 * time.Minute, []bool{false}}} {
		h.stopChannel()
		clock.set(tc.after)
		before := recalled.FindString(h.record(k))
		h.start(open)
		h.passes()
		require.Equal(t, len(tc.recalls) == 0, recalled.FindString(h.record(k)) == before, "restart after %s", tc.after)
		want = append(want, tc.recalls...)
		h.waitFor("the recalls", func() bool { return len(h.repliesTo(m)) >= len(want) })
		for i, r := range h.repliesTo(m) {
			require.Contains(t, r.Text, "⏳ a7000001 is still pending, until ")
			require.Contains(t, r.Text, "permesso was restarted")
			require.Equal(t, want[i], r.Silent, "recall %d, after %s", i, tc.after)
		}
		require.Len(t, h.repliesTo(m), len(want))
	}
}

var recalled = regexp.MustCompile(`"recalled":"[^"]*"`)

// passes waits until the channel has looked at all pending requests: the hint of the second one is handled after the
// pass that asked about the first.
func (h *rig) passes() {
	for range 2 {
		h.asked++
		h.ask(keyIn(other, 0x300+h.asked), carl, postRequest)
	}
}

// reminders are the bot's reminders in a chat.
func (h *rig) reminders(chatID int64) (all []botapi.Message) {
	for _, m := range h.api.State().FromBot(chatID) {
		if strings.HasPrefix(m.Text, "⏳") {
			all = append(all, m)
		}
	}
	return all
}

// After a restart one message recalls all that waits in a chat. It rings if one of the cards is older than ten
// minutes.
func TestOneRecallForAll(t *testing.T) {
	h := newRig(t)
	var clock testClock
	open := func(c *channel) { c.Now = clock.now }
	h.start(open)
	for n := range 3 {
		h.ask(keyIn(personal, n), ann, postRequest)
	}
	for n, silent := range []bool{true, false} {
		h.stopChannel()
		h.start(open)
		h.waitFor("the recall", func() bool { return len(h.reminders(ann)) > n })
		h.passes()
		all := h.reminders(ann)
		require.Len(t, all, n+1)
		require.True(t, strings.HasPrefix(all[n].Text, "⏳ 3 requests are still pending; permesso was restarted\n1 ⏳ a7000000 · "), all[n].Text)
		require.Equal(t, silent, all[n].Silent)
		clock.set(11 * time.Minute)
	}
}

// After a silent recall no reminder follows at once: both would say the same.
func TestRecallIsNoReason(t *testing.T) {
	h := newRig(t)
	var clock testClock
	open := func(c *channel) { c.Now = clock.now }
	h.start(open)
	for n, seconds := range []int{600, 1800} {
		h.ask(keyIn(personal, 1+n), ann, postRequest+fmt.Sprintf(`,"expires_in_sec":%d`, seconds))
	}
	h.stopChannel()
	clock.set(285 * time.Second)
	h.start(open)
	h.waitFor("the recall", func() bool { return len(h.reminders(ann)) == 1 })
	clock.set(310 * time.Second) // past half the time of the first
	h.passes()
	h.helpRoundTrip()
	require.Len(t, h.reminders(ann), 1)
	clock.set(910 * time.Second) // past half the time of the second, and ten minutes after the recall
	h.waitFor("the reminder", func() bool { return len(h.reminders(ann)) == 2 })
	h.passes()
	h.helpRoundTrip()
	all := h.reminders(ann)
	require.Len(t, all, 2)
	require.True(t, all[0].Silent)
	require.False(t, all[1].Silent)
}

// In quiet hours a reminder is silent, and comes once as well.
func TestReminderInQuietHours(t *testing.T) {
	h := newRig(t)
	h.workspaces[0].Quiet = approval.QuietHours{From: 0, To: 24*time.Hour - time.Nanosecond}
	var clock testClock
	h.start(func(c *channel) { c.Now = clock.now })
	h.ask(keyIn(personal, 1), ann, postRequest)
	clock.set(31 * time.Minute)
	h.waitFor("the reminder", func() bool { return len(h.reminders(ann)) > 0 })
	h.waitFor("its record", func() bool { return strings.Contains(h.record(keyIn(personal, 1)), `"reminded":true`) })
	h.passes()
	h.helpRoundTrip()
	require.Len(t, h.reminders(ann), 1)
	require.True(t, h.reminders(ann)[0].Silent)
}

// Halfway to the deadline of a request one message reminds of all that waits in the chat, also of the lines of a
// digest.
func TestOneReminderForAll(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(ann, 0)}, deliver.Place{Address: at(bob, 0)})
	var clock testClock
	h.start(func(c *channel) { c.Now, c.MaxCards = clock.now, 2 })
	decided := keyIn(personal, 0)
	h.ask(decided, ann, postRequest)
	for n := 1; n <= 3; n++ {
		h.request(keyIn(personal, n), postRequest)
		h.waitFor("its sent record", func() bool { return strings.Contains(h.record(keyIn(personal, n)), `"state":"sent"`) })
	}
	h.waitForState("each request in both chats", func(s botapi.State) bool {
		for _, who := range []int64{ann, bob} {
			for n := 1; n <= 3; n++ {
				if !slices.ContainsFunc(s.FromBot(who), func(m botapi.Message) bool { return strings.Contains(m.Text, fmt.Sprint("a700000", n)) }) {
					return false
				}
			}
		}
		return true
	})
	h.decideAsOperator(decided, approval.Denied)
	h.waitFor("the end of the record", func() bool { return h.record(decided) == "" })
	clock.set(31 * time.Minute)
	for _, who := range []int64{ann, bob} {
		h.waitFor("the reminder", func() bool { return len(h.reminders(who)) > 0 })
	}
	h.helpRoundTrip()
	for _, who := range []int64{ann, bob} {
		all := h.reminders(who)
		require.Len(t, all, 1)
		require.False(t, all[0].Silent)
		require.Equal(t, labels(1, 2, 3), all[0].Buttons())
		for n := 1; n <= 3; n++ {
			require.Contains(t, all[0].Text, fmt.Sprintf("%d ⏳ a700000%d · personal · x_post · ", n, n))
		}
	}
	h.tap(ann, h.reminders(ann)[0], labels(1, 2)[0])
	at := h.waitForMessage(ann, "a pointer to the card", func(m botapi.Message) bool { return m.Text == "⬆ a7000001" })
	require.Contains(t, at.ReplyTo.Text, "a7000001")
}

// A request that was asked just before a reminder gets a later one, of its own.
func TestReminderOfLateRequest(t *testing.T) {
	h := newRig(t)
	var clock testClock
	h.start(func(c *channel) { c.Now = clock.now })
	h.ask(keyIn(personal, 1), ann, postRequest+`,"expires_in_sec":7200`)
	late := h.ask(keyIn(personal, 2), ann, postRequest+`,"expires_in_sec":72000`)
	clock.set(61 * time.Minute)
	h.waitFor("the reminder", func() bool { return len(h.reminders(ann)) > 0 })
	require.Contains(t, h.reminders(ann)[0].Text, "2 requests are still pending\n")
	h.decideAsOperator(keyIn(personal, 1), approval.Denied)
	h.waitFor("the end of the record", func() bool { return h.record(keyIn(personal, 1)) == "" })
	clock.set(601 * time.Minute)
	h.waitForReplyTo(late, "⏳ a7000002 is still pending, until ")
	h.helpRoundTrip()
	require.Len(t, h.reminders(ann), 2)
}

// Halfway to its deadline a request gets one reminder.
func TestReminder(t *testing.T) {
	t.Parallel()
	h := newRig(t, deliver.Place{Address: at(ann, 0), Language: "it"})
	h.start()
	k := keyIn(personal, 1)
	asked := time.Now()
	m := h.ask(k, ann, postRequest+`,"expires_in_sec":8`) // time enough to remind on a slow machine
	r := h.waitForMessage(ann, "a reminder", func(x botapi.Message) bool { return x.ReplyTo != nil && x.ReplyTo.ID == m.ID })
	require.True(t, strings.HasPrefix(r.Text, "⏳ a7000001 è ancora in attesa, fino alle "), r.Text)
	require.GreaterOrEqual(t, time.Since(asked), 3900*time.Millisecond)
	h.waitForText(m, "⌛ Scaduto alle ")
	require.Len(t, h.api.State().FromBot(ann), 2)
}

// A workspace moves to another chat: the old card decides nothing, the new one does.
func TestWorkspaceMovesToAnotherChat(t *testing.T) {
	h := newRig(t, deliver.Place{Address: at(ann, 0)})
	h.start()
	k := keyIn(personal, 1)
	old := h.ask(k, ann, postRequest)
	b, _ := old.Button("✅ Once")
	h.mu.Lock()
	h.workspaces[0].Places = []deliver.Place{{Address: at(family, 0)}}
	h.mu.Unlock()
	h.waitForText(old, "This request is now asked in another chat.")
	m := h.waitForCard(k, family)
	require.Equal(t, "You are not an approver here.", h.waitForAnswer(h.api.TapData(ann, ann, old.ID, b.CallbackData)).Text)
	require.Contains(t, h.tap(ann, m, "✅ Once").Text, "Approved: ")
}

// An unreadable record is removed, and its request is asked again.
func TestDamagedRecord(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	old := h.ask(k, ann, postRequest)
	h.stopChannel()
	require.NoError(t, h.channel().Sent.Save(k, []byte(`{"version":1,"posts":[{"n":1}]}`)))
	h.start()
	h.waitForMessage(ann, "a new card", func(m botapi.Message) bool { return m.ID > old.ID && m.Keyboard != nil })
	b, _ := old.Button("✅ Once")
	require.Contains(t, h.waitForAnswer(h.api.TapData(ann, ann, old.ID, b.CallbackData)).Text, "This button has expired")
}

// An update whose handler panics is retried, a limited number of times.
func TestUpdateThatPanicsIsGivenUp(t *testing.T) {
	h := newRig(t)
	var calls atomic.Int32
	h.start(func(c *channel) {
		c.Guard = panickingGuard{h, &calls}
	})
	h.waitFor("an empty journal", func() bool {
		names, err := h.channel().Updates.List()
		return err == nil && !strings.Contains(strings.Join(names, " "), "update-")
	})
	calls.Store(0)
	h.api.Say(ann, ann, "pending")
	h.waitFor("the update to be dropped", func() bool { return strings.Contains(h.reported(), "could not be handled and was dropped") })
	require.EqualValues(t, 3, calls.Load())
	h.waitFor("an empty journal", func() bool {
		names, err := h.channel().Updates.List()
		return err == nil && !strings.Contains(strings.Join(names, " "), "update-")
	})
}

type panickingGuard struct {
	*rig
	calls *atomic.Int32
}

func (p panickingGuard) May(string, *approval.Pending, approval.Person) (string, bool) {
	p.calls.Add(1)
	panic("a bug")
}

// An update that kills the process is given up as well: its tries are counted on disk.
func TestUpdateThatKillsTheProcess(t *testing.T) {
	h := newRig(t)
	raw, err := json.Marshal(map[string]any{"update_id": 5, "message": map[string]any{
		"message_id": 1, "date": 1, "text": "pending", "chat": map[string]any{"id": ann, "type": "private"}, "from": map[string]any{"id": ann, "first_name": "Ann"},
	}})
	require.NoError(t, err)
	require.NoError(t, h.channel().Updates.Put("update-5.json", raw))
	require.NoError(t, h.channel().State.Put("tries-5", []byte("3"))) // as after three sessions that ended in its handler
	var calls atomic.Int32
	h.start(func(c *channel) { c.Guard = panickingGuard{h, &calls} })
	h.waitFor("the update to be dropped", func() bool {
		names, err := h.channel().Updates.List()
		return err == nil && !strings.Contains(strings.Join(names, " "), "update-5")
	})
	h.waitFor("the report", func() bool { return strings.Contains(h.reported(), "could not be handled") })
}

// An unreadable update in the journal does not block the others.
func TestUnreadableUpdate(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, postRequest)
	h.stopChannel()
	b, _ := m.Button("✅ Once")
	for id, data := range map[int]string{900_000_001: "?", 900_000_002: b.CallbackData} {
		raw, err := json.Marshal(map[string]any{"update_id": id, "callback_query": map[string]any{
			"id": "1", "from": map[string]any{"id": ann, "first_name": "Ann"}, "chat_instance": "1", "data": data,
			"message": map[string]any{"message_id": m.ID, "date": 1, "chat": map[string]any{"id": ann, "type": "private"}},
		}})
		require.NoError(t, err)
		require.NoError(t, h.channel().Updates.Put(fmt.Sprintf("update-%d.json", id), raw))
	}
	h.start(func(c *channel) { c.Updates = unreadableState{c.Updates} })
	require.Equal(t, approval.StatusApproved, h.waitForResponse(k).Status)
	h.waitFor("the logged error", func() bool { return strings.Contains(h.logs(), "read update 900000001: input/output error") })
}

// unreadableState has one unreadable file.
type unreadableState struct{ chat.StateStore }

func (d unreadableState) Get(name string) ([]byte, error) {
	if name == "update-900000001.json" {
		return nil, syscall.EIO
	}
	return d.StateStore.Get(name)
}
