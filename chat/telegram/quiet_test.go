package telegram_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

func withFloodLimit(c *channel) { c.MaxCards = 0 }

func (h *rig) waitForDigest(chatID int64) botapi.Message {
	h.t.Helper()
	return h.waitForMessage(chatID, "a digest", func(m botapi.Message) bool { return strings.Contains(m.Text, " requests still open") })
}

// labels are the buttons of posts in a list. Several to one place show what is posted.
func labels(numbers ...int) (all []string) {
	what := "x.com/ricardo"
	if len(numbers) > 1 {
		what = `"Meeting at 5"`
	}
	for _, n := range numbers {
		all = append(all, fmt.Sprintf("%d · post · %s", n, what))
	}
	return all
}

// Above five cards a minute, requests become one message with a button for each. No button approves all.
func TestFlood(t *testing.T) {
	h := newRig(t)
	h.start(withFloodLimit)
	var keys []approval.Key
	for i := range 12 {
		keys = append(keys, keyIn(personal, 0x10+i))
		h.request(keys[i], postRequest)
		h.waitFor("its sent record", func() bool { return h.record(keys[i]) != "" })
	}
	d := h.waitForDigest(ann)
	d = h.waitForEdit(d, "all lines and buttons", func(m botapi.Message) bool { // a line comes before its button
		return strings.HasPrefix(m.Text, "📋 personal: 7 of 7 requests still open\n1 ⏳ a7000015 · personal · x_post · ") && len(m.Buttons()) == 8
	})
	require.Len(t, h.api.State().FromBot(ann), 6, "five cards and a digest")
	require.Equal(t, append(labels(1, 2, 3, 4, 5, 6, 7), "❌ Deny these 7"), d.Buttons())
	h.waitFor("the last request's record", func() bool { return strings.Contains(h.record(keys[11]), `"state":"sent"`) })

	// A line cannot be approved: its request was not shown.
	require.Contains(t, h.waitForReply(h.api.Say(ann, ann, "approve "+approval.ShortID(keys[11].ID))).Text, "No pending request with this id")
	require.Zero(t, h.handler.count(keys[11]))

	// Its button shows the card, which can be approved.
	require.Equal(t, "You are not an approver here.", h.tap(eve, d, labels(1, 7)[1]).Text)
	h.tap(ann, d, labels(1, 7)[1])
	m := h.waitForCard(keys[11], ann)
	require.Contains(t, h.tap(ann, m, "✅ Once").Text, "Approved: ")
	h.waitForResponse(keys[11])
	d = h.waitForText(d, "✅ Approved by ann")
	require.True(t, strings.HasPrefix(d.Text, "📋 personal: 6 of 7 requests still open\n"), d.Text)
	require.Equal(t, append(labels(1, 2, 3, 4, 5, 6), "❌ Deny these 6"), d.Buttons())

	// It survives a restart. When all its requests are settled it has no buttons and ends.
	h.stopChannel()
	h.start(withFloodLimit)
	for _, k := range keys[:11] {
		h.decideAsOperator(k, approval.Denied)
	}
	d = h.waitForEdit(d, "no buttons", func(m botapi.Message) bool { return len(m.Buttons()) == 0 })
	require.Equal(t, 6, strings.Count(d.Text, "❌ Denied by operator:root"))
	h.waitFor("the end of the digest", func() bool {
		names, err := h.channel().State.List()
		return err == nil && !strings.Contains(strings.Join(names, " "), "digest-")
	})
	for _, k := range keys {
		h.waitFor("removed records", func() bool { return h.record(k) == "" })
	}
	for _, c := range h.api.State().Refused() { // the last edits before the restart are repeated after it
		require.Regexp(t, "message is not modified|query is too old", c.Description)
	}
}

// If the digest cannot be sent, its requests count as not asked until it is.
func TestFloodWhileTelegramIsUnreachable(t *testing.T) {
	h := newRig(t)
	h.start(withFloodLimit)
	h.helpRoundTrip()
	h.api.Fail("sendMessage", botapi.Fault{Kind: botapi.BadGateway})
	for i := range 7 {
		h.request(keyIn(personal, i), postRequest)
	}
	h.waitFor("the last request's record", func() bool { return strings.Contains(h.record(keyIn(personal, 6)), `"state":"sending"`) })
	h.stopChannel()
	h.api.ClearFaults()
	h.start(withFloodLimit)
	d := h.waitForDigest(ann)
	h.waitForEdit(d, "two lines", func(m botapi.Message) bool { return len(m.Buttons()) == 3 })
	for i := range 7 {
		h.waitFor("all records to be sent", func() bool { return strings.Contains(h.record(keyIn(personal, i)), `"state":"sent"`) })
	}
}

// If the feed is on, one silent message lists what policy allowed.
func TestFeed(t *testing.T) {
	h := newRig(t)
	h.start(func(c *channel) { c.Feed = func() bool { return true } })
	h.helpRoundTrip()
	h.request(keyIn(personal, 1), `"tool_name":"auto","request_data":{"text":"hello"}`)
	m := h.waitForMessage(ann, "the feed", func(m botapi.Message) bool { return strings.Contains(m.Text, "allowed by policy") })
	require.True(t, m.Silent)
	require.Contains(t, m.Text, "Auto-approved a7000001: auto: text: hello · ")
	for i := range 4 {
		h.request(keyIn(personal, 2+i), `"tool_name":"auto","request_data":{"text":"hello"}`)
	}
	m = h.waitForEdit(m, "five lines", func(m botapi.Message) bool { return strings.Count(m.Text, "Auto-approved") == 5 })
	h.stopChannel()
	h.start(func(c *channel) { c.Feed = func() bool { return true } })
	h.request(keyIn(personal, 9), `"tool_name":"auto","request_data":{"text":"hello"}`)
	h.waitForText(m, "a7000009")
	require.Len(t, h.api.State().FromBot(ann), 2, "edited in place, even after a restart")
	require.Empty(t, h.record(keyIn(personal, 9)))
}

func TestNoFeedUnlessWanted(t *testing.T) {
	h := newRig(t)
	h.start()
	h.request(keyIn(personal, 1), `"tool_name":"auto","request_data":{"text":"hello"}`)
	h.waitForResponse(keyIn(personal, 1))
	h.helpRoundTrip()
	require.Len(t, h.api.State().FromBot(ann), 1)
}

// In quiet hours cards are silent. In the morning one message lists what is pending and what expired.
func TestQuietHours(t *testing.T) {
	t.Parallel()
	h := newRig(t)
	var shift atomic.Int64
	midnight := time.Date(2026, 11, 22, 0, 30, 0, 0, time.UTC)
	began := time.Now()
	clock := func(c *channel) {
		c.Now = func() time.Time { return midnight.Add(time.Since(began) + time.Duration(shift.Load())) }
	}
	h.workspaces[0].Quiet = approval.QuietHours{From: 22 * time.Hour, To: 7 * time.Hour}
	h.start(clock)
	waits, expired, answered := keyIn(personal, 1), keyIn(personal, 2), keyIn(personal, 3)
	m := h.ask(waits, ann, postRequest)
	require.True(t, m.Silent)
	h.ask(expired, ann, postRequest+`,"expires_in_sec":5`)
	m = h.ask(answered, ann, postRequest)
	h.tap(ann, m, "❌ Deny")
	h.waitForResponse(answered)
	require.Equal(t, approval.StatusExpired, h.waitForResponse(expired).Status)
	shift.Store(int64(7 * time.Hour))
	morning := h.waitForMessage(ann, "the morning message", func(m botapi.Message) bool { return strings.HasPrefix(m.Text, "🌅 ") })
	require.False(t, morning.Silent)
	require.Contains(t, morning.Text, "in quiet hours 1 requests were left pending and 1 expired")
	require.Contains(t, morning.Text, "1 ⏳ a7000001")
	require.Contains(t, morning.Text, "⌛ a7000002")
	require.NotContains(t, morning.Text, "a7000003")
	require.Equal(t, labels(1), morning.Buttons())
	h.tap(ann, morning, labels(1)[0])
	h.waitForMessage(ann, "a pointer to the card", func(m botapi.Message) bool { return m.Text == "⬆ a7000001" })
	h.request(keyIn(personal, 4), postRequest)
	require.False(t, h.waitForCard(keyIn(personal, 4), ann).Silent, "not silent outside of quiet hours")
	n := 0
	for _, m := range h.api.State().FromBot(ann) {
		if strings.HasPrefix(m.Text, "🌅 ") {
			n++
		}
	}
	require.Equal(t, 1, n)
}

// The morning message is sent once, as soon as Telegram is reachable, in a later session too.
func TestMorningMessageAfterOutage(t *testing.T) {
	t.Parallel()
	h := newRig(t, deliver.Place{Address: at(ann, 0)}, deliver.Place{Address: at(bob, 0)})
	var shift atomic.Int64
	midnight := time.Date(2026, 11, 22, 0, 30, 0, 0, time.UTC)
	began := time.Now()
	clock := func(c *channel) {
		c.Now = func() time.Time { return midnight.Add(time.Since(began) + time.Duration(shift.Load())) }
	}
	h.workspaces[0].Quiet = approval.QuietHours{From: 22 * time.Hour, To: 7 * time.Hour}
	h.start(clock)
	k := keyIn(personal, 1)
	h.ask(k, ann, postRequest)
	h.waitForCard(k, bob)
	h.api.Fail("sendMessage", botapi.Fault{Kind: botapi.TooMany})
	shift.Store(int64(7 * time.Hour))
	h.waitForState("more rejected messages than a lossy job has tries", func(s botapi.State) bool {
		n := 0
		for _, c := range s.Calls {
			if c.Method == "sendMessage" && c.Code == http.StatusTooManyRequests {
				n++
			}
		}
		return n >= 20
	})
	h.stopChannel()
	h.api.ClearFaults()
	for range 2 {
		h.start(clock)
		for _, who := range []int64{ann, bob} {
			h.waitForMessage(who, "the morning message", func(m botapi.Message) bool { return strings.HasPrefix(m.Text, "🌅 ") })
		}
		h.waitFor("the end of the quiet period", func() bool {
			names, err := h.channel().State.List()
			return err == nil && !strings.Contains(strings.Join(names, " "), "night-")
		})
		h.stopChannel()
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
