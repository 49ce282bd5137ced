package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The daemon shows cards on a dumb terminal, and reads no replies: an unfinished line that was
// typed for one card must not count for the next.
func TestServeOnADumbTerminal(t *testing.T) {
	t.Parallel()
	w := prepareTerminalRig(t, 1)
	w.env = []string{"TERM=dumb"}
	w.start()
	require.True(t, isCooked(t, w.tty))
	k := w.submit("home", "")
	w.awaitShown(k)
	w.recorder.await(t, "decide with permesso approve")
	w.press("1\r")
	other := w.submit("home", "")
	w.awaitShown(other)
	require.NoFileExists(t, filepath.Join(w.layout.Responses(k.Workspace), k.ID+".json"))
	w.press("\x03")
	_ = w.wait()
	require.NotContains(t, w.recorder.String(), "\x1b")
	require.NotContains(t, strings.ReplaceAll(w.recorder.String(), "\r\n", "\n"), "\r")
}

func TestServeWithoutColor(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", "1"} {
		w := prepareTerminalRig(t, 1)
		w.env = []string{"TERM=xterm", "NO_COLOR=" + value}
		w.start()
		w.awaitShown(w.submit("home", ""))
		w.press("\x03")
		_ = w.wait()
		require.Equal(t, value == "", strings.Contains(w.recorder.String(), "\x1b[1m"))
	}
}

// The sentences of a card fit the daemon's terminal.
func TestCardFitsTheTerminal(t *testing.T) {
	t.Parallel()
	w := prepareTerminalRig(t, 1)
	require.NoError(t, unix.IoctlSetWinsize(int(w.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 40}))
	w.env = []string{"TERM=dumb"}
	w.start()
	w.awaitShown(w.submit("home", ""))
	w.press("\x03")
	_ = w.wait()
	_, card, ok := strings.Cut(strings.ReplaceAll(w.recorder.String(), "\r\n", "\n"), "🔐")
	require.True(t, ok)
	card, _, ok = strings.Cut(card, "→ approve")
	require.True(t, ok)
	require.Regexp(t, `(?m)^1 once`, card)
	for line := range strings.SplitSeq(card, "\n") {
		require.LessOrEqual(t, len([]rune(line)), 40, line)
	}
}
