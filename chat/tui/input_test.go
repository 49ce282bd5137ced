package tui

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// chunks returns each chunk from one read.
type chunks struct{ list []string }

func (c *chunks) Read(b []byte) (int, error) {
	if len(c.list) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.list[0])
	if c.list[0] = c.list[0][n:]; c.list[0] == "" {
		c.list = c.list[1:]
	}
	return n, nil
}

func TestPastesAreMarked(t *testing.T) {
	paste := func(s string) string { return pasteStart + s + pasteEnd }
	for _, c := range []struct {
		name  string
		reads []string
		wait  time.Duration // before each but the first
		want  string
	}{
		{"a key", []string{"a"}, 0, "a"},
		{"keys, one by one", []string{"a", "\r"}, 0, "a\r"},
		{"two", []string{"a\r"}, 0, paste("a\r")},
		{"two lines", []string{"\r\r"}, 0, paste("\r\r")},
		{"a letter of two bytes", []string{"è"}, 0, "è"},
		{"half of a letter", []string{"\xc3", "\xa8"}, 0, "è"},
		{"half of a letter in a paste", []string{"aè\xc3", "\xa8"}, 0, paste("aè") + paste("è")},
		{"arrows", []string{"\x1b[A\x1b[A"}, 0, "\x1b[A\x1b[A"},
		{"held keys that scroll", []string{"jjj"}, 0, "jjj"},
		{"a key and an answer", []string{"a\x1b[?1;2c"}, 0, "a\x1b[?1;2c"},
		{"an answer between keys", []string{"a\x1b[?1;2cd"}, 0, paste("a") + "\x1b[?1;2c" + paste("d")},
		{"an arrow and a key", []string{"\x1b[B\r"}, 0, "\x1b[B\r"},
		{"Alt and a key", []string{"\x1bad"}, 0, "\x1bad"},
		{"the focus and a key", []string{"\x1b[Ia"}, 0, "\x1b[Ia"},
		{"a size and a key", []string{"\x1b[8;24;80ta"}, 0, "\x1b[8;24;80ta"},
		{"half of an answer", []string{"\x1b[?1", ";2c"}, 0, "\x1b[?1;2c"},
		{"half of an answer and a key", []string{"\x1b[?1", ";2cd"}, 0, "\x1b[?1;2cd"},
		{"half of an answer and two", []string{"\x1b[?1", ";2cd\r"}, 0, "\x1b[?1;2c" + paste("d\r")},
		{"the next part", []string{"ab", "a"}, pasteTime / 2, paste("ab") + paste("a")},
		{"a key after a paste", []string{"ab", "a"}, pasteTime, paste("ab") + "a"},
		{"a marked one", []string{paste("a\r\x1b[A")}, 0, paste("a\r\x1b[A")},
		{"a marked one in parts", []string{"\x1b[2", "00~a", "\rb", "\x1b[20", "1~"}, 0, paste("a\rb")},
		{"behind a marked one", []string{paste("x") + "a"}, 0, paste("x") + paste("a")},
		{"an end within", []string{pasteStart + "x" + pasteEnd + "d\r" + pasteEnd}, 0, paste("x") + paste("d\r") + pasteEnd},
		{"Alt", []string{"\x1ba"}, 0, "\x1ba"},
		{"Esc, then two", []string{"\x1b", "a\r"}, time.Second, "\x1b" + paste("a\r")},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := &input{from: &chunks{c.reads}}
				var got strings.Builder
				b := make([]byte, 1024)
				for n := range c.reads {
					if n > 0 {
						time.Sleep(c.wait)
					}
					n, err := in.Read(b)
					require.NoError(t, err)
					got.Write(b[:n])
				}
				require.Equal(t, c.want, got.String())
			})
		})
	}
}

// Whatever comes, and in whatever parts: the marks take nothing away, and fit.
func TestMarksKeepEverything(t *testing.T) {
	pieces := []string{"a", "\r", "è", "漢", "\x1b", "\x1b[A", "\x1b[?1;2c", pasteStart, pasteEnd, "\x1b[20", "\x1b]0;x", "\x07", "\x1b\\", "\x1bP", "\x9b", "\xff", "jj", "\x00"}
	without := func(s string) string {
		return strings.NewReplacer(pasteStart, "", pasteEnd, "").Replace(s)
	}
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		var all strings.Builder
		for range random.IntN(20) {
			all.WriteString(pieces[random.IntN(len(pieces))])
		}
		in := &input{from: bytes.NewReader([]byte(all.String()))}
		var got strings.Builder
		b := make([]byte, growth*(1+random.IntN(8)*random.IntN(8)))
		for {
			n, err := in.Read(b)
			got.Write(b[:n])
			if err != nil {
				break
			}
		}
		// A mark that was put into a sequence, or made one complete, is no loss.
		require.Equal(t, strings.Count(without(all.String()), "a"), strings.Count(without(got.String()), "a"), "%d: %q %q", seed, all.String(), got.String())
		require.Equal(t, strings.Count(all.String(), "漢"), strings.Count(got.String(), "漢"), "%d: %q %q", seed, all.String(), got.String())
	}
}

// While the UI leaves only the terminal's answers are read.
func TestClosedInput(t *testing.T) {
	in := &input{from: &chunks{[]string{"ab\x1b[?62;22ccd\x1b[A\x1b[?1;2c"}}}
	in.closed.Store(true)
	b := make([]byte, 1024)
	n, err := in.Read(b)
	require.NoError(t, err)
	require.Equal(t, "\x1b[?62;22c\x1b[?1;2c", string(b[:n]))
}

// Who was stopped shows the card again before a key counts.
func TestInputAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resumed := 0
		in := &input{from: &chunks{[]string{"a", "a"}}, resumed: func() { resumed++ }}
		done := make(chan struct{})
		go in.run(done)
		time.Sleep(10 * time.Second)
		b := make([]byte, 64)
		_, err := in.Read(b)
		require.NoError(t, err)
		require.Zero(t, resumed)
		close(done)
		synctest.Wait()
		time.Sleep(stopTime + beatTime)
		_, err = in.Read(b)
		require.NoError(t, err)
		require.Equal(t, 1, resumed)
	})
}
