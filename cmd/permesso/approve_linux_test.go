package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// terminal is a pseudo terminal: a person at the keyboard, and what is on the screen.
type terminal struct {
	t        testing.TB
	keyboard *os.File
	program  *os.File // the program's side

	mu      sync.Mutex
	text    bytes.Buffer
	changed *sync.Cond
}

func newTerminal(t testing.TB) *terminal {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	side, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	x := &terminal{t: t, keyboard: keyboard, program: side}
	x.changed = sync.NewCond(&x.mu)
	go func() { _, _ = io.Copy(x, keyboard) }() // ends when both sides are closed
	t.Cleanup(func() { _ = side.Close(); _ = keyboard.Close() })
	return x
}

// Write implements io.Writer: the program has written to the screen.
func (x *terminal) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.changed.Broadcast()
	return x.text.Write(b)
}

func (x *terminal) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.ReplaceAll(x.text.String(), "\r\n", "\n")
}

// awaitText waits until the screen has shown a text.
func (x *terminal) awaitText(text string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), testTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, x.changed.Broadcast)()
	x.mu.Lock()
	defer x.mu.Unlock()
	for !strings.Contains(strings.ReplaceAll(x.text.String(), "\r\n", "\n"), text) {
		require.NoError(x.t, ctx.Err(), "waiting for %q: %s", text, x.text.String())
		x.changed.Wait()
	}
}

func (x *terminal) press(keys string) {
	x.t.Helper()
	_, err := io.WriteString(x.keyboard, keys)
	require.NoError(x.t, err)
}

// run starts a command line at the terminal. exit waits for its end.
func (x *terminal) run(ctx context.Context, h *rig, args ...string) (exit func() (code int, stderr string)) {
	var errs bytes.Buffer
	m := Main{In: x.program, Out: x.program, Err: &errs, Env: func(string) string { return "" }}
	done := make(chan int, 1)
	go func() { done <- m.Run(ctx, append([]string{"--config", h.config, "--home", h.layout.Home}, args...)) }()
	return func() (int, string) {
		code := <-done
		return code, withoutWaiting(errs.String())
	}
}

func (h *rig) requireUndecided(id string) {
	h.t.Helper()
	require.NoFileExists(h.t, filepath.Join(h.layout.Decisions("default"), id+".json"))
	require.FileExists(h.t, filepath.Join(h.layout.Pendings("default"), id+".json"))
}

func TestApproveShowsAndAsks(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	for _, row := range []struct {
		why, before, after string // keys before the card, and after the question
		flags              []string
		question           string
		code               int
	}{
		{why: "yes", after: "y\n", question: "Approve? [y/N] "},
		{why: "the word", after: "Yes\n", question: "Approve? [y/N] "},
		{why: "no", after: "n\n", question: "Approve? [y/N] ", code: console.ExitRefused},
		{why: "Enter alone", after: "\n", question: "Approve? [y/N] ", code: console.ExitRefused},
		{why: "anything else", after: "why\n", question: "Approve? [y/N] ", code: console.ExitRefused},
		{why: "typed ahead", before: "y\n", after: "\n", question: "Approve? [y/N] ", code: console.ExitRefused},
		{why: "many typed ahead", before: strings.Repeat("y\n", 50), after: "\n", question: "Approve? [y/N] ", code: console.ExitRefused},
		{why: "half a line typed ahead", before: "y", after: "\n", question: "Approve? [y/N] ", code: console.ExitRefused},
		{why: "always", after: "y\n", flags: []string{"--always"}, question: "Approve? Always: say with any arguments in default, 90 days [y/N] "},
	} {
		t.Run(row.why, func(t *testing.T) {
			id := h.ask(`{"tool_name":"say"}`)
			h.awaitPending("default", id)
			x := newTerminal(t)
			x.press(row.before)
			exit := x.run(t.Context(), h, append([]string{"approve", id}, row.flags...)...)
			x.awaitText(row.question)
			h.requireUndecided(id)
			card, _, _ := strings.Cut(x.String(), row.question)
			require.Contains(t, card, id[:8], "the card comes first")
			require.NotContains(t, card, "3 deny", "the question takes no codes")
			x.press(row.after)
			code, errs := exit()
			require.Equal(t, row.code, code, errs)
			if row.code == 0 {
				x.awaitText("Approved: say")
				h.response(id)
				return
			}
			require.Equal(t, "permesso: not approved, nothing was decided\nhint: permesso deny "+id+" denies the request\n", errs)
			h.requireUndecided(id)
			code, _, errs = h.run("", "deny", id)
			require.Zero(t, code, errs)
		})
	}
}

// The end of input is no answer.
func TestApproveWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	id := h.ask(`{"tool_name":"say"}`)
	h.awaitPending("default", id)
	x := newTerminal(t)
	exit := x.run(t.Context(), h, "approve", id)
	x.awaitText("Approve? [y/N] ")
	x.press("\x04") // Ctrl-D
	code, errs := exit()
	require.Equal(t, console.ExitRefused, code)
	require.Equal(t, "permesso: nothing was decided: no answer\nhint: permesso deny "+id+" denies the request\n", errs)
	x.awaitText("Approve? [y/N] \n")
	h.requireUndecided(id)
}

// What was on the screen is approved, or nothing.
func TestApproveNothingElse(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	id := h.ask(`{"tool_name":"say"}`)
	h.awaitPending("default", id)
	x := newTerminal(t)
	exit := x.run(t.Context(), h, "approve", id[:8])
	x.awaitText("Approve? [y/N] ")
	code, _, errs := h.run("", "cancel", "--operator", id)
	require.Zero(t, code, errs)
	h.response(id)
	other := id[:8] + strings.Repeat("0", len(id)-8)
	require.NoError(t, h.agent.Submit(other, []byte(`{"request_id":"`+other+`","tool_name":"say"}`)))
	h.awaitPending("default", other)
	x.press("y\n")
	code, errs = exit()
	require.Equal(t, console.ExitRefused, code)
	require.Contains(t, errs, "already decided: cancelled")
	h.requireUndecided(other)
}

func TestApproveIsInterrupted(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	id := h.ask(`{"tool_name":"say"}`)
	h.awaitPending("default", id)
	x := newTerminal(t)
	ctx, interrupt := context.WithCancel(t.Context())
	exit := x.run(ctx, h, "approve", id)
	x.awaitText("Approve? [y/N] ")
	interrupt()
	code, errs := exit()
	require.Equal(t, console.ExitRefused, code)
	require.Equal(t, "permesso: nothing was decided: no answer\nhint: permesso deny "+id+" denies the request\n", errs)
	h.requireUndecided(id)
}

// A question is answered, not approved: it is refused without asking.
func TestApproveDoesNotAskAboutAQuestion(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	id := h.ask(`{"type":"question","title":"Which?"}`)
	h.awaitPending("default", id)
	x := newTerminal(t)
	code, errs := x.run(t.Context(), h, "approve", id)()
	require.Equal(t, console.ExitRefused, code)
	require.Contains(t, errs, "it is a question: answer it")
	require.Empty(t, x.String())
}

// A revealed card is on the alternate screen, and the log has the entry before.
func TestShowReveal(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	token := "ghp_" + strings.Repeat("aB3dE6gH9", 4)
	id := h.ask(`{"tool_name":"say","rationale":"push with ` + token + `"}`)
	h.awaitPending("default", id)
	code, out, errs := h.run("", "show", id)
	require.Zero(t, code, errs)
	require.NotContains(t, out, token)

	code, out, errs = h.run("", "show", id, "--reveal")
	require.Equal(t, console.ExitUsage, code)
	require.Empty(t, out)
	require.Equal(t, "permesso: show --reveal needs a terminal whose screen it can restore, or --json\nhint: with --json it prints the request with its secrets\n", errs)
	requireReveals := func(n int) {
		t.Helper()
		code, out, errs := h.run("", "audit", "tail", "-n", "100")
		require.Zero(t, code, errs)
		require.Equal(t, n, strings.Count(out, " revealed "), out)
		require.NotContains(t, out, token)
	}
	requireReveals(0)

	for i, leave := range []string{"\r", "x", "q", "\x03"} {
		x := newTerminal(t)
		exit := x.run(t.Context(), h, "show", id, "--reveal")
		x.awaitText("any key")
		requireReveals(i + 1)
		x.press(leave)
		code, errs := exit()
		require.Zero(t, code, errs)
		x.awaitText("\x1b[?1049l")
		before, shown, ok := strings.Cut(x.String(), "\x1b[?1049h")
		require.True(t, ok)
		require.Empty(t, before)
		shown, after, _ := strings.Cut(shown, "\x1b[?1049l")
		require.Contains(t, shown, token)
		require.Empty(t, after, "nothing stays on the screen")
	}

	x := newTerminal(t)
	ctx, interrupt := context.WithCancel(t.Context())
	exit := x.run(ctx, h, "show", id, "--reveal")
	x.awaitText("any key")
	interrupt()
	code, _ = exit()
	require.Equal(t, console.ExitError, code)
	x.awaitText("\x1b[?1049l")

	for i, options := range [][]string{{"--json"}, {"--json", "--reveal"}, {"--json"}} {
		if i == 2 {
			d.stop()
		}
		code, out, errs = h.run("", append([]string{"show", id}, options...)...)
		require.Zero(t, code, errs)
		require.Contains(t, out, token)
		require.Equal(t, 6+i, strings.Count(out, `"event":"revealed"`), "JSON is a reveal, and has its entry")
		requireReveals(6 + i)
	}
	code, out, errs = h.run("", "show", id)
	require.Zero(t, code, errs)
	require.Regexp(t, `revealed by operator:.* via cli: 1 mask: github`, out)
	require.NotContains(t, out, token)
	code, _, errs = h.run("", "audit", "verify")
	require.Zero(t, code, errs)

	h.serve().awaitLog(`"message":"serving"`)
	plain := h.ask(`{"tool_name":"say"}`)
	h.awaitPending("default", plain)
	code, errs = newTerminal(t).run(t.Context(), h, "show", plain, "--reveal")()
	require.Equal(t, console.ExitRefused, code)
	require.Contains(t, errs, "nothing is masked")
	code, _, errs = h.run("", "show", plain, "--json")
	require.Zero(t, code, errs)
	code, _, errs = h.run("", "deny", id)
	require.Zero(t, code, errs)
	h.awaitResponse(id)
	requireReveals(8)
	code, out, errs = h.run("", "show", id, "--json")
	require.Zero(t, code, errs)
	require.Contains(t, out, token)
	requireReveals(9)
}

// The question names what would be remembered.
func TestApproveAsksWithThePattern(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	h.serve()
	id := h.askExec("go test ./a")
	h.awaitPending("default", id)
	x := newTerminal(t)
	exit := x.run(t.Context(), h, "approve", id, "--commands", "go test ...")
	x.awaitText("Approve? Always: exec_cmd like \"go test ...\" without other options in default, 90 days [y/N] ")
	h.requireUndecided(id)
	x.press("y\n")
	code, errs := exit()
	require.Zero(t, code, errs)
	h.response(id)
}
