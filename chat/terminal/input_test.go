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
	k.drain = func() []byte { drained = true; return nil }
	k.resume()
	require.True(t, drained, "what waits to be read")
	require.Equal(t, "\x05\x15no", typed("no"))
}

// The rest of a line whose beginning was dropped does not count by itself, whatever dropped
// the beginning. After Enter a new line counts.
func TestTheRestOfALineDoesNotCount(t *testing.T) {
	at := time.Unix(1000, 0)
	queued := func(k *keys, text string) {
		require.NoError(t, k.take(func() ([]byte, error) { return []byte(text), nil }))
	}
	tests := map[string]struct {
		dropped func(k *keys, typed func(string))
		counts  bool
	}{
		"typed too early": {func(k *keys, typed func(string)) {
			k.draw(func(bool) {})
			typed("no, not ")
		}, false},
		"typed before the card": {func(k *keys, typed func(string)) {
			typed("no, not ")
			k.draw(func(bool) {})
		}, false},
		"waiting when the card was drawn": {func(k *keys, _ func(string)) {
			k.drain = func() []byte { return []byte("no, not ") }
			k.draw(func(bool) {})
		}, false},
		"ended too early": {func(k *keys, typed func(string)) {
			k.draw(func(bool) {})
			typed("no")
			typed("\r")
		}, true},
		"while stopped": {func(k *keys, typed func(string)) {
			typed("4 be br")
			k.drain = func() []byte { return []byte("ief\rno, not ") }
			k.stopped()
		}, false},
		"half of a line, then stopped": {func(k *keys, typed func(string)) {
			typed("4 be br")
			k.drain = func() []byte { return nil }
			k.stopped()
		}, false},
		"read, but not by the editor": {func(k *keys, _ func(string)) {
			queued(k, "no, not ")
			k.draw(func(bool) {})
		}, false},
		"two lines, half read by the editor": {func(k *keys, _ func(string)) {
			queued(k, "approve\rno\r")
			_, err := k.Read(make([]byte, 16))
			require.NoError(t, err)
			k.draw(func(bool) {})
		}, true},
		"the beginning of a letter": {func(k *keys, _ func(string)) {
			queued(k, "\xc3")
			k.draw(func(bool) {})
		}, false},
		"an arrow, not read by the editor": {func(k *keys, _ func(string)) {
			queued(k, "\x1b[A\x1b")
			k.draw(func(bool) {})
		}, true},
		"an arrow": {func(k *keys, typed func(string)) {
			k.draw(func(bool) {})
			typed("\x05\x15")
		}, true},
		"typed for the shell": {func(k *keys, typed func(string)) {
			k.suspend()
			typed("fg")
			k.resume()
		}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			now := at
			k := newKeys(func() time.Time { return now })
			read := make([]byte, 16)
			typed := func(text string) {
				require.NoError(t, k.take(func() ([]byte, error) { return []byte(text), nil }))
				for len(k.queue) > 0 {
					_, err := k.Read(read)
					require.NoError(t, err)
				}
			}
			test.dropped(k, typed)
			k.drain = nil
			now = now.Add(settleTime)
			typed("1\r")
			require.Equal(t, test.counts, k.current(input{"1", k.ended}))
			typed("1\r")
			require.True(t, k.current(input{"1", k.ended}), "after Enter")
		})
	}
}
