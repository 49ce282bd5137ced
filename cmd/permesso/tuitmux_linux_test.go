package main

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// tmuxServer is a server of its own, and one of its windows.
type tmuxServer struct {
	t      *testing.T
	socket string
	env    []string
	window string
}

func newTmuxServer(t *testing.T, dir, name string, env ...string) *tmuxServer {
	t.Helper()
	if _, err := osexec.LookPath("tmux"); err != nil {
		require.Empty(t, os.Getenv("CI"), "CI has tmux")
		t.Skip("needs tmux")
	}
	s := &tmuxServer{t, filepath.Join(dir, name), append(env, "HOME="+dir, "TERM=xterm-256color", "LANG=C.UTF-8"), ":0"}
	t.Cleanup(s.end)
	return s
}

// end ends the server and waits for the programs in its windows: they may still write to their HOME.
func (s *tmuxServer) end() {
	panes, _ := s.command("list-panes", "-a", "-F", "#{pane_pid}").Output() // none if it has ended
	_ = s.command("kill-server").Run()
	for pane := range strings.FieldsSeq(string(panes)) {
		pid, err := strconv.Atoi(pane)
		require.NoError(s.t, err)
		for end := time.Now().Add(testTimeout); syscall.Kill(-pid, 0) == nil; time.Sleep(5 * time.Millisecond) {
			require.True(s.t, time.Now().Before(end), "a program in tmux ends with its terminal")
		}
	}
}

func (s *tmuxServer) command(args ...string) *osexec.Cmd {
	c := osexec.Command("tmux", append([]string{"-u", "-S", s.socket, "-f", "/dev/null"}, args...)...)
	c.Env = s.env
	return c
}

func (s *tmuxServer) run(args ...string) string {
	s.t.Helper()
	out, err := s.command(args...).CombinedOutput()
	require.NoError(s.t, err, "tmux %v: %s", args, out)
	return string(out)
}

// await waits until the screen shows a text, or does not. Between two looks it types keys, if there are any.
func (s *tmuxServer) await(text string, shown bool, keys ...string) {
	s.t.Helper()
	screen := ""
	for end := time.Now().Add(testTimeout); ; time.Sleep(50 * time.Millisecond) {
		if screen = s.run("capture-pane", "-p", "-t", s.window); strings.Contains(screen, text) == shown {
			return
		}
		require.True(s.t, time.Now().Before(end), "%q shown is not %v:\n%s", text, shown, screen)
		if len(keys) > 0 {
			s.press(keys...)
		}
	}
}

// press types keys.
func (s *tmuxServer) press(keys ...string) {
	s.t.Helper()
	s.run(append([]string{"send-keys", "-t", s.window}, keys...)...)
}

// tmux takes the lines, also twice. Its status line says what waits, and its key opens a request, which a key denies.
func TestTmuxLines(t *testing.T) {
	h := newRig(t, "work", shapeConfig)
	h.plain = true
	h.serve()
	id := h.ask(`{"tool_name":"say","request_data":{"to":"you"}}`)
	h.awaitPending("work", id)
	code, lines, errs := h.inProcess("", "tui", "tmux")
	require.Zero(t, code, errs)
	file := h.file("tmux.conf", lines)

	dir, err := os.MkdirTemp("", "permesso-tmux-") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	inner := newTmuxServer(t, dir, "inner", "PATH="+scriptBin(t)+":"+os.Getenv("PATH"), "TZ=UTC", raceExitsFast)
	inner.run("new-session", "-d", "-x", "100", "-y", "30", "cat")
	before := inner.run("show-options", "-gv", "status-right")
	require.Empty(t, inner.run("source-file", file))
	after := inner.run("show-options", "-gv", "status-right")
	require.Regexp(t, `^#\(permesso --home \S+ --config \S+ status --line\) `, after)
	require.True(t, strings.HasSuffix(after, before), "the rest stays: %s", after)
	require.Empty(t, inner.run("source-file", file))
	require.Equal(t, after, inner.run("show-options", "-gv", "status-right"))

	outer := newTmuxServer(t, dir, "outer", "PATH="+os.Getenv("PATH"))
	outer.run("new-session", "-d", "-x", "100", "-y", "31", "env -u TMUX tmux -u -S "+inner.socket+" attach")
	outer.await("1 waits, oldest", true)
	outer.run("send-keys", "C-b", "P")
	outer.await("May I say", true)
	outer.await("May I say", false, "d") // a key counts once the card has been there for a while
	require.Equal(t, approval.StatusDenied, h.response(id).Status)
	outer.await("1 waits", false)
}

// A request that arrives while another window is shown rings the bell, and the title has the number of what waits.
func TestTmuxHearsOfRequests(t *testing.T) {
	h := newRig(t, "work", shapeConfig)
	h.plain = true
	h.serve()
	h.awaitPending("work", h.ask(`{"tool_name":"say","request_data":{"to":"you"}}`))
	dir, err := os.MkdirTemp("", "permesso-tmux-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	s := newTmuxServer(t, dir, "s", "PATH="+scriptBin(t)+":"+os.Getenv("PATH"), "TZ=UTC", raceExitsFast)
	s.run("new-session", "-d", "-x", "100", "-y", "30", "permesso tui --home "+h.layout.Home+" --config "+h.config)
	s.awaitValue("#{pane_title}", "(1) permesso")
	s.run("new-window", "cat")
	require.Equal(t, "0\n", s.run("display-message", "-p", "-t", ":0", "#{window_bell_flag}"))
	h.ask(`{"tool_name":"say","request_data":{"to":"you"}}`)
	s.awaitValue("#{window_bell_flag} #{pane_title}", "1 (2) permesso")
}

// awaitValue waits for the value of a format.
func (s *tmuxServer) awaitValue(format, want string) {
	s.t.Helper()
	got := ""
	for end := time.Now().Add(testTimeout); got != want; time.Sleep(20 * time.Millisecond) {
		got = strings.TrimSpace(s.run("display-message", "-p", "-t", s.window, format))
		require.True(s.t, got == want || time.Now().Before(end), "%s is %q, not %q", format, got, want)
	}
}

// What tmux or a shell would read as something else is refused.
func TestTmuxLinesWithStrangeNames(t *testing.T) {
	for _, name := range []string{"/a b", "/a'b", "/a#{b}", "/$(a)", "/a%b", "/a)b", "/a\nb", "/a;b"} {
		code, out, errs := runCommand("tui", "tmux", "--home", name)
		require.Equal(t, console.ExitUsage, code, name)
		require.Empty(t, out, name)
		require.Contains(t, errs, "cannot stand in .tmux.conf", name)
	}
	code, out, errs := runCommand("tui", "tmux", "--home", "/srv/permesso-1_x", "--config", "/etc/p.toml")
	require.Zero(t, code, errs)
	require.Contains(t, out, "'permesso --home /srv/permesso-1_x --config /etc/p.toml tui --next'")
	_, out, _ = runCommand("tui", "tmux")
	require.Contains(t, out, "'permesso tui --next'")
	require.NotContains(t, out, "@")
}
