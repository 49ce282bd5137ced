package terminal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is typed while the process is stopped is read before the signal that continues it
// is handled. It must not count for the card that was on the screen before.
func TestKeysOfAStoppedProcess(t *testing.T) {
	k := newKeys(time.Now)
	typed := func(text string) (queued string) {
		require.NoError(t, k.take(func() ([]byte, error) { return []byte(text), nil }))
		for _, key := range k.queue {
			queued += string(key)
		}
		return queued
	}
	require.Equal(t, "ab", typed("ab"))
	card := input{"ab", k.card}
	k.suspend()
	require.Equal(t, "\x05\x15", typed("1\r"), "only the keys that empty the line")
	require.False(t, k.current(card), "a line that was ended before is not current")
	drained := false
	k.drain = func() { drained = true }
	k.resume()
	require.True(t, drained, "what waits to be read")
	require.Equal(t, "\x05\x15no", typed("no"))
}
