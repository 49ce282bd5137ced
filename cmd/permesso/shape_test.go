package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

const shapeConfig = `
listen = ""
ui = false
[workspaces.work]
approval_timeout = "1h"
[workspaces.other]
[tools.say]
public_source = false
secret_data = false
public_sink = false
dangerous_writes = true
verb = "say"
args = { to = { type = "text", optional = true } }
handler = { kind = "command", argv = ["/bin/echo", "said"] }
`

// inProcess runs a command line of the rig in this process.
func (h *rig) inProcess(stdin string, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	m := Main{In: strings.NewReader(stdin), Out: &o, Err: &e, Env: func(name string) string {
		return map[string]string{"HOME": h.dir, "PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": h.dir}[name]
	}}
	code = m.Run(context.Background(), append([]string{"--config", h.config, "--home", h.layout.Home}, args...))
	return code, o.String(), e.String()
}

// withoutJSON are the commands that have no JSON form, with the reason.
var withoutJSON = map[string]string{
	"help": "text for people", "completion": "a group", "completion bash": "a script", "completion fish": "a script",
	"completion powershell": "a script", "completion zsh": "a script",
	"config edit": "an editor", "environment": "text for people", "files": "text for people",
	"serve": "it runs, and writes a log", "demo": "a dialog", "init": "a dialog, and a file",
	"desktop-notify": "it runs", "doctor probe": "a protocol of doctor", "email deliver": "it answers a mail server",
	"email setup": "a dialog", "email test": "it waits for a person", "telegram setup": "it needs Telegram", "telegram test": "it needs Telegram",
	"service install": "it changes the system", "service uninstall": "it changes the system",
	"restore": "it replaces a home", "ui": "it needs a browser", "tui": "it needs a terminal", "tui tmux": "lines of a configuration file",
	"acp": "a protocol", "hook": "the forms of the agents", "hook run": "the output is the agent's", "hook install": "it changes the settings of an agent", "hook uninstall": "the same", "hook check": "it needs an agent",
	"mcp": "a protocol", "mcp proxy": "a protocol", "mcp login": "a dialog", "mcp install": "it changes the settings of an agent", "mcp uninstall": "the same", "mcp wrap": "the same", "mcp unwrap": "the same",
}

// jsonLines are command lines with JSON, in their order. {id} is a pending request, {seen} its digest, {new} no
// file, {cases} a policy test, {program} a program, {broken} one with an error.
var jsonLines = []string{
	"pending", "status", "status --disk", "status --line", "show {id}", "history", "history --all", "stats", "audit tail", "audit tail -n 0", "audit verify",
	"audit keys", "audit checkpoint", "audit prove {id}", "audit witness --to {new}", "audit acknowledge --reason x", "audit verify-proof {new}",
	"config check", "config show", "config schema", "doctor --quick", "mounts work", "workspace list",
	"policy registry", "policy table", "policy check full code:exec", "policy test {cases}", "policy test {wrong}", "policy explain {id}", "policy simulate", "policy preset assistant",
	"receipt verify {new}", "receipt redeem {new}", "service show --program /bin/true",
	"grant add --workspace work --tool say --for 1h", "grant add --workspace other --tool say --for 1h", "grants", "grants --workspace work", "revoke 0123456789abcdef",
	"key create work", "key create work", "key list", "key list --all", "key revoke 0123",
	"session list", "session clear work", "pause work", "pause work", "resume work", "resume work", "pause", "resume",
	"rule add --from {id}", "prune", "prune --dry-run", "backup {new}", "workspace add x", "workspace remove x",
	"plan {program}", "plan {broken}", "run {broken}", "request say", "wait {id} --timeout 1ms", "cancel {id}", "decide", "decide --stdin", "deny {id} no", "approve {id2} --seen {seen2}", "history", "grants --all",
	"sweep", "audit rotate-key", "version", "today", "answer {id} yes", "ask {id} why", "change {id} less", "deny --all --workspace work --yes",
	"approve {id} --wait --seen {seen}", "watch", "approver list", "approver add bob --email bob@example.org --workspace work", "approver remove bob",
	"tool add more --command true --yes", "tool list", "rule list", "rule add --tool say --outcome ask", "webhook test ci", "webhook secret {secret}",
}

// requireOneValue holds for output that is empty after an error, or one JSON value.
func requireOneValue(t *testing.T, out string, failed bool, line string) {
	t.Helper()
	if strings.TrimSpace(out) == "" {
		require.True(t, failed, "%s: prints nothing", line)
		return
	}
	assert.NoError(t, json.Unmarshal([]byte(out), new(jsontext.Value)), "%s prints\n%s", line, out)
}

func TestJSONIsOneValue(t *testing.T) {
	h := newRig(t, "work", shapeConfig)
	h.plain = true
	daemon := h.serve()
	var ids []string
	for range 3 {
		ids = append(ids, h.ask(`{"tool_name":"say","request_data":{"to":"you"}}`))
	}
	for _, id := range ids {
		h.awaitPending("work", id)
	}
	cases := h.file("cases.json", `{"workspace":"work","request":{"tool_name":"say","request_data":{}},"expect":"ask"}
{"workspace":"work","request":{"tool_name":"say","request_data":{}},"expect":"ask"}`)
	wrong := h.file("wrong.json", `{"workspace":"work","request":{"tool_name":"say","request_data":{}},"expect":"allow"}
{"workspace":"work","request":{"tool_name":"say","request_data":{}},"expect":"allow"}`)
	program := h.file("program.star", "def main():\n    tools.say(to = \"you\")\n")
	broken := h.file("broken.star", "def main(:\n")
	fill := strings.NewReplacer("{program}", program, "{broken}", broken, "{id}", ids[0], "{id2}", ids[1], "{seen2}", digestOf(h.layout, ids[1]), "{cases}", cases, "{wrong}", wrong, "{new}", filepath.Join(h.dir, "new"), "{secret}", filepath.Join(h.dir, "hook.secret"))
	tried := map[string]bool{}
	run := func(lines []string) {
		for _, line := range lines {
			args := strings.Fields(fill.Replace(line))
			c, _, err := (&app{&console.Console{Env: func(string) string { return "" }}}).root().Find(args)
			require.NoError(t, err)
			tried[strings.TrimPrefix(c.CommandPath(), "permesso ")] = true
			code, out, _ := h.inProcess("", append(args, "--json")...)
			requireOneValue(t, out, code != 0, line)
		}
	}
	run(jsonLines)
	for _, path := range allCommandPaths() {
		require.True(t, tried[path] || withoutJSON[path] != "" || isGroup(path), "add %q to the lists of this test", path)
		require.False(t, tried[path] && withoutJSON[path] != "", path)
	}
	for _, list := range []struct {
		line  string
		least int
	}{{"grants", 2}, {"key list", 2}, {"session list", 2}, {"audit tail", 5}, {"policy registry", 10}, {"policy table", 3}, {"policy test " + wrong, 2}, {"history", 3}} {
		_, out, _ := h.inProcess("", append(strings.Fields(list.line), "--json")...)
		var items []map[string]any
		require.NoError(t, json.Unmarshal([]byte(out), &items), "%s prints\n%s", list.line, out)
		require.GreaterOrEqual(t, len(items), list.least, list.line)
	}
	_, out, _ := h.inProcess("", "grants", "--json")
	require.Contains(t, out, `"tool_name":"say"`, "the word of the API")
	daemon.stop()
	run([]string{"status", "status --line", "pending", "history", "audit tail", "grants", "key list", "session list", "prune", "sweep", "audit rotate-key", "doctor --quick", "policy simulate"})
}

func isGroup(path string) bool {
	c, _, err := (&app{&console.Console{Env: func(string) string { return "" }}}).root().Find(strings.Fields(path))
	return err == nil && c.HasSubCommands()
}

// file writes a file beside the configuration, and returns its path.
func (h *rig) file(name, text string) string {
	path := filepath.Join(h.dir, name)
	require.NoError(h.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// --jsonl prints a value in each line.
func TestJSONLines(t *testing.T) {
	h := newRig(t, "work", shapeConfig)
	h.plain = true
	h.serve()
	for range 3 {
		h.awaitPending("work", h.ask(`{"tool_name":"say","request_data":{"to":"you"}}`))
	}
	for _, line := range []string{"history --jsonl", "audit tail --jsonl", "history --all --jsonl", "audit tail --jsonl --json"} {
		var lines []string
		for end := time.Now().Add(time.Minute); len(lines) < 3; time.Sleep(time.Millisecond) { // the log's file follows what is pending
			code, out, errs := h.inProcess("", strings.Fields(line)...)
			require.Zero(t, code, "%s: %s", line, errs)
			lines = strings.Split(strings.TrimSpace(out), "\n")
			require.True(t, time.Now().Before(end), "%s prints\n%s", line, out)
		}
		for _, l := range lines {
			var item map[string]any
			require.NoError(t, json.Unmarshal([]byte(l), &item), "%s prints %s", line, l)
			require.Contains(t, item, map[bool]string{true: "seq", false: "request_id"}[strings.HasPrefix(line, "audit")], l)
		}
	}
	code, out, errs := h.inProcess("", "audit", "tail", "--follow", "--json")
	require.Equal(t, console.ExitUsage, code)
	require.Empty(t, out)
	require.Contains(t, errs, "--jsonl")
}

// A workspace that does not exist is an error of every command that takes one.
func TestUnknownWorkspaces(t *testing.T) {
	h := newRig(t, "work", shapeConfig)
	h.plain = true
	daemon := h.serve()
	id := h.ask(`{"tool_name":"say","request_data":{}}`)
	h.awaitPending("work", id)
	request := h.file("request.json", `{"tool_name":"say","request_data":{}}`)
	try := func() {
		for _, line := range []string{
			"pending --workspace works", "history --workspace works", "history --json --all --workspace works", "stats --workspace works", "grants --workspace works",
			"key list --workspace works", "key create works", "pause works", "resume works", "mounts works", "session clear works", "policy explain --workspace works " + id,
			"policy explain --workspace works " + request, "grant add --workspace works --tool say", "doctor --quick --workspace works", "workspace remove works",
			"telegram test --workspace works",
		} {
			code, out, errs := h.inProcess("", strings.Fields(line)...)
			require.Contains(t, []int{console.ExitError, console.ExitUsage}, code, "%s: %s", line, errs)
			require.Contains(t, []string{"", "[]\n"}, out, line)
			require.Contains(t, errs, "no workspace 'works'", line)
			require.Contains(t, errs, "did you mean 'work'?", line)
		}
		_, _, errs := h.inProcess("", "pending", "--workspace", "zzzzzzz")
		require.Contains(t, errs, "hint: workspaces: other, work")
	}
	try()
	daemon.stop()
	try()
}

// eachCommand calls do for all commands but those of the library.
func eachCommand(t *testing.T, do func(c *cobra.Command, args []string)) {
	for _, path := range allCommandPaths() {
		if path == "" || strings.HasPrefix(path, "completion") || path == "help" {
			continue // of the library
		}
		c, _, err := (&app{&console.Console{Env: func(string) string { return "" }}}).root().Find(strings.Fields(path))
		require.NoError(t, err)
		do(c, strings.Fields(path))
	}
}

// A usage error is one plain sentence that names the command or the flag, with a hint.
func TestUsageErrors(t *testing.T) {
	said := func(wantFlag string, args ...string) string {
		code, out, errs := runCommand(args...)
		require.Equal(t, console.ExitUsage, code, "%v: %s", args, errs)
		require.Empty(t, out, "%v", args)
		require.Contains(t, errs, "hint: ", "%v: %s", args, errs)
		require.NotRegexp(t, `arg\(s\)|flag\(s\)|strconv|flag needs an argument|accepts `, errs, "%v", args)
		require.Contains(t, errs, wantFlag, "%v", args)
		return errs
	}
	eachCommand(t, func(c *cobra.Command, path []string) {
		name := strings.Join(path, " ")
		said("--nonsense", append(path, "--nonsense")...)
		said("", append(path, "--config")...)
		if needs := strings.Fields(c.Use)[1:]; len(needs) > 0 && needs[0][0] >= 'A' && needs[0][0] <= 'Z' {
			errs := said(needs[0], path...)
			require.Contains(t, errs, name+" needs ", name)
			if needs[0] == "ID" {
				require.Regexp(t, `hint: permesso .* (lists|shows?) the `, errs, name)
			}
		}
		if c.Runnable() && c.Args != nil && c.Args(c, make([]string, 9)) != nil {
			said("", append(path, "1", "2", "3", "4", "5", "6", "7", "8", "9")...)
		}
	})
	require.Contains(t, said("", "acp"), "acp needs -- AGENT [ARGUMENT]...\n")
	require.Contains(t, said("", "hook", "run"), "hook run needs -- claude -p PROMPT [ARGUMENT]...\n")
	require.Contains(t, said("", "hook", "install"), "hook install needs an AGENT\n")
	require.Contains(t, said("", "answer"), "answer needs an ID and a TEXT|N\n")
	require.Contains(t, said("", "history", "--limit"), "--limit needs a value: --limit N")
	require.Contains(t, said("", "history", "-n"), "--limit needs a value: --limit N")
	require.Contains(t, said("", "grants", "--workspace"), "--workspace needs a value: --workspace workspace")
}
