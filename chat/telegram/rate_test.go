package telegram_test

import (
	"math"
	"net/http"
	"slices"
	"strconv"
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
// Cards are decided as they come. They come at Telegram's pace: three at once, then one a second. Telegram counts an
// edit as a message. So twenty cards and their edits are forty calls, and take 37 s. What can be held is this: the
// last card is among the first 23 calls, which take 20 s; each card takes one edit, which shows the outcome and removes
// the buttons; the edits follow at the full pace. They come in the order of the decisions: if the newest was first,
// the buttons of the oldest would stay as long as cards are decided.
func TestBurst(t *testing.T) {
	t.Parallel()
	h := newRig(t)
	h.api.Limits = true
	c := h.channel()
	c.MaxCards = 1 << 20
	h.runChannel(c)
	h.waitForState("the command menu", func(s botapi.State) bool { return len(s.Commands) == len(chat.Languages()) }) // the channel runs
	const cards, atOnce = 20, 3
	for i := range cards {
		h.request(keyIn(personal, i), postRequest)
	}
	h.waitFor("all records: the cards wait to be sent", func() bool { return h.record(keyIn(personal, cards-1)) != "" })
	h.waitForState("the cards that may be sent at once", func(s botapi.State) bool { return len(s.FromBot(ann)) >= atOnce })
	var decided []int
	for range cards { // in the order in which they come
		m := h.waitForMessage(ann, "a card that is not decided", func(m botapi.Message) bool {
			return m.Keyboard != nil && !slices.Contains(decided, m.ID)
		})
		require.Contains(t, h.tap(ann, m, "✅ Once").Text, "Approved: ")
		decided = append(decided, m.ID)
	}
	h.waitForState("the settled cards", func(s botapi.State) bool {
		return len(s.FromBot(ann)) == cards && !slices.ContainsFunc(s.FromBot(ann), func(m botapi.Message) bool { return m.Keyboard != nil })
	})
	var calls []botapi.Call
	var edited []int
	sent, lastCard := 0, 0
	for _, call := range h.api.State().Calls {
		require.NotEqual(t, http.StatusTooManyRequests, call.Code)
		switch call.Method {
		case "sendMessage":
			sent++
			lastCard = len(calls)
			calls = append(calls, call)
		case "editMessageText":
			require.GreaterOrEqual(t, sent, atOnce, "an edit before the third card")
			id, err := strconv.Atoi(call.Params["message_id"])
			require.NoError(t, err)
			edited = append(edited, id)
			calls = append(calls, call)
		}
	}
	require.Equal(t, cards, sent)
	require.Len(t, edited, cards, "one edit of each card")
	moved := 0.0 // places, of all edits
	for i, id := range edited {
		moved += math.Abs(float64(slices.Index(decided, id) - i))
	}
	// A busy machine swaps some. In any order they would move by 6.7 places, in the opposite one by 10.
	require.Less(t, moved/cards, 5.0, "in the order of the decisions %d: %d", decided, edited)
	require.Less(t, lastCard, cards+atOnce, "the calls before the last card")
	// A slow machine delays some calls, but not most.
	var gaps []time.Duration
	for i := atOnce; i < len(calls); i++ {
		gaps = append(gaps, calls[i].At.Sub(calls[i-1].At))
	}
	slices.Sort(gaps)
	require.Less(t, gaps[len(gaps)/2], 1500*time.Millisecond)
	t.Logf("the last card after %s, as call %d; the last edit %s later", calls[lastCard].At.Sub(calls[0].At), lastCard+1, calls[len(calls)-1].At.Sub(calls[lastCard].At))
}
