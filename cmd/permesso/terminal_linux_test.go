package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/client"
)

// isCooked reports whether the terminal edits lines itself and echoes them, as a shell's
// commands expect it.
func isCooked(t *testing.T, tty *os.File) bool {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	require.NoError(t, err)
	const all = unix.ICANON | unix.ECHO | unix.ISIG | unix.IEXTEN
	return mode.Lflag&all == all && mode.Oflag&unix.OPOST != 0 && mode.Iflag&unix.ICRNL != 0
}

// However the daemon ends, the terminal has its old mode again.
func TestTheTerminalIsRestored(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *terminalRig){
		"Ctrl-C":  func(w *terminalRig) { w.press("\x03") },
		"SIGTERM": func(w *terminalRig) { require.NoError(t, w.process.Signal(syscall.SIGTERM)) },
		"a home that is gone": func(w *terminalRig) {
			require.NoError(t, os.Rename(w.layout.Home, w.layout.Home+".old"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTerminalRig(t, 1)
			require.False(t, isCooked(t, w.tty))
			w.press("half a li")
			w.recorder.await(t, "half a li")
			end(w)
			_ = w.wait()
			require.True(t, isCooked(t, w.tty), w.recorder)
		})
	}
	t.Run("end of input, and the daemon goes on", func(t *testing.T) {
		t.Parallel()
		w := newTerminalRig(t, 1)
		w.press("\x04")
		w.recorder.await(t, "Input closed")
		require.True(t, isCooked(t, w.tty))
		w.awaitShown(w.submit("home", ""))
	})
}

// Ctrl-Z gives the shell its terminal, and fg draws the card again: what was typed
// meanwhile does not count.
func TestTheTerminalIsResumed(t *testing.T) {
	t.Parallel()
	w := newTerminalRig(t, 1, "bash", "-mc", `"$0" "$@"; stty -a >"$MODE"; echo READY; read -r go; fg`)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.recorder)
		}
	})
	k := w.submit("home", "")
	w.awaitShown(k)
	w.press("\x1a")
	mode := filepath.Join(w.dir, "mode")
	await(t, mode, func() bool {
		b, err := os.ReadFile(mode)
		return err == nil && strings.Contains(string(b), " icanon") && strings.Contains(string(b), " echo ")
	})
	w.recorder.await(t, "READY")
	w.press("go\n1\n")
	w.awaitShownAgain(t, k)
	require.NoFileExists(t, filepath.Join(w.layout.Responses(k.Workspace), k.ID+".json"))
	w.press("3 later\r")
	w.recorder.await(t, "Denied: ")
	w.press("\x03")
	_ = w.wait()
}

// awaitShownAgain waits until the card of a request was drawn a second time, and its keys count.
func (w *terminalRig) awaitShownAgain(t *testing.T, k approval.Key) {
	t.Helper()
	w.recorder.awaitThat(t, "the card again", func() bool { return len(w.recorder.cards()) == 2 })
	end := strings.LastIndex(w.recorder.String(), "→ approve")
	prompt := approval.ShortID(k.ID) + "> "
	w.recorder.awaitThat(t, "the prompt", func() bool { return strings.Contains(w.recorder.String()[end:], prompt) })
}

// awaitStopped waits until each thread of a process is stopped: a signal arrives at one of
// them, and the others go on until that one runs.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		require.NoError(t, err)
		for _, file := range all {
			b, err := os.ReadFile(file)
			if _, state, _ := strings.Cut(string(b), ") "); err != nil || !strings.HasPrefix(state, "T") {
				return false
			}
		}
		return len(all) > 0
	}, testTimeout, time.Millisecond)
}

// A signal that stops the daemon at once tells it nothing. What was typed meanwhile does
// not count.
func TestTypedToAStoppedDaemonDecidesNothing(t *testing.T) {
	t.Parallel()
	w := newTerminalRig(t, 1)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.recorder)
		}
	})
	k := w.submit("home", "")
	w.awaitShown(k)
	w.recorder.await(t, approval.ShortID(k.ID)+"> ")
	require.NoError(t, w.process.Signal(syscall.SIGSTOP))
	awaitStopped(t, w.process.Pid)
	w.press("1\r")
	<-time.After(2500 * time.Millisecond) // a stop that is shorter is noticed by SIGCONT alone
	require.NoError(t, w.process.Signal(syscall.SIGCONT))
	w.awaitShownAgain(t, k)
	w.press("3 not now\r")
	w.recorder.await(t, "Denied: ")
	require.NotContains(t, w.recorder.String(), "Approved")
	w.press("\x03")
	_ = w.wait()
}

// What was typed before a card was on the screen does not count, even if it waited in
// the terminal when the daemon started.
func TestTypedAheadDecidesNothing(t *testing.T) {
	t.Parallel()
	w := prepareTerminalRig(t, 1)
	w.start()
	k := w.submit("home", "")
	w.awaitShown(k)
	require.NoError(t, w.process.Signal(syscall.SIGTERM))
	_ = w.wait()
	w.press("1\n3\n")
	w.start()
	w.awaitShownAgain(t, k)
	w.press("3 not now\r")
	w.recorder.await(t, "Denied: ")
	r, err := w.files("home").Await(t.Context(), client.Submitted{ID: k.ID})
	require.NoError(t, err)
	require.Equal(t, approval.StatusDenied, r.Status)
}

// A log line appears above the line that is being typed.
func TestLogLinesDoNotTearTheTypedLine(t *testing.T) {
	t.Parallel()
	w := newTerminalRig(t, 1)
	w.press("deny 0123")
	w.recorder.await(t, "> deny 0123")
	require.NoError(t, os.WriteFile(filepath.Join(w.layout.Requests("home"), "0123456789abcdef.json"), []byte("{"), 0o644))
	w.recorder.await(t, "0123456789abcdef")
	text := w.recorder.String()
	require.NotContains(t, text, "> deny 0123{", "a JSON log line in the typed line")
	require.NotRegexp(t, `> deny 0123\d\d:`, text, "a log line in the typed line")
	w.recorder.awaitThat(t, "the line again", func() bool {
		_, after, _ := strings.Cut(w.recorder.String(), "0123456789abcdef")
		return strings.Contains(after, "> deny 0123")
	})
}
