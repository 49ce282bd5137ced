package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	osexec "os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// watcherProcess is a running permesso watch.
type watcherProcess struct {
	t     *testing.T
	cmd   *osexec.Cmd
	out   io.ReadCloser
	lines chan string

	mu   sync.Mutex
	errs bytes.Buffer
}

// Write implements io.Writer: the process has written to standard error.
func (w *watcherProcess) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.errs.Write(b)
}

func (w *watcherProcess) stderr() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.errs.String()
}

func (h *rig) watch(t *testing.T, args ...string) *watcherProcess {
	t.Helper()
	w := &watcherProcess{t: t, cmd: h.command(append([]string{"watch"}, args...)...), lines: make(chan string, 1000)}
	var err error
	w.out, err = w.cmd.StdoutPipe()
	require.NoError(t, err)
	w.cmd.Stderr = w
	require.NoError(t, w.cmd.Start())
	t.Cleanup(func() { _ = w.cmd.Process.Kill() })
	w.awaitErr("watching the daemon of " + h.layout.Home)
	return w
}

func (w *watcherProcess) awaitErr(text string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return bytes.Contains([]byte(w.stderr()), []byte(text)) }, testTimeout, time.Millisecond, text)
}

// read passes on the lines of standard output.
func (w *watcherProcess) read() *watcherProcess {
	go func() {
		for s := bufio.NewScanner(w.out); s.Scan(); {
			w.lines <- s.Text()
		}
		close(w.lines)
	}()
	return w
}

// next is the next line.
func (w *watcherProcess) next() string {
	w.t.Helper()
	select {
	case line, ok := <-w.lines:
		require.True(w.t, ok, "the output has ended: %s", w.stderr())
		return line
	case <-time.After(testTimeout):
		require.Fail(w.t, "no event", w.stderr())
		return ""
	}
}

// until returns the events up to one, and requires that none is missing or there twice.
func (w *watcherProcess) until(event, id string, last *int64) (seen []string) {
	w.t.Helper()
	for {
		var item watchItem
		line := w.next()
		require.NoError(w.t, json.Unmarshal([]byte(line), &item), line)
		if *last > 0 {
			require.Equal(w.t, *last+1, item.Seq, line)
		}
		*last = item.Seq
		seen = append(seen, item.Event)
		if item.Event == event && item.RequestID == id {
			return seen
		}
	}
}

// Each event is printed once, also those of a daemon that was killed and started again.
func TestWatch(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	w := h.watch(t, "--jsonl").read()
	var last int64
	decided := func() (id string) {
		id = h.ask(`{"tool_name":"say"}`)
		h.awaitPending("default", id)
		code, _, errs := h.run("", "approve", id, "--always")
		require.Zero(t, code, errs)
		h.response(id)
		return id
	}
	id := decided()
	seen := w.until("executed", id, &last)
	require.Subset(t, seen, []string{"approval_requested", "approved", "granted"})
	d.kill()
	w.awaitErr("waiting for the next one")
	d = h.serve()
	w.awaitErr("the daemon answers again")
	code, _, errs := h.run("", "pause", "--reason", "careful")
	require.Zero(t, code, errs)
	seen = w.until("paused", "", &last)
	require.Contains(t, seen, "started")

	began := time.Now()
	d.stop()
	require.Less(t, time.Since(began), followWaitOfAnswers, "the daemon does not wait for those who watch")
	d = h.serve()
	seen = w.until("started", "", &last)
	require.Contains(t, seen, "stopped")
	require.NoError(t, w.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, w.cmd.Wait())
	d.stop()
}

// followWaitOfAnswers is how long an answer of the daemon may wait for an event.
const followWaitOfAnswers = 20 * time.Second

// A closed pipe ends it cleanly, and a line has what happened.
func TestWatchLines(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll+"\n[workspaces.default]\n[workspaces.other]\n")
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	w := h.watch(t, "--workspace", "default").read()
	elsewhere := *h
	elsewhere.agent.Requests = h.layout.Requests("other")
	hidden := elsewhere.ask(`{"tool_name":"say"}`)
	h.awaitPending("other", hidden)
	id := h.ask(`{"tool_name":"say"}`)
	require.Regexp(t, `^[-0-9]+ [:0-9]+  default  `+id[:8]+`  say  approval requested`, w.next(), "not that of another workspace")
	code, _, errs := h.run("", "deny", id, "no")
	require.Zero(t, code, errs)
	require.Regexp(t, `  default  `+id[:8]+`  say  denied by user by operator:`, w.next())
	code, _, errs = h.run("", "pause")
	require.Zero(t, code, errs)
	require.Regexp(t, `  –  –  –  paused by operator:`, w.next())
	require.NoError(t, w.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, w.cmd.Wait())

	x := h.watch(t)
	require.NoError(t, x.out.Close())
	code, _, errs = h.run("", "resume")
	require.Zero(t, code, errs)
	require.NoError(t, x.cmd.Wait(), x.stderr())

	code, out, errs := h.run("", "watch", "--workspace", "nowhere")
	require.Equal(t, console.ExitError, code, errs)
	require.Equal(t, "permesso: no workspace 'nowhere'\nhint: workspaces: default, other\n", errs)
	require.Empty(t, out)
	code, _, errs = h.run("", "watch", "--json")
	require.Equal(t, console.ExitUsage, code, errs)
	require.Contains(t, errs, "hint: permesso watch --jsonl")
}
