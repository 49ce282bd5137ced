package telegram_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// Requests that a limit refused are told in one line with their number.
func TestRefusedByLimitAreCounted(t *testing.T) {
	h := newRig(t)
	var c *channel
	h.start(func(x *channel) { c = x })
	h.helpRoundTrip()
	for range 37 {
		c.Limited(personal)
	}
	m := h.waitForMessage(ann, "the line", func(m botapi.Message) bool { return strings.HasPrefix(m.Text, "🚫 personal: ") })
	require.Contains(t, m.Text, "asking you: 37")
	require.Len(t, h.api.State().FromBot(ann), 2)
}

// The line is sent at a limited rate, and what was not told yet is told after a restart.
func TestRefusedByLimitRate(t *testing.T) {
	h := newRig(t)
	var clock testClock
	var c *channel
	open := func(x *channel) { c = x; x.Now = clock.now }
	h.start(open)
	h.helpRoundTrip()
	lines := func() (texts []string) {
		for _, m := range h.api.State().FromBot(ann) {
			if strings.HasPrefix(m.Text, "🚫") {
				texts = append(texts, m.Text)
			}
		}
		return texts
	}
	c.Limited(personal)
	h.waitFor("the first line", func() bool { return len(lines()) == 1 })
	for range 5 {
		c.Limited(personal)
	}
	h.waitFor("the stored number", func() bool {
		b, err := h.channel().State.Get("limited-personal.json")
		return err == nil && strings.Contains(string(b), `"count":5`)
	})
	require.Len(t, lines(), 1)
	h.stopChannel()
	h.start(open)
	h.helpRoundTrip()
	require.Len(t, lines(), 1)
	clock.set(11 * time.Minute)
	h.waitFor("the second line", func() bool { return len(lines()) == 2 })
	require.Contains(t, lines()[1], "asking you: 5")
}

// testClock is a clock that a test can set ahead.
type testClock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *testClock) set(ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = ahead
}
