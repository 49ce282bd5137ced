package telegram_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

func calm(c *telegram.Channel) { telegram.Calm(c) }

func (h *house) digest(chatID int64) botapi.Message {
	h.t.Helper()
	return h.sees(chatID, "a digest", func(m botapi.Message) bool { return strings.Contains(m.Text, "requests wait · ") })
}

// More than five cards a minute become one message with a button each. None approves them all.
func TestAFlood(t *testing.T) {
	h := newHouse(t)
	h.open(calm)
	var keys []approval.Key
	for i := range 12 {
		keys = append(keys, keyIn(personal, 0x10+i))
		h.request(keys[i], post)
		h.until("its page", func() bool { return h.page(keys[i]) != "" })
	}
	d := h.digest(ann)
	d = h.becomes(d, "all seven of them", func(m botapi.Message) bool { return len(m.Buttons()) == 7 })
	require.True(t, strings.HasPrefix(d.Text, "📋 7 requests wait · personal"), d.Text)
	require.Len(t, h.api.State().FromBot(ann), 6, "five cards and a digest")
	for _, b := range d.Buttons() {
		require.Regexp(t, "^a70000[0-9a-f]{2}$", b)
	}
	h.until("the state of the last", func() bool { return strings.Contains(h.page(keys[11]), `"state":"sent"`) })

	// A line cannot be approved: what it is about was not shown.
	require.Contains(t, h.answered(h.api.Say(ann, ann, "approve "+approval.ShortID(keys[11].ID))).Text, "No pending request with this id")
	require.Zero(t, h.hands.count(keys[11]))

	// Its button brings the card, and that one can.
	require.Equal(t, "You are not an approver here.", h.taps(eve, d, "a700001b").Text)
	h.taps(ann, d, "a700001b")
	m := h.card(keys[11], ann)
	require.Contains(t, h.taps(ann, m, "✅ Once").Text, "Approved: ")
	h.settled(keys[11])
	d = h.says(d, "✅ Approved by ann")
	require.Len(t, d.Buttons(), 6)

	// After a restart it goes on; when all is settled it has no button left, and is over.
	h.close()
	h.open(calm)
	for _, k := range keys[:11] {
		h.operator(k, approval.Denied)
	}
	d = h.becomes(d, "no button", func(m botapi.Message) bool { return len(m.Buttons()) == 0 })
	require.Equal(t, 6, strings.Count(d.Text, "❌ Denied by operator:root"))
	h.until("its end", func() bool {
		names, err := h.channel().Notes.List()
		return err == nil && !strings.Contains(strings.Join(names, " "), "digest-")
	})
	for _, k := range keys {
		h.until("the end of every page", func() bool { return h.page(k) == "" })
	}
	for _, c := range h.api.State().Refused() { // what was done just before the restart is done again just after it
		require.Contains(t, c.Description, "message is not modified")
	}
}

// The digest itself could not be sent: nobody was asked, and that is seen; then it is.
func TestAFloodWhileTelegramIsAway(t *testing.T) {
	h := newHouse(t)
	h.open(calm)
	h.sayAndHear()
	h.api.Fail("sendMessage", botapi.Fault{Kind: botapi.BadGateway})
	for i := range 7 {
		h.request(keyIn(personal, i), post)
	}
	h.until("the page of the last", func() bool { return strings.Contains(h.page(keyIn(personal, 6)), `"state":"sending"`) })
	h.close()
	h.api.Heal()
	h.open(calm)
	d := h.digest(ann)
	h.becomes(d, "two lines", func(m botapi.Message) bool { return len(m.Buttons()) == 2 })
	for i := range 7 {
		h.until("all were asked", func() bool { return strings.Contains(h.page(keyIn(personal, i)), `"state":"sent"`) })
	}
}

// What policy allows is told, where people want to hear it: one message, without a sound, that grows.
func TestFeed(t *testing.T) {
	h := newHouse(t)
	h.open(func(c *telegram.Channel) { c.Feed = func() bool { return true } })
	h.sayAndHear()
	h.request(keyIn(personal, 1), `"tool_name":"auto","request_data":{"text":"hello"}`)
	m := h.sees(ann, "the feed", func(m botapi.Message) bool { return strings.Contains(m.Text, "allowed by policy") })
	require.True(t, m.Silent)
	require.Contains(t, m.Text, "Auto-approved a7000001: ")
	for i := range 4 {
		h.request(keyIn(personal, 2+i), `"tool_name":"auto","request_data":{"text":"hello"}`)
	}
	m = h.becomes(m, "five lines", func(m botapi.Message) bool { return strings.Count(m.Text, "Auto-approved") == 5 })
	h.close()
	h.open(func(c *telegram.Channel) { c.Feed = func() bool { return true } })
	h.request(keyIn(personal, 9), `"tool_name":"auto","request_data":{"text":"hello"}`)
	h.says(m, "a7000009")
	require.Len(t, h.api.State().FromBot(ann), 2, "it is edited in place, over a restart, too")
	require.Empty(t, h.page(keyIn(personal, 9)))
}

func TestNoFeedUnlessWanted(t *testing.T) {
	h := newHouse(t)
	h.open()
	h.request(keyIn(personal, 1), `"tool_name":"auto","request_data":{"text":"hello"}`)
	h.settled(keyIn(personal, 1))
	h.sayAndHear()
	require.Len(t, h.api.State().FromBot(ann), 1)
}

// At night cards come without a sound, and in the morning one message tells what waits and what expired.
func TestNight(t *testing.T) {
	h := newHouse(t)
	var shift atomic.Int64
	midnight := time.Date(2026, 11, 22, 0, 30, 0, 0, time.UTC)
	began := time.Now()
	clock := func(c *telegram.Channel) {
		c.Now = func() time.Time { return midnight.Add(time.Since(began) + time.Duration(shift.Load())) }
	}
	h.workspaces[0].Quiet = approval.QuietHours{From: 22 * time.Hour, To: 7 * time.Hour}
	h.open(clock)
	waits, expired, answered := keyIn(personal, 1), keyIn(personal, 2), keyIn(personal, 3)
	m := h.asks(waits, ann, post)
	require.True(t, m.Silent)
	h.asks(expired, ann, post+`,"expires_in_sec":5`)
	m = h.asks(answered, ann, post)
	h.taps(ann, m, "❌ Deny")
	h.settled(answered)
	require.Equal(t, approval.StatusExpired, h.settled(expired).Status)
	shift.Store(int64(7 * time.Hour))
	morning := h.sees(ann, "the morning's message", func(m botapi.Message) bool { return strings.HasPrefix(m.Text, "🌅 ") })
	require.False(t, morning.Silent)
	require.Contains(t, morning.Text, "last night 1 requests were left waiting and 1 expired")
	require.Contains(t, morning.Text, "⏳ a7000001")
	require.Contains(t, morning.Text, "⌛ a7000002")
	require.NotContains(t, morning.Text, "a7000003")
	require.Equal(t, []string{"a7000001"}, morning.Buttons())
	h.taps(ann, morning, "a7000001")
	h.sees(ann, "a hint at the card", func(m botapi.Message) bool { return m.Text == "⬆ a7000001" })
	h.request(keyIn(personal, 4), post)
	require.False(t, h.card(keyIn(personal, 4), ann).Silent, "by day they ring")
	n := 0
	for _, m := range h.api.State().FromBot(ann) {
		if strings.HasPrefix(m.Text, "🌅 ") {
			n++
		}
	}
	require.Equal(t, 1, n)
}

// The morning's message is sent as soon as Telegram is there, in a later life, too, and once.
func TestAMorningWithoutTelegram(t *testing.T) {
	h := newHouse(t, telegram.Place{Chat: ann}, telegram.Place{Chat: bob})
	var shift atomic.Int64
	midnight := time.Date(2026, 11, 22, 0, 30, 0, 0, time.UTC)
	began := time.Now()
	clock := func(c *telegram.Channel) {
		c.Now = func() time.Time { return midnight.Add(time.Since(began) + time.Duration(shift.Load())) }
	}
	h.workspaces[0].Quiet = approval.QuietHours{From: 22 * time.Hour, To: 7 * time.Hour}
	h.open(clock)
	k := keyIn(personal, 1)
	h.asks(k, ann, post)
	h.card(k, bob)
	h.api.Fail("sendMessage", botapi.Fault{Kind: botapi.TooMany})
	shift.Store(int64(7 * time.Hour))
	h.await("messages that are refused, in vain for longer than an answer is tried", func(s botapi.State) bool {
		n := 0
		for _, c := range s.Calls {
			if c.Method == "sendMessage" && c.Code == http.StatusTooManyRequests {
				n++
			}
		}
		return n >= 20
	})
	h.close()
	h.api.Heal()
	for range 2 {
		h.open(clock)
		for _, who := range []int64{ann, bob} {
			h.sees(who, "the morning's message", func(m botapi.Message) bool { return strings.HasPrefix(m.Text, "🌅 ") })
		}
		h.until("the end of the night", func() bool {
			names, err := h.channel().Notes.List()
			return err == nil && !strings.Contains(strings.Join(names, " "), "night-")
		})
		h.close()
	}
	for _, who := range []int64{ann, bob} {
		n := 0
		for _, m := range h.api.State().FromBot(who) {
			if strings.HasPrefix(m.Text, "🌅 ") {
				n++
			}
		}
		require.Equal(t, 1, n)
	}
}
