package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/client"
)

// programRig has tools that append what they get to a file: mail and save are asked about, people is a read that policy
// allows.
func programRig(t *testing.T) *rig {
	t.Helper()
	h := newRig(t, "w", "")
	ran := filepath.Join(h.dir, "ran")
	require.NoError(t, os.WriteFile(ran, nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "people.json"), []byte(`{"people":["a@example.com","b@example.com"]}`), 0o600))
	h.script("tool", `name=$1; line=$(cat); echo "$name $line" >> `+ran+`
case $line in *slow*) exec sleep 600;; *fails*) echo "no such room" >&2; exit 1;; esac
echo '{"id":"'$(wc -l < `+ran+`)'"}'`)
	require.NoError(t, os.WriteFile(h.config, []byte(strings.ReplaceAll(`
[workspaces.w]
autonomy = "supervised"
approvers = ["ann"]
[approvers.ann]
local = 0
[tools.mail]
capability = "mail:send"
args = { to = "recipients", body = "text" }
reversibility = "irreversible"
undo = "recall"
handler = { kind = "command", argv = ["DIR/tool", "mail"] }
[tools.recall]
capability = "mail:send"
args = { id = "text" }
handler = { kind = "command", argv = ["DIR/tool", "recall"] }
[tools.save]
capability = "fs:write"
args = { path = "path", content = "text" }
reversibility = "reversible"
handler = { kind = "command", argv = ["DIR/tool", "save"] }
[tools.people]
capability = "fs:read"
args = {}
reads = true
handler = { kind = "command", argv = ["/bin/cat", "DIR/people.json"] }
[[rules]]
match = { tool = "people" }
outcome = "allow"
`, "DIR", h.dir)), 0o600))
	return h
}

func (h *rig) askProgram(source string) string {
	h.t.Helper()
	return h.ask(`{"program":` + string(codec.Quote(source)) + `}`)
}

// took are the lines of the tools that have run since the last call.
func (h *rig) took() []string {
	h.t.Helper()
	file := filepath.Join(h.dir, "ran")
	b, err := os.ReadFile(file)
	require.NoError(h.t, err)
	require.NoError(h.t, os.Truncate(file, 0))
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// runAsked asks for a program, which must not run before the approval that follows, and waits for its end.
func (h *rig) runAsked(source string, approve ...string) *approval.Response {
	h.t.Helper()
	id := h.askProgram(source)
	h.awaitPending("w", id)
	code, _, errs := h.run("", append([]string{"approve", id}, approve...)...)
	require.Zero(h.t, code, errs)
	return h.response(id)
}

const mailAll = `def main():
    for who in tools.people()["people"]:
        tools.mail(to = [who], body = "hello")
`

// TestProgramAlways: "always" for a program is exactly this program with exactly this plan, the second and the third time,
// and nothing else.
func TestProgramAlways(t *testing.T) {
	h := programRig(t)
	h.serve()
	require.Equal(t, approval.StatusApproved, h.runAsked(mailAll, "--always").Status)
	require.Len(t, h.took(), 2)
	for range 2 {
		require.Equal(t, approval.StatusAutoApproved, h.response(h.askProgram(mailAll)).Status)
		require.Equal(t, []string{`mail {"body":"hello","to":["a@example.com"]}`, `mail {"body":"hello","to":["b@example.com"]}`}, h.took())
	}
	code, out, errs := h.run("", "grants", "--json")
	require.Zero(t, code, errs)
	require.Contains(t, out, `"uses":2`, "a program is one use")

	asked := func(why, source string) {
		t.Helper()
		id := h.askProgram(source)
		h.awaitPending("w", id)
		code, _, errs := h.run("", "deny", id)
		require.Zero(t, code, errs)
		require.Equal(t, approval.StatusDenied, h.response(id).Status, why)
	}
	asked("another text", strings.Replace(mailAll, "hello", "hallo", 1))
	asked("another program with the same calls", mailAll+"\n# the same\n")
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "people.json"), []byte(`{"people":["a@example.com","ceo@example.com"]}`), 0o600))
	asked("another plan of the same program", mailAll)
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "people.json"), []byte(`{"people":["a@example.com","b@example.com"]}`), 0o600))
	single := h.ask(`{"tool_name":"mail","request_data":{"to":["a@example.com"],"body":"hello"}}`)
	h.awaitPending("w", single) // the grant of a program is none of its calls
	require.Equal(t, approval.StatusAutoApproved, h.response(h.askProgram(mailAll)).Status)
	h.took()

	var grants struct{ Items []struct{ ID string } }
	if json.Unmarshal([]byte(out), &grants) != nil || len(grants.Items) == 0 {
		var list []struct{ ID string }
		require.NoError(t, json.Unmarshal([]byte(out), &list))
		grants.Items = list
	}
	code, _, errs = h.run("", "revoke", grants.Items[0].ID)
	require.Zero(t, code, errs)
	asked("revoked", mailAll)
	require.Equal(t, []string{""}, h.took())
}

// TestProgramContract: the rules that are proposed from a trace allow programs like it, and no others.
func TestProgramContract(t *testing.T) {
	h := programRig(t)
	d := h.serve()
	source := mailAll + "    tools.save(path = \"/tmp/x\", content = \"x\")\n"
	id := h.askProgram(source)
	h.awaitPending("w", id)
	before, err := os.ReadFile(h.config)
	require.NoError(t, err)
	code, out, errs := h.run("", "rule", "add", "--from", id, "--write", "--yes")
	require.Zero(t, code, errs)
	require.Equal(t, 2, strings.Count(out, "[[rules]]\nmatch = { program = true, "), out)
	d.awaitLog("configuration reloaded")
	after, err := os.ReadFile(h.config)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(after), string(before)+"\n"))
	require.Equal(t, 3, strings.Count(string(after), "[[rules]]"))
	code, _, errs = h.run("", "rule", "add", "--from", id, "--write", "--yes")
	require.NotZero(t, code)
	require.Contains(t, errs, "already has these rules")
	require.Equal(t, approval.StatusAutoApproved, h.response(h.askProgram(strings.Replace(source, "hello", "good morning", 1))).Status)
	require.Len(t, h.took(), 3)
	for why, source := range map[string]string{
		"more steps":     strings.Replace(mailAll, "\n        tools.mail", "\n        tools.mail(to = [who], body = \"x\")\n        tools.mail", 1),
		"another person": "def main():\n    tools.mail(to = [\"ceo@example.com\"], body = \"x\")\n",
		"another tool":   mailAll + "    tools.recall(id = \"1\")\n",
		"another file":   mailAll + "    tools.save(path = \"/tmp/y\", content = \"x\")\n",
		"more saves":     "def main():\n" + strings.Repeat("    tools.save(path = \"/tmp/x\", content = \"x\")\n", 2),
		"more mails":     "def main():\n" + strings.Repeat("    tools.mail(to = [\"a@example.com\"], body = \"x\")\n", 3),
	} {
		h.awaitPending("w", h.askProgram(source))
		require.Equal(t, []string{""}, h.took(), why)
	}
	h.awaitPending("w", h.ask(`{"tool_name":"mail","request_data":{"to":["a@example.com"],"body":"x"}}`))
}

// TestProgramWithoutRules: of a program that no rule allows, rule add prints why its steps would still ask.
func TestProgramWithoutRules(t *testing.T) {
	h := programRig(t)
	allow := func(match string) {
		t.Helper()
		b, err := os.ReadFile(h.config)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(h.config, append(b, "[[rules]]\nmatch = { "+match+" }\noutcome = \"allow\"\n"...), 0o600))
	}
	allow(`tool = "save", args = { path = "/tmp/x" }`)
	d := h.serve()
	refused := func(id string) string {
		t.Helper()
		code, out, errs := h.run("", "rule", "add", "--from", id)
		require.Equal(t, console.ExitRefused, code)
		require.Empty(t, out)
		return errs
	}
	const why = `permesso: No rule can allow this request:
step 2 of the program calls save
fs:write needs approval at autonomy supervised
a result that is not known yet is passed on: each run would pass on another one
`
	id := h.askProgram("def main():\n    r = tools.mail(to = [\"a@example.com\"], body = \"x\")\n    tools.save(path = \"/tmp/z\", content = r[\"id\"])\n")
	h.awaitPending("w", id)
	require.Equal(t, why+"hint: permesso approve "+id[:8]+" allows it once\n", refused(id))
	code, _, errs := h.run("", "approve", id, "--always")
	require.NotZero(t, code)
	require.Contains(t, errs, "each run would pass on another one")
	code, _, errs = h.run("", "approve", id)
	require.Zero(t, code, errs)
	require.Equal(t, approval.StatusApproved, h.response(id).Status)
	require.Equal(t, why, refused(id), "it has ended")

	id = h.askProgram("def main():\n    a = tools.save(path = \"/tmp/x\", content = \"x\")\n    tools.save(path = \"/tmp/y\", content = a[\"id\"])\n")
	h.awaitPending("w", id)
	require.Contains(t, refused(id), "step 2 of the program calls save\n")
	allow(`tool = "save"`)
	d.awaitLog("configuration reloaded")
	require.Contains(t, refused(id), "it needs none: policy allows it as it is now\n")
}

// TestProgramKilled: after a kill in a step the run ends there, says what ran, and nothing runs twice; the program that
// undoes what ran is asked about like any other.
func TestProgramKilled(t *testing.T) {
	h := programRig(t)
	d := h.serve()
	id := h.askProgram(`def main():
    for body in ["one", "two", "slow", "four"]:
        tools.mail(to = ["a@example.com"], body = body)
`)
	h.awaitPending("w", id)
	code, _, errs := h.run("", "approve", id)
	require.Zero(t, code, errs)
	await(t, h.dir, func() bool {
		b, err := os.ReadFile(filepath.Join(h.dir, "ran"))
		return err == nil && strings.Contains(string(b), "slow")
	})
	d.kill()
	h.serve()
	r := h.response(id)
	require.Equal(t, approval.StatusInterrupted, r.Status)
	require.Contains(t, *r.Error, "interrupted at step 3")
	var out struct {
		Steps []struct{ Status string }
		Undo  string
	}
	require.NoError(t, json.Unmarshal(r.Result, &out))
	statuses := ""
	for _, s := range out.Steps {
		statuses += s.Status + " "
	}
	require.Equal(t, "approved approved interrupted not_run ", statuses)
	require.Len(t, h.took(), 3)
	require.Equal(t, approval.StatusApproved, h.runAsked(out.Undo).Status)
	require.Equal(t, []string{`recall {"id":"2"}`, `recall {"id":"1"}`}, h.took())

	code, shown, errs := h.run("", "show", id)
	require.Zero(t, code, errs)
	require.Contains(t, shown, "step 3:   mail")
	require.Contains(t, shown, "undo:")
	code, listed, errs := h.run("", "history")
	require.Zero(t, code, errs)
	require.NotContains(t, listed, "step-")
	code, _, errs = h.run("", "audit", "verify")
	require.Zero(t, code, errs)
	code, verified, errs := h.run("", "receipt", "verify", "--allow-expired", filepath.Join(h.layout.Responses("w"), id+".json"))
	require.Zero(t, code, errs)
	require.Contains(t, verified, "approved by ann")
}

// TestProgramStops: a daemon that stops lets the step that runs end, and the next one goes on behind it.
func TestProgramStops(t *testing.T) {
	h := programRig(t)
	d := h.serve()
	h.script("tool", fmt.Sprintf(`line=$(cat); echo "$line" >> %s; while [ ! -e %s ]; do sleep 0.02; done; echo '{"id":"x"}'`, filepath.Join(h.dir, "ran"), filepath.Join(h.dir, "go")))
	id := h.askProgram("def main():\n    for body in [\"one\", \"two\", \"three\"]:\n        tools.mail(to = [\"a@example.com\"], body = body)\n")
	h.awaitPending("w", id)
	code, _, errs := h.run("", "approve", id)
	require.Zero(t, code, errs)
	await(t, h.dir, func() bool {
		b, err := os.ReadFile(filepath.Join(h.dir, "ran"))
		return err == nil && strings.Contains(string(b), "one")
	})
	d.signal(syscall.SIGTERM)
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600))
	require.NoError(t, d.awaitExit(), "%s", d.logged())
	h.serve()
	r := h.response(id)
	require.Equal(t, approval.StatusApproved, r.Status, "%v", r.Error)
	require.Len(t, h.took(), 3)
}

// TestProgramInParts: a part that is denied after another one has run is no "nothing ran".
func TestProgramInParts(t *testing.T) {
	h := programRig(t)
	h.serve()
	file := filepath.Join(h.dir, "p.star")
	require.NoError(t, os.WriteFile(file, []byte("def main():\n    r = tools.mail(to = [\"a@example.com\"], body = \"x\")\n    if r[\"id\"] == \"1\":\n        tools.save(path = \"/tmp/x\", content = \"x\")\n"), 0o600))
	awaitFile(t, h.agent.Requests)
	id := client.NewID()
	cmd := h.command("run", file, "--id", id, "--requests", h.agent.Requests, "--responses", h.agent.Responses)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	h.awaitPending("w", id)
	code, _, text := h.run("", "approve", id)
	require.Zero(t, code, text)
	var first struct{ Undo string }
	require.NoError(t, json.Unmarshal(h.response(id).Result, &first))
	require.Contains(t, first.Undo, `tools["recall"](id = "1")`, "the rest may never come")
	next := approval.ContinuationID(id)
	h.awaitPending("w", next)
	code, _, text = h.run("", "deny", next)
	require.Zero(t, code, text)
	require.Error(t, cmd.Wait())
	require.Equal(t, 4, cmd.ProcessState.ExitCode(), "%s%s", out.String(), errs.String())
	require.Contains(t, errs.String(), "permesso wait "+id)
	require.Equal(t, 1, strings.Count(out.String(), "step 1: mail"))
	require.Len(t, h.took(), 1)
}
