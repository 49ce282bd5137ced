package deliver

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// Requests that are decided as they come are no flood; those that wait are one, in their place alone.
func TestFloodCountsWhatWaits(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f := flood{most: 3, cards: map[floodKey][]newCard{}}
	open := map[approval.Key]bool{}
	ask := func(n int, to ID) bool {
		k := approval.Key{Workspace: "w", ID: fmt.Sprint(n)}
		exceeded := f.exceeded(k, Place{Address: Address{Chat: to}}, now, func(k approval.Key) bool { return open[k] })
		open[k] = true
		return exceeded
	}
	for n := range 20 {
		require.False(t, ask(n, "1"), n)
		clear(open)
	}
	for n := range 6 {
		require.Equal(t, n >= 3, ask(100+n, "1"), n)
	}
	require.False(t, ask(200, "2"), "another chat")
	now = now.Add(floodWindow)
	require.False(t, ask(300, "1"), "a minute later")
}
