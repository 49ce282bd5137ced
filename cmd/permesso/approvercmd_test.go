package main

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

const twoWorkspaces = `# mine
[workspaces.home] # the first
approvers = ["ann"]
[workspaces.work]
[approvers.ann] # her
telegram = 1001
`

func TestApproverAdd(t *testing.T) {
	t.Parallel()
	h := newRig(t, "home", twoWorkspaces)
	d := h.serve()
	d.awaitLog(`"serving"`)
	me, err := user.Current()
	require.NoError(t, err)
	code, out, errs := h.run("", "approver", "add", "bob", "--local", me.Username, "--telegram", "1002", "--email", "bob@example.org",
		"--language", "it", "--workspace", "work", "--workspace", "home")
	require.Zero(t, code, errs)
	require.Equal(t, "added   approver bob to "+h.config+", for home, work\nthe running daemon has loaded it\n"+
		"missing channels.email: permesso email setup\nmissing channels.telegram: permesso telegram setup\n"+
		"missing workspaces.home.channels: permesso config edit, and add \"telegram\", \"email\"\n"+
		"missing workspaces.work.channels: permesso config edit, and add \"telegram\", \"email\"\n", out)
	want := strings.NewReplacer(`["ann"]`, `["ann", "bob"]`, "[workspaces.work]\n", "[workspaces.work]\napprovers = [\"bob\"]\n").Replace(twoWorkspaces) +
		"\n[approvers.bob]\nlocal = " + me.Uid + "\ntelegram = 1002\nemail = \"bob@example.org\"\nlanguage = \"it\"\n"
	h.requireConfig(want)
	code, out, errs = h.run("", "approver", "list")
	require.Zero(t, code, errs)
	require.Equal(t, "ann · telegram 1001 · home\nbob · local "+me.Uid+", telegram 1002, email bob@example.org · home, work\n", out)
	code, out, _ = h.run("", "approver", "list", "--json")
	require.Zero(t, code)
	require.JSONEq(t, `[{"name":"ann","ids":{"telegram":"1001"},"workspaces":["home"]},
		{"name":"bob","ids":{"local":"`+me.Uid+`","telegram":"1002","email":"bob@example.org"},"workspaces":["home","work"]}]`, out)

	code, _, errs = h.run("", "approver", "remove", "bob")
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "'bob' is the only approver of workspace 'work'\nhint: add another approver first, or set --leave-none")
	h.requireConfig(want)
	code, out, errs = h.run("", "approver", "remove", "bob", "--leave-none")
	require.Zero(t, code, errs)
	require.Contains(t, out, "the running daemon has loaded it")
	h.requireConfig(strings.Replace(twoWorkspaces, "[workspaces.work]\n", "[workspaces.work]\napprovers = []\n", 1))
}

func TestApproverAddRefuses(t *testing.T) {
	t.Parallel()
	h := newRig(t, "home", twoWorkspaces)
	for _, row := range []struct {
		why, says string
		args      []string
	}{
		{"a username", "hint: permesso telegram setup finds the id by itself; or the person writes /start to the gate's bot", []string{"bob", "--telegram", "@bob"}},
		{"digits of another script", "is not a numeric id", []string{"bob", "--telegram", "１００２"}},
		{"a group", "is not a numeric id", []string{"bob", "--telegram", "-1001"}},
		{"an id as the name", "hint: permesso approver add ann --telegram 1002", []string{"1002", "--telegram", "1002"}},
		{"a name with a space", "not a valid name", []string{"bob b", "--telegram", "1002"}},
		{"an existing name", "approver 'ann' already exists", []string{"ann", "--telegram", "1002"}},
		{"an existing id", "already has this telegram id", []string{"bob", "--telegram", "1001", "--workspace", "work"}},
		{"no workspace of two", "hint: set --workspace to one or more of: home, work", []string{"bob", "--telegram", "1002"}},
		{"an unknown workspace", "no workspace", []string{"bob", "--telegram", "1002", "--workspace", "play"}},
		{"no id", "hint: give --local, --telegram or --email", []string{"bob", "--workspace", "work"}},
		{"no such user", "no user", []string{"bob", "--local", "no-such-user", "--workspace", "work"}},
		{"a name around the address", "must be an email address", []string{"bob", "--email", "Bob <bob@example.org>", "--workspace", "work"}},
		{"an unknown language", "language must be", []string{"bob", "--local", "7", "--language", "xx", "--workspace", "work"}},
	} {
		code, _, errs := h.run("", append([]string{"approver", "add"}, row.args...)...)
		require.NotZero(t, code, row.why)
		require.Contains(t, errs, row.says, row.why)
		h.requireConfig(twoWorkspaces)
	}
}

// A rule from flags says what it would have changed, and is written only with --write.
func TestRuleAddFromFlags(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", ruleConfig)
	d := h.serve()
	d.awaitLog(`"serving"`)
	post := func(text string) string {
		return h.ask(`{"tool_name":"post","request_data":{"board":"team","text":"` + text + `"}}`)
	}
	for _, text := range []string{"a", "b"} {
		h.awaitPending("default", post(text))
	}
	last := h.ask(`{"tool_name":"gentle"}`)
	h.awaitPending("default", last)
	code, _, errs := h.run("", "deny", last) // counted from now on: its file is there before the daemon has finished with it
	require.Zero(t, code, errs)
	const lines = "[[rules]]\nmatch = { tool = \"post\", workspace = \"default\" }\noutcome = \"deny\"\nreason = \"not now\"\n"
	args := []string{"rule", "add", "--tool", "post", "--workspace", "default", "--outcome", "deny", "--reason", "not now"}
	code, out, errs := h.run("", args...)
	require.Zero(t, code, errs)
	require.Equal(t, "# It would also have denied 2 of the last 3 requests.\n"+lines, out)
	h.requireConfig(ruleConfig)

	code, _, errs = h.run("", append(args, "--write")...)
	require.Equal(t, console.ExitUsage, code)
	require.Contains(t, errs, "needs a terminal\nhint: add --yes")
	h.requireConfig(ruleConfig)
	code, out, errs = h.run("", append(args, "--write", "--yes")...)
	require.Zero(t, code, errs)
	require.Contains(t, out, "# written into "+h.config+"; the running daemon has loaded it")
	h.requireConfig(ruleConfig + "\n" + lines)
	require.Equal(t, approval.StatusAutoRejected, h.response(post("c")).Status)

	for _, row := range [][]string{
		{"needs --outcome", "--tool", "post"},
		{"needs --tool or --workspace", "--outcome", "deny"},
		{"needs --from ID, or --tool and --outcome"},
		{"with --from the rule is that of the request", "--from", "a7f3", "--tool", "post"},
		{"no tool 'pots'", "--tool", "pots", "--outcome", "deny"},
		{"no workspace 'other'", "--workspace", "other", "--outcome", "deny"},
		{"outcome must be", "--tool", "post", "--outcome", "maybe"},
		{"reason must be", "--tool", "post", "--outcome", "deny", "--reason", "a\nb"},
	} {
		code, _, errs := h.run("", append([]string{"rule", "add", "--write", "--yes"}, row[1:]...)...)
		require.NotZero(t, code, row[0])
		require.Contains(t, errs, row[0])
		h.requireConfig(ruleConfig + "\n" + lines)
	}
}

// The rule from a request is written, too, and allows the same request.
func TestRuleAddWrites(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", ruleConfig)
	d := h.serve()
	d.awaitLog(`"serving"`)
	body := `{"tool_name":"post","request_data":{"board":"team","text":"Hi"}}`
	id := h.ask(body)
	h.awaitPending("default", id)
	code, out, errs := h.run("", "rule", "add", "--from", id, "--write", "--yes")
	require.Zero(t, code, errs)
	require.Contains(t, out, "the running daemon has loaded it")
	b, err := os.ReadFile(h.config)
	require.NoError(t, err)
	require.Contains(t, string(b), ruleConfig+"\n[[rules]]\nmatch = { tool = \"post\"")
	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(body)).Status)
}

// configEditor writes an editor that replaces the text by that of a file, and counts its runs.
func (h *rig) configEditor(text string) string {
	h.t.Helper()
	require.NoError(h.t, os.WriteFile(filepath.Join(h.dir, "wanted"), []byte(text), 0o600))
	return h.script("editor", `stat -c %a "$1" >>"$0.modes"; cat "$1" >"$0.saw"; cat "${0%/*}/wanted" >"$1"`)
}

func (h *rig) editConfig(editor string) (code int, out, errs string) {
	h.t.Helper()
	var o, e strings.Builder
	env := map[string]string{"VISUAL": editor, "PERMESSO_CONFIG": h.config, "PERMESSO_HOME": h.layout.Home}
	code = Main{In: strings.NewReader(""), Out: &o, Err: &e, Env: func(name string) string { return env[name] }}.Run(h.t.Context(), []string{"config", "edit"})
	return code, o.String(), e.String()
}

// keptCopy returns the file that a message names, and what it holds.
func keptCopy(t *testing.T, h *rig, errs string) string {
	t.Helper()
	_, file, ok := strings.Cut(strings.TrimSpace(errs), "your text is in ")
	require.True(t, ok, errs)
	require.Equal(t, h.dir, filepath.Dir(file))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode())
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.Remove(file))
	return string(b)
}

func TestConfigEdit(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	require.NoError(t, os.Chmod(h.config, 0o640))
	d := h.serve()
	d.awaitLog(`"serving"`)
	better := growConfig + "[workspaces.second]\n"
	editor := h.configEditor(better)
	code, out, errs := h.editConfig(editor)
	require.Zero(t, code, errs)
	require.Contains(t, out, "wrote   "+h.config+"\nthe running daemon has loaded it\n")
	h.requireConfig(better)
	saw, err := os.ReadFile(editor + ".saw")
	require.NoError(t, err)
	require.Equal(t, growConfig, string(saw))
	info, err := os.Stat(h.config)
	require.NoError(t, err)
	require.EqualValues(t, 0o640, info.Mode())
	modes, err := os.ReadFile(editor + ".modes")
	require.NoError(t, err)
	require.Equal(t, "600\n", string(modes), "the copy is private")

	code, out, errs = h.editConfig(editor)
	require.Zero(t, code, errs)
	require.Contains(t, out, "unchanged "+h.config)
	h.requireConfig(better)
}

// A text with errors does not replace the file. It is not lost, also if the file has changed.
func TestConfigEditKeepsWhatCannotBeWritten(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	wrong := growConfig + "[workspaces.second]\nautonomi = \"full\"\n"
	code, _, errs := h.editConfig(h.configEditor(wrong))
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, h.config+":8:1: unknown key")
	require.Contains(t, errs, h.config+" is unchanged: the text has errors")
	require.Equal(t, wrong, keptCopy(t, h, errs))
	h.requireConfig(growConfig)

	right := growConfig + "[workspaces.second]\n"
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "wanted"), []byte(right), 0o600))
	code, _, errs = h.editConfig(h.script("slow", `cat "${0%/*}/wanted" >"$1"; echo "# other" >>`+h.config))
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "was changed by another process")
	require.Equal(t, right, keptCopy(t, h, errs))
	h.requireConfig(growConfig + "# other\n")

	code, _, errs = h.editConfig(h.script("fails", `echo "# mine" >>"$1"; exit 3`))
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "fails) ended with exit code 3\n")
	require.Equal(t, growConfig+"# other\n# mine\n", keptCopy(t, h, errs))
	h.requireConfig(growConfig + "# other\n")
}

// An editor that fails, or a broken file that is left as it is, leaves no copy behind.
func TestConfigEditKeepsNoUnchangedCopy(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	code, _, errs := h.editConfig("false")
	require.Equal(t, console.ExitError, code)
	require.Equal(t, "permesso: "+h.config+" is unchanged: the editor (false) ended with exit code 1\nhint: run permesso config edit again\n", errs)
	require.NoError(t, os.WriteFile(h.config, []byte("gaet = 1\n"+growConfig), 0o600))
	code, out, errs := h.editConfig("true")
	require.Equal(t, console.ExitError, code)
	require.Empty(t, out)
	require.Contains(t, errs, h.config+":1:1: unknown key")
	require.Contains(t, errs, h.config+" is unchanged: the text has errors")
	code, out, errs = h.editConfig("true >") // the shell empties the file
	require.Equal(t, console.ExitError, code)
	require.Empty(t, out)
	require.Contains(t, errs, " is unchanged: the text is empty\n")
	for _, copy := range h.copies() {
		require.NoError(t, os.Remove(copy))
	}
	code, out, errs = h.editConfig("") // vi would wait for a person
	require.Equal(t, console.ExitError, code)
	require.Empty(t, out)
	require.Contains(t, errs, "is unchanged: config edit needs a terminal\nhint: set VISUAL or EDITOR to a program that edits the file")
	require.Empty(t, h.copies())
}

// copies are the texts that config edit has left.
func (h *rig) copies() []string {
	h.t.Helper()
	copies, err := filepath.Glob(filepath.Join(h.dir, ".edit-*"))
	require.NoError(h.t, err)
	return copies
}

// It mends a broken file, with and without a daemon, and follows a link to the file.
func TestConfigEditMendsABrokenFile(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	d := h.serve()
	d.awaitLog(`"serving"`)
	h.replaceConfig("gaet = 1\n" + growConfig)
	d.awaitLog("configuration change refused")
	code, out, errs := h.editConfig(h.configEditor(growConfig + "[workspaces.second]\n"))
	require.Zero(t, code, errs)
	require.Contains(t, out, "the running daemon has loaded it")
	h.requireConfig(growConfig + "[workspaces.second]\n")
	d.stop()

	file := filepath.Join(t.TempDir(), "real.toml")
	require.NoError(t, os.Rename(h.config, file))
	require.NoError(t, os.Symlink(file, h.config))
	code, out, errs = h.editConfig(h.configEditor(growConfig))
	require.Zero(t, code, errs)
	require.Contains(t, out, "no daemon runs in "+h.layout.Home)
	to, err := os.Readlink(h.config)
	require.NoError(t, err)
	require.Equal(t, file, to)
	h.requireConfig(growConfig)

	require.NoError(t, os.Remove(h.config))
	code, _, errs = h.editConfig("true")
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "no such file")
}

// Whichever user edits, the file keeps its owner and mode. Only root may give a file away.
func TestConfigEditsKeepTheOwner(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", growConfig)
	uid := os.Getuid()
	if uid == 0 {
		uid = 12345
	}
	require.NoError(t, os.Chmod(h.config, 0o640))
	require.NoError(t, os.Chown(h.config, uid, -1))
	code, _, errs := h.editConfig(h.configEditor(growConfig + "# more\n"))
	require.Zero(t, code, errs)
	for _, args := range [][]string{
		{"tool", "add", "a", "--command", "/bin/echo {text}", "--yes"},
		{"approver", "add", "eve", "--local", "4242"},
		{"rule", "add", "--tool", "a", "--outcome", "ask", "--write", "--yes"},
	} {
		code, _, errs := h.run("", args...)
		require.Zero(t, code, errs)
		info, err := os.Stat(h.config)
		require.NoError(t, err)
		require.EqualValues(t, 0o640, info.Mode(), args[0])
		require.EqualValues(t, uid, info.Sys().(*syscall.Stat_t).Uid, args[0])
	}
}
