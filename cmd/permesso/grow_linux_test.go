package main

import (
	"io"
	"os"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// dialog is a command on a terminal, with a rig's configuration.
type dialog struct {
	*demoRun
	keys *os.File
}

func (h *rig) dialog(t *testing.T, env []string, args ...string) *dialog {
	t.Helper()
	d := &dialog{demoRun: newDemo(t)}
	d.cmd = osexec.Command(program(t, true), append([]string{"--config", h.config, "--home", h.layout.Home}, args...)...)
	d.cmd.Dir, d.cmd.Env = h.dir, append(append(os.Environ(), "TMPDIR="+d.temp, "NO_COLOR=1"), env...)
	d.keys = d.startOnTerminal()
	return d
}

// answer waits for the end of a question, and types the answer.
func (d *dialog) answer(question, typed string) {
	d.t.Helper()
	d.awaitOutput(question)
	_, err := io.WriteString(d.keys, typed+"\n")
	require.NoError(d.t, err)
}

// On a terminal tool add asks for what no flag says, shows the card, offers a trial, and asks
// before it writes.
func TestToolAddDialog(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	d := h.dialog(t, nil, "tool", "add", "send_note", "--command", "/bin/echo sent -- {text} {to}")
	d.awaitOutput("     mail:send      Sends mail to recipients.")
	d.answer("[code:exec] ", "mail:sned")
	d.answer("hint: use one of fs:read", "mail:send")
	d.answer("What is {text}?", "")
	d.answer("[recipients] ", "")
	d.answer("gets on standard input", "copy=bool? cc=address")
	d.answer(`"address" is not a valid answer`, "copy=bool?")
	d.answer("[send_message] ", "")
	d.answer("May I …?\r\n   [send note] ", "send a note")
	d.answer("[{text}, {to}] ", "{text}")
	d.answer("[{to}] ", "")
	d.answer(`[{"text":"example","to":"ann@example.org"}] `, `{"text":7,"to":"ann@example.org"}`)
	d.answer("must be a text, not 7", `{"text":"Hello","to":"ann@example.org"}`)
	d.awaitOutput("🔐 May I send a note?")
	d.awaitOutput(`"Hello"`)
	d.answer("? [y/N] ", "y")
	d.awaitOutput(`ran:    {"output":"sent -- Hello ann@example.org\n"}`)
	d.awaitOutput("[tools.send_note]")
	d.answer("[Y/n] ", "")
	said := d.awaitExit(0)
	require.Contains(t, said, "added   tool send_note")
	h.requireConfig(growConfig + `
[tools.send_note]
capability = "mail:send"
action_type = "send_message"
verb = "send a note"
summary = "{text}"
target = "{to}"
args = { copy = { type = "bool", optional = true }, text = "text", to = "recipients" }
handler = { kind = "command", argv = ["/bin/echo", "sent", "--", "{text}", "{to}"] }
`)
}

// What a flag says is not asked, and no answer but yes runs or writes anything.
func TestToolAddDialogEnds(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	script := h.script("never", `echo ran >"$0.ran"`)
	flags := []string{
		"tool", "add", "new", "--command", script + " {text}", "--capability", "code:exec", "--arg", "text=text", "--stdin", "n=number?",
		"--action-type", "custom:new", "--verb", "try", "--summary", "{text}", "--target", "here",
	}
	d := h.dialog(t, nil, flags...)
	d.answer(`for example?`, "")
	d.answer("? [y/N] ", "")
	d.answer("[Y/n] ", "n")
	said := d.awaitExit(console.ExitError)
	require.Contains(t, said, "cancelled; nothing was written")
	require.NotContains(t, said, "What")
	d = h.dialog(t, nil, "tool", "add", "new", "--command", "/bin/echo {text}")
	d.awaitOutput("[code:exec] ")
	_, err := io.WriteString(d.keys, "\x04")
	require.NoError(t, err)
	require.Contains(t, d.awaitExit(console.ExitError), "end of input; nothing was written")
	require.NoFileExists(t, script+".ran")
	h.requireConfig(growConfig)
}

func TestRuleAddDialog(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	args := []string{"rule", "add", "--tool", "old", "--outcome", "ask", "--write"}
	const lines = "[[rules]]\nmatch = { tool = \"old\" }\noutcome = \"ask\"\n"
	for _, row := range []struct {
		typed, says string
		code        int
		want        string
	}{
		{"", "cancelled; nothing was written", console.ExitError, growConfig},
		{"y", "# written into " + h.config, console.ExitOK, growConfig + "\n" + lines},
	} {
		d := h.dialog(t, nil, args...)
		d.awaitOutput("# It would also have asked about 0 of the last 0 requests.")
		d.answer("Write this rule into "+h.config+"? [y/N] ", row.typed)
		require.Contains(t, d.awaitExit(row.code), row.says)
		h.requireConfig(row.want)
	}
}

// The editor runs on the terminal. After an error it opens again, with what was written.
func TestConfigEditDialog(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	editor := h.script("editor", `echo "edit: $(tail -n 1 "$1")"; read -r line; echo "$line" >>"$1"`)
	env := []string{"VISUAL=", "EDITOR=" + editor}
	d := h.dialog(t, env, "config", "edit")
	d.answer("edit: handler", "gaet = 1")
	d.awaitOutput(h.config + ":7:1: unknown key")
	d.answer("Edit it again? [Y/n] ", "")
	d.answer("edit: gaet = 1", "more = 2")
	d.answer(h.config+":8:1: unknown key", "n")
	said := d.awaitExit(console.ExitError)
	require.Equal(t, 2, strings.Count(said, "edit: "))
	require.Equal(t, growConfig+"gaet = 1\nmore = 2\n", keptCopy(t, h, strings.ReplaceAll(said, "\r", "")))
	h.requireConfig(growConfig)

	d = h.dialog(t, env, "config", "edit")
	d.answer("edit: handler", "[workspaces.second")
	d.answer("Edit it again? [Y/n] ", "y")
	d.answer("edit: [workspaces.second", "]")
	d.answer("not valid TOML", "n")
	said = d.awaitExit(console.ExitError)
	require.Contains(t, said, h.config+":7:19: not valid TOML", "also a text that is no TOML has its line")
}
