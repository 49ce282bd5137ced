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
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/security/audit"
)

const allowing = `
[tools.new]
public_source = false
secret_data = false
public_sink = false
handler = { kind = "command", argv = ["/bin/echo", "%s"] }
[[rules]]
match = { tool = "new" }
outcome = "allow"
`

// edit replaces the configuration as editors do: another file, renamed.
func (h *place) edit(content string) {
	h.t.Helper()
	temp := h.config + "~"
	require.NoError(h.t, os.WriteFile(temp, []byte(content), 0o600))
	require.NoError(h.t, os.Rename(temp, h.config))
}

// said says how often the daemon has said something, and awaits that many.
func (d *daemon) awaitTimes(text string, n int) {
	d.t.Helper()
	await(d.t, d.log, func() bool { return strings.Count(d.said(), text) >= n })
}

const readAnew = "configuration reloaded"

func (h *place) status() *state {
	h.t.Helper()
	code, out, stderr := h.run("", "status", "--json")
	require.Equal(h.t, exitOK, code, stderr)
	st := &state{}
	require.NoError(h.t, json.Unmarshal([]byte(out), st))
	return st
}

// A daemon without any tool learns of its first one: the supervisor starts.
func TestReloadTakesOver(t *testing.T) {
	h := newPlace(t, "default", "# nothing yet\n")
	d := h.serve()
	d.awaitLog(`"serving"`)
	asked := h.ask(`{"tool_name":"new"}`)
	h.awaitPending("default", asked)

	h.edit(fmt.Sprintf(allowing, "one"))
	d.awaitTimes(readAnew, 1)
	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(`{"tool_name":"new"}`)).Status)

	// in place, too, and by the signal at once
	require.NoError(t, os.WriteFile(h.config, fmt.Appendf(nil, allowing, "two"), 0o600))
	d.awaitTimes(readAnew, 2)
	r := h.response(h.ask(`{"tool_name":"new"}`))
	require.Contains(t, string(r.Result), "two")
	d.signal(syscall.SIGHUP)
	d.awaitLog("configuration unchanged")
	d.stop()

	b, err := os.ReadFile(h.config)
	require.NoError(t, err)
	var details []string
	require.NoError(t, audit.Entries(ipc.OS(), h.layout.Audit(), func(e approval.Entry) error {
		if e.Event == approval.EventConfigured {
			details = append(details, e.Detail)
		}
		return nil
	}))
	require.Len(t, details, 3, "the first one, and two that were taken over")
	require.Equal(t, "sha256 "+approval.Digest(b), details[2])
}

// A bad edit keeps the old one and says where; the good one takes over.
func TestReloadRefusesMistakes(t *testing.T) {
	good := fmt.Sprintf(allowing, "good")
	h := newPlace(t, "default", good)
	d := h.serve()
	d.awaitLog(`"serving"`)
	for i, tt := range []struct {
		why, says string
		do        func()
	}{
		{"a word misspelt", h.config + ":2:1: unknown key \"autonmy\"", func() { h.edit("[workspaces.default]\nautonmy = \"full\"\n") }},
		{"no TOML", h.config + ":1:", func() { h.edit("][") }},
		{"emptied, as by an editor that is about to write", h.config + ": configuration file is empty", func() { h.edit("") }},
		{"removed", "no such file", func() { require.NoError(t, os.Remove(h.config)) }},
	} {
		tt.do()
		d.awaitTimes("change refused, the old one stays active", i+1)
		require.Contains(t, strings.ReplaceAll(d.said(), `\"`, `"`), tt.says, tt.why)
		require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(`{"tool_name":"new"}`)).Status, tt.why)
		var r healthReport
		b, err := os.ReadFile(h.layout.Health())
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &r))
		require.Equal(t, healthDegraded, r.Status, tt.why)
		require.Contains(t, r.Issues[0].What, tt.says, tt.why)
		require.Equal(t, approval.Digest([]byte(good)), r.ConfigSHA256, tt.why)
	}
	require.Contains(t, d.said(), "did you mean")
	h.edit(good)
	d.awaitLog("configuration unchanged")
	await(t, h.layout.Health(), func() bool { return h.status().Health.Status == healthOK })
	h.edit("[workspaces.default]\nautonmy = \"full\"\n")
	d.awaitTimes("change refused, the old one stays active", 5)
	h.edit(good + "# better\n")
	d.awaitTimes(readAnew, 1)
	await(t, h.layout.Health(), func() bool { return h.status().Health.Status == healthOK })
	d.stop()
}

// A configuration that hangs on symbolic links, as in containers: the file's
// folder never changes but for a link.
func TestReloadThroughLinks(t *testing.T) {
	t.Parallel()
	h := newPlace(t, "default", "")
	dir := filepath.Join(h.dir, "etc")
	put := func(version, content string) {
		real := filepath.Join(dir, ".."+version)
		require.NoError(t, os.MkdirAll(real, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(real, "permesso.toml"), []byte(content), 0o600))
		require.NoError(t, os.Symlink(".."+version, filepath.Join(dir, "..new")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
	}
	put("1", fmt.Sprintf(allowing, "one"))
	h.config = filepath.Join(dir, "permesso.toml")
	require.NoError(t, os.Symlink("..data/permesso.toml", h.config))
	require.Equal(t, []string{dir, filepath.Join(dir, "..1")}, linkFolders(h.config))
	d := h.serve()
	d.awaitLog(`"serving"`)
	for i, version := range []string{"two", "three"} {
		put(version, fmt.Sprintf(allowing, version))
		d.awaitTimes(readAnew, i+1)
		require.Contains(t, string(h.response(h.ask(`{"tool_name":"new"}`)).Result), version)
	}
	d.stop()
}

// Workspaces come and go.
func TestReloadOfWorkspaces(t *testing.T) {
	tool := fmt.Sprintf(allowing, "x")
	h := newPlace(t, "first", "[workspaces.first]\n"+tool)
	d := h.serve()
	d.awaitLog(`"serving"`)
	h.edit("[workspaces.second]\n" + tool)
	d.awaitTimes(readAnew, 1)
	r := h.response(h.ask(`{"tool_name":"new"}`))
	require.Equal(t, approval.StatusAutoRejected, r.Status)
	require.Contains(t, *r.Error, "workspace 'first' is not configured")
	require.DirExists(t, h.layout.Records("first"), "its folders stay")

	h.agent = client.Files{Requests: h.layout.Requests("second"), Responses: h.layout.Responses("second")}
	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(`{"tool_name":"new"}`)).Status)
	d.stop()
}

// What was shown is what runs: a tool that changes between the card and the
// answer does not.
func TestReloadChangesATool(t *testing.T) {
	asking := strings.ReplaceAll(allowing, "allow", "ask")
	h := newPlace(t, "default", fmt.Sprintf(asking, "shown"))
	d := h.serve()
	id := h.ask(`{"tool_name":"new"}`)
	h.awaitPending("default", id)
	h.edit(fmt.Sprintf(asking, "other"))
	d.awaitTimes(readAnew, 1)
	code, _, stderr := h.run("", "approve", id)
	require.Equal(t, exitOK, code, stderr)
	r := h.response(id)
	require.Equal(t, approval.StatusFailed, r.Status)
	require.Equal(t, "the tool changed, ask again", *r.Error)
	d.stop()
}

// Somebody who was an approver a moment ago is none at the time of deciding,
// with a decider that was made before.
func TestReloadAppliesToDeciders(t *testing.T) {
	with := "[approvers.ann]\ntelegram = 7\n[workspaces.default]\napprovers = [\"ann\"]\n"
	h := newPlace(t, "default", with+fmt.Sprintf(strings.ReplaceAll(allowing, "allow", "ask"), "x"))
	d := h.serve()
	id := h.ask(`{"tool_name":"new"}`)
	h.awaitPending("default", id)
	d.stop()
	a := &app{Main: Main{Env: os.Getenv}, ctx: t.Context(), configFlag: h.config, homeFlag: h.layout.Home}
	instance, keys, err := a.openHome()
	require.NoError(t, err)
	decider := instance.decider(keys, nil)
	next, err := config.Parse("next", []byte(strings.Replace(with, `["ann"]`, `[]`, 1)))
	require.NoError(t, err)
	ann := approval.DecisionInput{
		Key: approval.Key{Workspace: "default", ID: id}, Verdict: approval.Approved, Via: "telegram",
		By: approval.Person{Channel: "telegram", ID: "7", Name: "ann"},
	}
	before := instance.live.now.Load()
	instance.live.now.Store(settingsOf(next))
	_, err = decider.Decide(t.Context(), ann)
	require.ErrorIs(t, err, approval.ErrNotAuthorized)
	instance.live.now.Store(before)
	_, err = decider.Decide(t.Context(), ann)
	require.NoError(t, err)
}
