package terminal

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/permesso-dev/permesso/approval"
)

// ignored is in the sentence about what was typed too early.
const ignored = "typed before the card was shown"

// typeAt types keys at a pseudo-terminal.
func typeAt(t *testing.T, user *os.File, keys string) {
	t.Helper()
	_, err := io.WriteString(user, keys)
	require.NoError(t, err)
}

// linearPTY is a linear channel at a pseudo-terminal on the real clock, where something was typed before.
func linearPTY(t *testing.T, before string) (s *rig, user *os.File) {
	t.Helper()
	user, program := openPTY(t)
	mode, err := unix.IoctlGetTermios(int(program.Fd()), getMode)
	require.NoError(t, err)
	require.NotZero(t, mode.Lflag&unix.ICANON)
	t.Cleanup(func() { // after Run has returned
		after, err := unix.IoctlGetTermios(int(program.Fd()), getMode)
		require.NoError(t, err)
		require.Equal(t, mode.Lflag, after.Lflag, "the terminal's mode")
	})
	typeAt(t, user, before)
	h := &fakeGate{waiting: []approval.StoredPending{reversible(first)}, keep: true}
	s = start(t, h, linear, func(c *Channel) { c.In, c.Now = program, time.Now })
	s.waitFor("Approve or deny a7f3b2c1?")
	return s, user
}

// awaitCount waits until a text was shown so many times.
func (s *rig) awaitCount(text string, n int) {
	s.t.Helper()
	limit := time.After(time.Minute)
	for strings.Count(s.String(), text) < n {
		select {
		case <-s.more:
		case <-limit:
			require.Failf(s.t, "not shown", "%q, %d times, in:\n%s", text, n, s.String())
		}
	}
}

func (s *rig) decisions() (n int) {
	s.do(func() { n = len(s.asked) })
	return n
}

// A line that was complete before the card was shown is dropped, and the person is told.
func TestLinearTypedAhead(t *testing.T) {
	s, user := linearPTY(t, "approve a7f3b2c1\na7f3b2c1\n")
	s.waitFor(ignored)
	require.Zero(t, s.decisions())
	typeAt(t, user, "approve a7f3b2c2\x7f1\n") // the terminal's own editing
	s.waitFor("Approved: post say hello")
	require.Equal(t, 1, s.decisions())
	typeAt(t, user, "\x04")
	s.waitFor("Input closed")
}

// Of a line that was begun before the card was shown, the rest does not count: "do not approve …" must not approve.
func TestLinearLineBegunBefore(t *testing.T) {
	s, user := linearPTY(t, "do not ")
	s.waitFor(ignored)
	typeAt(t, user, "approve a7f3b2c1\n")
	s.awaitCount(ignored, 2)
	require.Zero(t, s.decisions())
	typeAt(t, user, "approve a7f3b2c1\n")
	s.waitFor("Approved: post say hello")
	require.Equal(t, 1, s.decisions())
}

// The same when the card changes while a line is typed.
func TestLinearCardChangesWhileTyping(t *testing.T) {
	s, user := linearPTY(t, "x\n")
	s.waitFor(ignored)
	typeAt(t, user, "approve a7f3")
	changed := reversible(first)
	changed.SHA256 = "another"
	s.do(func() { s.waiting[0] = changed })
	s.changes <- changed.Key()
	s.awaitCount("Approve or deny a7f3b2c1?", 2)
	s.awaitCount(ignored, 2)
	typeAt(t, user, "b2c1\n")
	s.awaitCount(ignored, 3)
	typeAt(t, user, "approve a7f3b2c1\n")
	s.waitFor("Approved: post say hello")
	s.do(func() {
		require.Len(t, s.asked, 1)
		require.Equal(t, "another", s.asked[0].PendingSHA256)
	})
}

// What is typed within settleTime is dropped, although its line ends later.
func TestLinearLineBegunTooEarly(t *testing.T) {
	user, program := openPTY(t)
	x, err := openTTY(program)
	require.NoError(t, err)
	x.cooked = true
	require.NoError(t, x.enter())
	k := newKeys(time.Now)
	stop := x.readInto(k)
	defer stop()
	lines, done := make(chan input), make(chan struct{})
	defer close(done)
	go k.lines(term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{k, io.Discard}, ""), lines, done)
	next := func() input {
		select {
		case l := <-lines:
			return l
		case <-time.After(time.Minute):
			require.Fail(t, "no line")
			return input{}
		}
	}

	k.draw(func(bool) {})
	typeAt(t, user, "do not ")
	time.Sleep(settleTime + 50*time.Millisecond) // real time is what is tested: settle is late
	typeAt(t, user, "approve a7f3b2c1\n")
	require.Eventually(t, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.lost
	}, time.Minute, time.Millisecond, "a whole line, read before settle")
	typeAt(t, user, "approve a7f3b2c1")
	require.True(t, k.settle())
	typeAt(t, user, " now\nwhole\n")
	l := next()
	require.Equal(t, " now", l.text)
	require.False(t, k.current(l))
	l = next()
	require.Equal(t, "whole", l.text)
	require.True(t, k.current(l))
}
