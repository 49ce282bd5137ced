package telegram_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// With its own limiter the channel never exceeds Telegram's limits.
func TestRateLimits(t *testing.T) {
	t.Parallel()
	h := newRig(t, deliver.Place{Address: at(family, 0)})
	h.api.Limits = true
	c := h.channel()
	h.runChannel(c)
	var cards []botapi.Message
	for i := range 4 {
		cards = append(cards, h.ask(keyIn(personal, i), family, postRequest))
	}
	h.tap(ann, cards[0], "✅ Once")
	h.waitForText(cards[0], "✅ Approved by ann")
	for _, call := range h.api.State().Calls {
		require.NotEqual(t, http.StatusTooManyRequests, call.Code)
	}
}

// Visible runes pass through Telegram unchanged: the strict fake refuses texts that Telegram would change.
func TestEveryVisibleScalarThroughTelegram(t *testing.T) {
	t.Parallel()
	h := newRig(t)
	h.start(func(c *channel) { c.Every = time.Hour })
	var b strings.Builder
	n, i := 0, 0
	flush := func() {
		k := keyIn(personal, 0x1000+i)
		defer b.Reset()
		n = 0
		if i++; raceDetector && i%8 != 0 {
			return // without the race detector all are tried
		}
		m := h.ask(k, ann, strings.Replace(saying(b.String()), "x_post", "note", 1))
		require.Contains(t, m.Text, "text: "+chat.Escape(b.String()))
		require.True(t, approving(m))
		h.decideAsOperator(k, approval.Denied)
	}
	for r := rune(0x21); r <= utf8.MaxRune; r++ {
		if !unicode.IsPrint(r) || chat.Escape("x"+string(r)+"x") != "x"+string(r)+"x" {
			continue
		}
		b.WriteRune(r)
		if n += chat.Units(string(r)); n > 3000 {
			flush()
		}
	}
	flush()
	require.Empty(t, h.api.State().Refused())
}

// BenchmarkTapToResponse measures the time from a tap at Telegram to the agent's response.
func BenchmarkTapToResponse(b *testing.B) {
	h := newRig(b)
	h.start()
	for i := range b.N {
		b.StopTimer()
		k := keyIn(personal, i)
		m := h.ask(k, ann, postRequest)
		b.StartTimer()
		_, err := h.api.Tap(ann, ann, m.ID, "✅ Once")
		require.NoError(b, err)
		h.waitForResponse(k)
	}
}

// In a chat that is answered quickly, edits of answered cards do not delay new cards, and Telegram's limits hold.
// Cards are decided as they come. They come at Telegram's pace: three at once, then one a second. The edits follow at
// that pace: Telegram counts them as messages.
func TestBurst(t *testing.T) {
	t.Parallel()
	h := newRig(t)
	h.api.Limits = true
	c := h.channel()
	c.MaxCards = 1 << 20
	h.runChannel(c)
	h.helpRoundTrip()
	time.Sleep(3 * time.Second) // the burst is available again
	began := time.Now()
	const cards = 20
	for i := range cards {
		h.request(keyIn(personal, i), postRequest)
	}
	var first, third, last time.Duration
	for i := range cards {
		m := h.waitForCard(keyIn(personal, i), ann)
		switch last = time.Since(began); i {
		case 0:
			first = last
		case 2:
			third = last
		}
		require.Contains(t, h.tap(ann, m, "✅ Once").Text, "Approved: ")
	}
	t.Logf("the first card after %s, the third after %s, the last after %s", first, third, last)
	sent, edits := 0, 0
	for _, call := range h.api.State().Calls {
		switch call.Method {
		case "sendMessage":
			sent++
		case "editMessageText":
			require.GreaterOrEqual(t, sent, 1+3, "an edit before the third card")
			if sent < 1+cards {
				edits++
			}
		}
	}
	// Three calls at once and one a second: with three edits before it, the last card comes after 20 s at most.
	require.LessOrEqual(t, edits, 3)
	h.waitForState("the settled cards", func(s botapi.State) bool {
		return len(s.FromBot(ann)) == cards+1 && !slices.ContainsFunc(s.FromBot(ann), func(m botapi.Message) bool { return m.Keyboard != nil })
	})
	t.Logf("all settled %s after the last card", time.Since(began)-last)
	for _, call := range h.api.State().Calls {
		require.NotEqual(t, http.StatusTooManyRequests, call.Code)
	}
}
