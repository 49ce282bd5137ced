package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// askExec asks for a command that the agent runs itself.
func (h *rig) askExec(line string) string {
	b, _ := json.Marshal(line) // never fails
	return h.ask(`{"action_type":"exec_cmd","request_data":{"command":` + string(b) + `}}`)
}

// A command pattern is suggested with its figure, given with an approval or later, and holds
// for the next request; what it does not cover is asked.
func TestCommandPatterns(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	h.serve()
	for _, line := range []string{"go test ./x", "go vet ./x"} {
		h.awaitPending("default", h.askExec(line))
	}
	id := h.askExec("go test ./a ./b")
	h.awaitPending("default", id)
	code, out, errs := h.run("", "approve", id, "--commands")
	require.Equal(t, console.ExitOK, code, errs)
	require.Contains(t, out, "Always: exec_cmd like \"go test ...\" without other options in default, 90 days\nIt would have allowed 1 of the last 2 requests that were asked.\n")
	require.Contains(t, out, "\nnothing is approved yet; to approve and remember it:\npermesso approve "+id+" --commands 'go test ...'\n")
	h.requireUndecided(id)

	for pattern, why := range map[string]string{
		"go vet ...": "the pattern does not cover this command", "go ...": "go is remembered only with a subcommand",
		"sh ...": "sh runs what it is given", "go test ... | sh": "shell operators",
	} {
		code, _, errs = h.run("", "approve", id, "--commands", pattern)
		require.Equal(t, console.ExitRefused, code, pattern)
		require.Contains(t, errs, why, pattern)
		h.requireUndecided(id)
	}
	code, out, errs = h.run("", "approve", id, "--commands", "go test ...")
	require.Equal(t, console.ExitOK, code, errs)
	require.Contains(t, out, "Undo: permesso revoke ")
	require.NotContains(t, out, "must start before", "nothing starts on this host")
	require.Equal(t, approval.StatusApproved, h.response(id).Status)
	for _, line := range []string{"go test", "go test ./c"} {
		require.Equal(t, approval.StatusAutoApproved, h.response(h.askExec(line)).Status, line)
	}
	for _, line := range []string{"go test -exec ./sh ./c", "go build ./c", "go test ./c; id"} {
		h.awaitPending("default", h.askExec(line))
	}

	vet := h.askExec("go vet ./a")
	h.awaitPending("default", vet)
	code, out, errs = h.run("", "grant", "add", "--from", vet, "--command")
	require.Equal(t, console.ExitOK, code, errs)
	require.Contains(t, out, "\nnothing is granted yet; to grant it:\npermesso grant add --from "+vet+" --command 'go vet ...'\n")
	code, _, errs = h.run("", "grant", "add", "--from", vet, "--command", "go build ...")
	require.Equal(t, console.ExitRefused, code)
	require.Contains(t, errs, "the pattern does not cover this command")
	code, _, errs = h.run("", "grant", "add", "--from", vet, "--command", "go vet ...", "--for", "1h")
	require.Equal(t, console.ExitOK, code, errs)
	h.requireUndecided(vet)
	require.Equal(t, approval.StatusAutoApproved, h.response(h.askExec("go vet ./b")).Status)
	_, out, _ = h.run("", "grants")
	require.Equal(t, 2, strings.Count(out, `Always: exec_cmd like "go `), out)
	code, _, errs = h.run("", "approve", vet, "--always")
	require.Equal(t, console.ExitOK, code, errs)
	_, out, _ = h.run("", "grants")
	require.Regexp(t, `exactly the exec_cmd request `+vet[:8]+` again .* · permesso show `+vet[:8]+`\n`, out)
	code, _, _ = h.run("", "grant", "add", "--from", vet)
	require.Equal(t, console.ExitUsage, code)
}

// A pattern of a tool's command leaves the other arguments as they were.
func TestCommandPatternOfTool(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", `
[tools.build]
capability = "code:exec"
public_source = false
secret_data = false
public_sink = false
dangerous_writes = false
handler = { kind = "command", argv = ["/bin/echo", "ran"] }
[tools.build.args]
command = { type = "command" }
dir = { type = "path" }
`)
	h.serve()
	build := func(args string) string { return h.ask(`{"tool_name":"build","request_data":` + args + `}`) }
	id := build(`{"command":["go","test","./a"],"dir":"/srv/x"}`)
	h.awaitPending("default", id)
	code, _, errs := h.run("", "approve", id, "--commands=go test ...")
	require.Equal(t, console.ExitOK, code, errs)
	require.Equal(t, approval.StatusApproved, h.response(id).Status)
	later := h.response(build(`{"dir":"/srv/x","command":["go","test","./b","./c"]}`))
	require.Equal(t, approval.StatusAutoApproved, later.Status)
	for _, args := range []string{
		`{"command":["go","test","./b"],"dir":"/srv/y"}`, `{"command":"go test ./b","dir":"/srv/x"}`,
		`{"command":["go","test","-exec","sh"],"dir":"/srv/x"}`, `{"command":["/tmp/go","test"],"dir":"/srv/x"}`,
	} {
		h.awaitPending("default", build(args))
	}
}
