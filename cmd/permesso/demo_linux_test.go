package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// demoRun is one run of permesso demo. It checks that no file or process remains.
type demoRun struct {
	t      *testing.T
	cmd    *osexec.Cmd
	temp   string
	mu     sync.Mutex
	text   bytes.Buffer
	more   chan struct{}
	copied chan struct{} // closed when all that a terminal showed was read; nil: no terminal
}

func newDemo(t *testing.T, env ...string) *demoRun {
	t.Helper()
	d := &demoRun{t: t, temp: t.TempDir(), more: make(chan struct{}, 1)}
	d.cmd = osexec.Command(program(t, true), "demo")
	d.cmd.Env = append([]string{"TMPDIR=" + d.temp, "PATH=" + os.Getenv("PATH"), "HOME=" + d.temp}, env...)
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.WaitDelay = d, d, 5*time.Second
	return d
}

func (d *demoRun) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text.Write(b)
	select {
	case d.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (d *demoRun) output() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.String()
}

func (d *demoRun) awaitOutput(text string) {
	d.t.Helper()
	limit := time.After(testTimeout)
	for !strings.Contains(d.output(), text) {
		select {
		case <-d.more:
		case <-limit:
			require.Fail(d.t, "no such output", "%q in:\n%s", text, d.output())
		}
	}
}

// awaitExit waits for the exit and requires that no file and no process remains.
func (d *demoRun) awaitExit(code int) string {
	d.t.Helper()
	done := make(chan error, 1)
	go func() { done <- d.cmd.Wait() }()
	select {
	case err := <-done:
		var exited *osexec.ExitError
		if !errors.As(err, &exited) {
			require.NoError(d.t, err)
		}
	case <-time.After(testTimeout):
		_ = d.cmd.Process.Kill()
		require.Fail(d.t, "the demo does not exit", "%s", d.output())
	}
	if d.copied != nil { // what the last process wrote is still on its way
		select {
		case <-d.copied:
		case <-time.After(testTimeout):
			require.Fail(d.t, "the terminal is still open", "%s", d.output())
		}
	}
	require.Equal(d.t, code, d.cmd.ProcessState.ExitCode(), d.output())
	left, err := os.ReadDir(d.temp)
	require.NoError(d.t, err)
	require.Empty(d.t, left, d.output())
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(d.t, err)
	for _, file := range lines {
		b, err := os.ReadFile(file)
		require.False(d.t, err == nil && bytes.Contains(b, []byte(d.temp)), "still running: %q", b)
	}
	return d.output()
}

func (d *demoRun) start() {
	d.t.Helper()
	require.NoError(d.t, d.cmd.Start())
	d.t.Cleanup(func() { _ = d.cmd.Process.Kill() })
}

// openPTY opens a pseudo-terminal.
func openPTY(t testing.TB) (master, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	raw, err := master.SyscallConn() // Fd would make it blocking: Close would wait for a read
	require.NoError(t, err)
	var n int
	require.NoError(t, raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}))
	require.NoError(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	return master, tty
}

// startOnTerminal starts the demo on a pseudo-terminal and returns the master.
func (d *demoRun) startOnTerminal() *os.File {
	d.t.Helper()
	master, tty := openPTY(d.t)
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = tty, tty, tty
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	d.start()
	require.NoError(d.t, tty.Close())
	copied := make(chan struct{})
	d.copied = copied
	go func() {
		defer close(copied)
		_, _ = io.Copy(d, master) // ends with EIO when the last process has closed the terminal
	}()
	d.t.Cleanup(func() {
		_ = master.Close()
		<-copied
	})
	return master
}

func TestDemoWithoutTerminal(t *testing.T) {
	t.Parallel()
	broken := func(script string) string {
		dir := t.TempDir()
		require.NoError(t, writeProgram(filepath.Join(dir, "bwrap"), "#!/bin/sh\n"+script+"\n", 0o755))
		return "PATH=" + dir + ":/usr/bin:/bin"
	}
	for _, row := range []struct {
		why, env  string
		code      int
		says, not string
	}{
		{"in bubblewrap", "", 0, "The agent runs in bubblewrap. It sees only two of the daemon's folders", "NOT SANDBOXED"},
		{"no bubblewrap", "PATH=/nonexistent", 0, "!! THE AGENT IS NOT SANDBOXED: bubblewrap is not installed", "in bubblewrap"},
		{
			"bubblewrap without permission", broken("echo bwrap: No permissions >&2; exit 1"), 0,
			"!! THE AGENT IS NOT SANDBOXED: bubblewrap fails on this host: bwrap: No permissions.", "in bubblewrap",
		},
		{"the agent submits no request", broken("exit 0"), console.ExitError, "permesso: no record of greet", "✓"},
		{
			"the agent does not start", broken(`for a; do case $a in */permesso) exit 7 ;; esac; done`), console.ExitError,
			"permesso: agent: exit status 7", "✓",
		},
	} {
		t.Run(row.why, func(t *testing.T) {
			d := newDemo(t, row.env)
			d.start()
			said := d.awaitExit(row.code)
			require.Contains(t, said, "!! NO APPROVER: standard input is not a terminal")
			require.Contains(t, said, row.says)
			require.NotContains(t, said, row.not)
			require.NotContains(t, said, "\x1b", "no color in a file")
			if row.code != 0 {
				return
			}
			require.Regexp(t, `(?ms)^→ approve [0-9a-f]{8} .*^> approve [0-9a-f]{8} +\(typed by the demo itself\)$`, said, "the card, then the reply")
			for _, line := range []string{
				`agent │ auto_approved (policy)`, `agent │ result: {"output":"Hello, world!\n"}`,
				`
│ Meeting at 5`, `agent │ approved (operator:`,
				`agent │ auto_rejected (policy)`,
				`✓ greet: receipt valid for {"name":"world"}, auto_approved by rule greetings-are-fine`,
				`for {"name":"moon"} it is refused`,
				`✓ post_note: receipt valid for {"text":"Meeting at 5"}, approved by operator:`,
				`for {"text":"Meeting at 6"} it is refused`,
				`✓ wipe_board: auto_rejected; no receipt, so nothing ran`,
				`✓ the notice board says, once: Meeting at 5`,
			} {
				require.Contains(t, said, line)
			}
		})
	}
}

func TestDemoAtATerminal(t *testing.T) {
	t.Parallel()
	const approved, denied = "✓ the notice board says, once: Meeting at 5", "✓ the notice board is empty, as it was"
	for _, row := range []struct {
		why, typed string // ID stands for the request's ID
		says       []string
	}{
		{"approve by code", "1\n", []string{"✓ post_note: receipt valid", "via terminal", approved}},
		{"approve by ID", "approve ID\n", []string{"✓ post_note: receipt valid", approved}},
		{"deny by ID", "deny ID not today\n", []string{"agent │ denied (operator:", "feedback: not today", "✓ post_note: denied; no receipt", denied}},
		{"deny by code", "3 not today\n", []string{"feedback: not today", denied}},
		{"not understood, then deny", "approve? no\n3\n", []string{"nothing was decided", denied}},
		{"override: nothing runs", "5 make it 6\n", []string{"✓ post_note: overridden; no receipt", denied}},
		{"end of input", "\x04", []string{"> deny ID        (end of input)", denied}},
	} {
		t.Run(row.why, func(t *testing.T) {
			d := newDemo(t)
			keys := d.startOnTerminal()
			d.awaitOutput(" · until ")
			id := regexp.MustCompile(`→ approve ([0-9a-f]{8})`).FindStringSubmatch(d.output())
			require.NotNil(t, id, d.output())
			d.awaitOutput(id[1] + "> ") // the prompt: from now on keys count
			_, err := io.WriteString(keys, strings.ReplaceAll(row.typed, "ID", id[1]))
			require.NoError(t, err)
			d.awaitOutput("everything is removed")
			said := d.awaitExit(0)
			require.NotContains(t, said, "NO APPROVER")
			require.Contains(t, said, "\x1b[1m🔐 May I ", "color on a terminal")
			for _, line := range row.says {
				require.Contains(t, said, strings.ReplaceAll(line, "ID", id[1]))
			}
		})
	}
}

func TestDemoWithoutColor(t *testing.T) {
	t.Parallel()
	d := newDemo(t, "NO_COLOR=1")
	keys := d.startOnTerminal()
	d.awaitOutput(" · until ")
	id := regexp.MustCompile(`→ approve ([0-9a-f]{8})`).FindStringSubmatch(d.output())
	d.awaitOutput(id[1] + "> ")
	_, err := io.WriteString(keys, "1\n")
	require.NoError(t, err)
	d.awaitOutput("everything is removed")
	require.NotRegexp(t, `\x1b\[[0-9;]*m`, d.awaitExit(0))
}

// However the demo is stopped, it stops its children, removes its files, and
// returns an error.
func TestDemoStopped(t *testing.T) {
	t.Parallel()
	t.Run("by Ctrl-C", func(t *testing.T) {
		d := newDemo(t)
		keys := d.startOnTerminal()
		d.awaitOutput(" · until ")
		_, err := io.WriteString(keys, "\x03")
		require.NoError(t, err)
		d.awaitOutput("permesso: demo interrupted: interrupt signal received")
		d.awaitExit(console.ExitError)
	})
	t.Run("by a closed terminal", func(t *testing.T) {
		d := newDemo(t)
		keys := d.startOnTerminal()
		d.awaitOutput(" · until ")
		require.NoError(t, keys.Close())
		d.awaitExit(console.ExitError)
	})
	t.Run("by a signal, unsandboxed", func(t *testing.T) {
		d := newDemo(t, "PATH=/nonexistent")
		d.startOnTerminal()
		d.awaitOutput(" · until ")
		require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
		d.awaitExit(console.ExitError)
	})
	t.Run("by a closed pipe", func(t *testing.T) {
		d := newDemo(t)
		r, w, err := os.Pipe()
		require.NoError(t, err)
		d.cmd.Stdout = w
		d.start()
		require.NoError(t, errors.Join(w.Close(), r.Close()))
		d.awaitExit(console.ExitError)
	})
	t.Run("by a full disk", func(t *testing.T) {
		d := newDemo(t)
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		defer full.Close()
		d.cmd.Stdout = full
		d.start()
		require.Contains(t, d.awaitExit(console.ExitError), "no space left on device")
	})
}

// make demo goes on where bubblewrap is neither there nor to be had, and says that the agent has no sandbox.
func TestMakeDemoWithoutBubblewrap(t *testing.T) {
	t.Parallel()
	path := t.TempDir() // all programs but those
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir) // a folder of the PATH may be missing
		for _, e := range entries {
			switch e.Name() {
			case "bwrap", "apt-get", "sudo":
			default:
				_ = os.Symlink(filepath.Join(dir, e.Name()), filepath.Join(path, e.Name())) // the first one counts
			}
		}
	}
	d := newDemo(t)
	d.cmd = osexec.Command("make", "-s", "demo", "BIN="+releasedBinary(t))
	d.cmd.Dir = filepath.Join("..", "..")
	d.cmd.Env = append(os.Environ(), "PATH="+path, "TMPDIR="+d.temp)
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.WaitDelay = d, d, 5*time.Second
	require.NoError(t, d.cmd.Start())
	out := d.awaitExit(console.ExitOK)
	require.Contains(t, out, "deps: missing: bubblewrap; and there is no apt-get")
	require.Contains(t, out, "demo: going on without bubblewrap\n")
	require.Contains(t, out, "!! THE AGENT IS NOT SANDBOXED: bubblewrap is not installed")
	require.Contains(t, out, "receipt valid")
}
