package main

import (
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

const tuiTerminalConfig = `
[workspaces.home]
autonomy = "supervised"
[tools.say]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
reversibility = "reversible"
verb = "say"
summary = "{what}"
handler = { kind = "command", argv = ["/bin/echo", "said"] }
[tools.break]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
reversibility = "reversible"
verb = "break"
summary = "{what}"
handler = { kind = "command", argv = ["/bin/false"] }
[tools.post]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
reversibility = "irreversible"
verb = "post"
summary = "{what}"
handler = { kind = "command", argv = ["/bin/echo", "posted"] }
[[rules]]
match = { tool = "say" }
outcome = "ask"
[[rules]]
match = { tool = "break" }
outcome = "ask"
[[rules]]
match = { tool = "post" }
outcome = "ask"
`

// terminalRun is a command on a pseudo-terminal, which answers the query for its attributes.
type terminalRun struct {
	*recorder
	t    *testing.T
	keys *os.File
	tty  *os.File
	cmd  *osexec.Cmd
	wait func() error
}

func onTerminal(t *testing.T, cmd *osexec.Cmd, env ...string) *terminalRun {
	t.Helper()
	r := &terminalRun{recorder: &recorder{more: make(chan struct{}, 1)}, t: t, cmd: cmd}
	r.keys, r.tty = openPTY(t)
	require.NoError(t, unix.IoctlSetWinsize(int(r.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 100}))
	cmd.Env = append(append(cmd.Env, "TERM=xterm", "NO_COLOR=1"), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.tty, r.tty, r.tty
	attr := cmd.SysProcAttr
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Setsid, attr.Setctty = true, true
	cmd.SysProcAttr = attr
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		r.answer()
	}()
	require.NoError(t, cmd.Start())
	r.wait = sync.OnceValue(cmd.Wait)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = r.wait()
		_ = r.keys.Close()
		<-copied
		_ = r.tty.Close()
	})
	return r
}

// answer records what the command writes, and answers its queries.
func (r *terminalRun) answer() {
	b, seen := make([]byte, 4096), ""
	for {
		n, err := r.keys.Read(b)
		if err != nil {
			return
		}
		_, _ = r.Write(b[:n])
		for seen += string(b[:n]); ; {
			_, rest, ok := strings.Cut(seen, "\x1b[c")
			if !ok {
				break
			}
			seen = rest
			_, _ = io.WriteString(r.keys, "\x1b[?62c")
		}
		seen = seen[max(0, len(seen)-2):]
	}
}

func (r *terminalRun) press(keys string) {
	r.t.Helper()
	_, err := io.WriteString(r.keys, keys)
	require.NoError(r.t, err)
}

// pressUntil presses keys again and again until a text is shown: keys count only after a while.
func (r *terminalRun) pressUntil(keys, text string) {
	r.t.Helper()
	for end := time.Now().Add(testTimeout); !strings.Contains(r.String(), text); {
		require.True(r.t, time.Now().Before(end), "%q does not give %q in:\n%s", keys, text, r.String())
		r.press(keys)
		for i := 0; i < 50 && !strings.Contains(r.String(), text); i++ {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// exit waits until the command exits by itself, and returns its exit code.
func (r *terminalRun) exit() int {
	r.t.Helper()
	done := make(chan struct{})
	go func() { _ = r.wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(testTimeout):
		require.Fail(r.t, "the command does not exit", "%s", r.String())
	}
	return r.cmd.ProcessState.ExitCode()
}

func (h *rig) tui(t *testing.T, args ...string) *terminalRun {
	t.Helper()
	return onTerminal(t, h.command(append([]string{"tui"}, args...)...))
}

// submitted is a request that is pending.
func (h *rig) submitted(tool, what string) (id, short string) {
	h.t.Helper()
	id = h.ask(fmt.Sprintf(`{"tool_name":%q,"request_data":{"what":%q}}`, tool, what))
	h.awaitPending("home", id)
	return id, approval.ShortID(id)
}

// The linear mode decides, asks once more about what cannot be undone, and places no cursor.
func TestTUILinear(t *testing.T) {
	t.Parallel()
	h := newRig(t, "home", tuiTerminalConfig)
	h.serve().awaitLog(`"serving"`)
	first, short := h.submitted("say", "hello")
	r := onTerminal(t, h.command("tui", "--linear"), "TERM=dumb")
	r.await(t, "Approve or deny "+short+"?")
	require.Regexp(t, `until (\d{4}-\d\d-\d\d )?\d\d:\d\d UTC · log \d+ [0-9a-f]{4}\r?\n`, r.String(), "the card's end, as everywhere")
	r.pressUntil("1\n", "write the request's id before the code")
	second, shortSecond := h.submitted("post", "the news")
	r.await(t, shortSecond+" · home · post")
	r.pressUntil("approve "+short+"\n", "Approved: say")
	require.Equal(t, approval.StatusApproved, h.response(first).Status)
	r.await(t, "Approve or deny "+shortSecond+"?")
	r.pressUntil(shortSecond+" 1\n", "Type the id again: "+shortSecond)
	r.pressUntil(shortSecond+"\n", shortSecond+" · approved")
	require.Equal(t, approval.StatusApproved, h.response(second).Status)
	r.press("\x04")
	require.Equal(t, console.ExitOK, r.exit(), "%s", r.String())
	require.NotContains(t, r.String(), "\x1b")
}

// A dumb terminal is told of the linear mode.
func TestTUIOnADumbTerminal(t *testing.T) {
	t.Parallel()
	h := newRig(t, "home", tuiTerminalConfig)
	r := onTerminal(t, h.command("tui"), "TERM=dumb")
	require.Equal(t, console.ExitUsage, r.exit())
	r.await(t, "permesso tui --linear")
	code, _, errs := h.run("", "tui")
	require.Equal(t, console.ExitUsage, code)
	require.Contains(t, errs, "tui needs a terminal")
}

// --once and --next exit as wait does, on the screen and in lines.
func TestTUIExitCodes(t *testing.T) {
	t.Parallel()
	h := newRig(t, "home", tuiTerminalConfig)
	h.serve().awaitLog(`"serving"`)
	code := func(r *terminalRun, want int, says string) {
		t.Helper()
		require.Equal(t, want, r.exit(), "%s", r.String())
		r.await(t, says) // its last lines may be read later
	}
	code(h.tui(t, "--next"), console.ExitRefused, "no request is pending")
	code(h.tui(t, "--linear", "--next"), console.ExitRefused, "no request is pending")
	for _, c := range []struct {
		tool, key, line string
		want            int
		says            string
	}{
		{"say", "a", "approve", console.ExitOK, "approved (operator:"},
		{"break", "a", "approve", console.ExitFailed, "failed (operator:"},
		{"say", "d", "deny", console.ExitNotRun, "denied (operator:"},
	} {
		id, short := h.submitted(c.tool, "hello")
		r := h.tui(t, "--once", short)
		r.pressUntil(c.key, c.says)
		code(r, c.want, c.says)
		code(h.tui(t, "--once", id), c.want, c.says) // settled already
		code(h.tui(t, "--linear", "--once", id), c.want, c.says)

		_, short = h.submitted(c.tool, "hello")
		r = h.tui(t, "--linear", "--next")
		r.await(t, "Approve or deny "+short+"?")
		r.pressUntil(c.line+" "+short+"\n", c.says)
		code(r, c.want, c.says)
	}

	_, short := h.submitted("say", "hello")
	r := h.tui(t, "--next")
	r.await(t, "hello")
	r.press("q")
	code(r, console.ExitRefused, "nothing was decided")
	r = h.tui(t, "--linear", "--once", short)
	r.await(t, "Approve or deny "+short+"?")
	r.press("q\n")
	r.pressUntil("\nq\n", "nothing was decided")
	code(r, console.ExitRefused, "nothing was decided")
	r = h.tui(t, "--once", short) // decided elsewhere meanwhile
	r.await(t, "hello")
	h.must("deny", short)
	r.await(t, "denied")
	r.press("q")
	code(r, console.ExitNotRun, "denied (operator:")
	code(h.tui(t, "--once", "abcd"), console.ExitRefused, "no such request")
}

// A popup of tmux has the exit code of --next.
func TestTUINextInTmux(t *testing.T) {
	t.Parallel()
	tmux, err := osexec.LookPath("tmux")
	if err != nil {
		t.Log("not tested: no tmux")
		return
	}
	h := newRig(t, "home", tuiTerminalConfig)
	h.serve().awaitLog(`"serving"`)
	id, _ := h.submitted("say", "hello")
	socket, code := filepath.Join(h.dir, "tmux"), filepath.Join(h.dir, "code")
	run := func(args ...string) string {
		out, err := osexec.Command(tmux, append([]string{"-S", socket, "-f", "/dev/null"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	line := strings.Join(append(h.command("tui", "--next").Args, "; echo $? > "+code+".new; mv "+code+".new "+code), " ")
	run("new-session", "-d", "-x", "80", "-y", "24", line+"; sleep 60")
	t.Cleanup(func() { _ = osexec.Command(tmux, "-S", socket, "kill-server").Run() })
	for end := time.Now().Add(testTimeout); ; time.Sleep(100 * time.Millisecond) {
		if _, err := os.Stat(code); err == nil {
			break
		}
		require.True(t, time.Now().Before(end), "%s", run("capture-pane", "-p"))
		run("send-keys", "a")
	}
	b, err := os.ReadFile(code)
	require.NoError(t, err)
	require.Equal(t, "0\n", string(b))
	require.Equal(t, approval.StatusApproved, h.response(id).Status)
}

// Without a daemon the UI says that nothing runs. A decision is recorded, and takes effect with the next daemon. The
// home is not locked meanwhile.
func TestTUIWithoutADaemon(t *testing.T) {
	t.Parallel()
	for _, linear := range []bool{false, true} {
		t.Run(fmt.Sprint("linear ", linear), func(t *testing.T) {
			t.Parallel()
			h := newRig(t, "home", tuiTerminalConfig)
			d := h.serve()
			d.awaitLog(`"serving"`)
			id, short := h.submitted("say", "hello")
			var r *terminalRun
			if linear {
				r = h.tui(t, "--linear")
				r.await(t, "Approve or deny "+short+"?")
			} else {
				r = h.tui(t)
				r.await(t, short)
			}
			d.kill()
			r.await(t, "The daemon is not running")
			if linear {
				r.pressUntil("approve "+short+"\n", "Approved: say")
			} else {
				r.press("\r")
				r.await(t, "a approve")
				r.pressUntil("a", "Approved: say")
			}
			require.NoFileExists(t, filepath.Join(h.agent.Responses, id+".json"))
			h.serve().awaitLog(`"serving"`)
			require.Equal(t, approval.StatusApproved, h.response(id).Status)
			if linear {
				r.await(t, "The daemon runs again.")
				r.press("\x04")
			} else {
				r.pressUntil("q", "\x1b[?1049l")
			}
			require.Equal(t, console.ExitOK, r.exit(), "%s", r.String())
		})
	}
}

// With --once and no daemon the decision is recorded, and the exit code says that its end is not known.
func TestTUIOnceWithoutADaemon(t *testing.T) {
	t.Parallel()
	h := newRig(t, "home", tuiTerminalConfig)
	d := h.serve()
	d.awaitLog(`"serving"`)
	_, short := h.submitted("say", "hello")
	d.stop()
	r := h.tui(t, "--linear", "--once", short)
	r.await(t, "The daemon is not running")
	r.pressUntil("approve "+short+"\n", "the decision is recorded")
	require.Equal(t, console.ExitError, r.exit())
}

// serve --tui shows the UI, keeps its log meanwhile, and goes on in lines after q; Ctrl-C stops it.
func TestServeTUI(t *testing.T) {
	t.Parallel()
	const enter, leave = "\x1b[?1049h", "\x1b[?1049l"
	h := newRig(t, "home", tuiTerminalConfig)
	r := onTerminal(t, h.command("serve", "--tui"))
	r.await(t, "No pending requests")
	id, short := h.submitted("say", "hello")
	r.await(t, short)
	r.press("\r")
	r.await(t, "a approve")
	r.pressUntil("a", " · approved · by operator")
	require.Equal(t, approval.StatusApproved, h.response(id).Status)
	r.pressUntil("q", leave)
	r.await(t, "Pending requests appear here")
	_, screen, _ := strings.Cut(r.String(), enter)
	screen, after, _ := strings.Cut(screen, leave)
	require.NotContains(t, screen, " INF ", "no line of the log on the screen")
	require.Contains(t, after, id, "the lines of the log that were kept")
	_, short = h.submitted("say", "again")
	r.await(t, "deny "+short)
	r.press("\x03")
	require.Equal(t, console.ExitOK, r.exit(), "%s", r.String())
}

// Ctrl-C in the UI stops the daemon.
func TestServeTUIInterrupted(t *testing.T) {
	t.Parallel()
	h := newRig(t, "home", tuiTerminalConfig)
	r := onTerminal(t, h.command("serve", "--tui"))
	r.await(t, "No pending requests")
	r.press("\x03")
	require.Equal(t, console.ExitOK, r.exit(), "%s", r.String())
	r.await(t, "stopped")
	code, _, errs := h.run("", "serve", "--tui")
	require.Equal(t, console.ExitUsage, code)
	require.Contains(t, errs, "serve --tui needs a terminal")
}

// An approver without access to the home decides through the socket.
func TestTUIAsAnotherUser(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	v.logNeedsRoot()
	v.startServing()
	id := v.submitAndAwait("annes")
	short := approval.ShortID(id)
	for _, args := range [][]string{{"tui"}, {"tui", "--linear"}} {
		cmd := v.commandAs(v.ann, []string{"PERMESSO_SOCKET=" + v.socket}, args...)
		r := onTerminal(t, cmd)
		if len(args) == 1 {
			r.await(t, short)
			r.press("q")
		} else {
			r.await(t, short+"?")
			r.pressUntil("deny "+short+"\n", "Negato: ")
			r.press("\x04")
		}
		require.Equal(t, console.ExitOK, r.exit(), "%s", r.String())
		require.False(t, v.root && strings.Contains(r.String(), "operators"), "what is not hers")
	}
	require.Eventually(t, func() bool { // the decision is recorded before its audit entry
		return strings.Contains(v.readAudit(), `"by":"ann"`)
	}, testTimeout, 10*time.Millisecond)
}

// verifyFullTUI tries to decide while the disk is full: nothing is decided, and the UI says why.
func (f *faultRig) verifyFullTUI(id string, on *disk) {
	t, ok := f.t.(*testing.T)
	require.True(f.t, ok)
	short := approval.ShortID(id)
	on.fill(0)
	r := f.tui(t, "--linear", "--once", short)
	r.await(t, "Approve or deny "+short+"?")
	r.pressUntil(short+" 3\n", "no space left on the disk of HOME")
	r.press("\x04")
	require.Equal(t, console.ExitRefused, r.exit(), "%s", r.String())

	on.fill(0)
	r = f.tui(t, "--once", short)
	r.await(t, "a approve")
	r.pressUntil("d", "no space left on the disk of HOME")
	r.press("q")
	require.Equal(t, console.ExitRefused, r.exit(), "%s", r.String())
}
