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
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/security/audit"
)

const allowConfig = `
[tools.new]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
handler = { kind = "command", argv = ["/bin/echo", "%s"] }
[[rules]]
match = { tool = "new" }
outcome = "allow"
`

// replaceConfig replaces the configuration as editors do: write a new file, rename it.
func (h *rig) replaceConfig(content string) {
	h.t.Helper()
	temp := h.config + "~"
	require.NoError(h.t, os.WriteFile(temp, []byte(content), 0o600))
	require.NoError(h.t, os.Rename(temp, h.config))
}

// awaitTimes waits until the log contains text n times.
func (d *daemonProcess) awaitTimes(text string, n int) {
	d.t.Helper()
	await(d.t, d.log, func() bool { return strings.Count(d.logged(), text) >= n })
}

const logReloaded = "configuration reloaded"

func (h *rig) status() *home.State {
	h.t.Helper()
	code, out, stderr := h.run("", "status", "--json")
	require.Equal(h.t, console.ExitOK, code, stderr)
	st := &home.State{}
	require.NoError(h.t, json.Unmarshal([]byte(out), st))
	return st
}

// A reload adds the first tool of a daemon: the supervisor starts.
func TestReloadApplies(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", "# nothing yet\n")
	d := h.serve()
	d.awaitLog(`"serving"`)
	asked := h.ask(`{"tool_name":"new"}`)
	require.Equal(t, approval.StatusAutoRejected, h.response(asked).Status, "no such tool yet")

	h.replaceConfig(fmt.Sprintf(allowConfig, "one"))
	d.awaitTimes(logReloaded, 1)
	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(`{"tool_name":"new"}`)).Status)

	// also if the file is written in place; SIGHUP reloads at once
	require.NoError(t, os.WriteFile(h.config, fmt.Appendf(nil, allowConfig, "two"), 0o600))
	d.awaitTimes(logReloaded, 2)
	r := h.response(h.ask(`{"tool_name":"new"}`))
	require.Contains(t, string(r.Result), "two")
	d.signal(syscall.SIGHUP)
	d.awaitLog("configuration unchanged")
	d.stop()

	b, err := os.ReadFile(h.config)
	require.NoError(t, err)
	var details []string
	require.NoError(t, audit.Entries(ipc.OS(), h.layout.Audit(), func(e event.Entry) error {
		if e.Event == event.Configured {
			details = append(details, e.Detail)
		}
		return nil
	}))
	require.Len(t, details, 3, "the first configuration and two reloads")
	require.Equal(t, "sha256 "+approval.Digest(b), details[2])
}

// An invalid configuration is refused with its position, and the old one stays. A valid one applies.
func TestReloadRefusesMistakes(t *testing.T) {
	t.Parallel()
	good := fmt.Sprintf(allowConfig, "good")
	h := newRig(t, "default", good)
	d := h.serve()
	d.awaitLog(`"serving"`)
	for i, tt := range []struct {
		why, says string
		edit      func()
	}{
		{"a misspelled key", h.config + ":2:1: unknown key \"autonmy\"", func() { h.replaceConfig("[workspaces.default]\nautonmy = \"full\"\n") }},
		{"not TOML", h.config + ":1:", func() { h.replaceConfig("][") }},
		{"emptied, as by an editor that is about to write", h.config + ": configuration file is empty", func() { h.replaceConfig("") }},
		{"removed", "no such file", func() { require.NoError(t, os.Remove(h.config)) }},
	} {
		tt.edit()
		d.awaitTimes("change refused, the old one stays active", i+1)
		require.Contains(t, strings.ReplaceAll(d.logged(), `\"`, `"`), tt.says, tt.why)
		require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(`{"tool_name":"new"}`)).Status, tt.why)
		var r home.HealthReport
		b, err := os.ReadFile(h.layout.Health())
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &r))
		require.Equal(t, home.HealthDegraded, r.Status, tt.why)
		require.Contains(t, r.Issues[0].What, tt.says, tt.why)
		require.Equal(t, approval.Digest([]byte(good)), r.ConfigSHA256, tt.why)
	}
	require.Contains(t, d.logged(), "did you mean")
	h.replaceConfig(good)
	d.awaitLog("configuration unchanged")
	await(t, h.layout.Health(), func() bool { return h.status().Health.Status == home.HealthOK })
	h.replaceConfig("[workspaces.default]\nautonmy = \"full\"\n")
	d.awaitTimes("change refused, the old one stays active", 5)
	h.replaceConfig(good + "# better\n")
	d.awaitTimes(logReloaded, 1)
	await(t, h.layout.Health(), func() bool { return h.status().Health.Status == home.HealthOK })
	d.stop()
}

// A configuration behind symbolic links, as in containers: only a link in the
// folder changes.
func TestReloadThroughLinks(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", "")
	dir := filepath.Join(h.dir, "etc")
	put := func(version, content string) {
		real := filepath.Join(dir, ".."+version)
		require.NoError(t, os.MkdirAll(real, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(real, "permesso.toml"), []byte(content), 0o600))
		require.NoError(t, os.Symlink(".."+version, filepath.Join(dir, "..new")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
	}
	put("1", fmt.Sprintf(allowConfig, "one"))
	h.config = filepath.Join(dir, "permesso.toml")
	require.NoError(t, os.Symlink("..data/permesso.toml", h.config))
	d := h.serve()
	d.awaitLog(`"serving"`)
	for i, version := range []string{"two", "three"} {
		put(version, fmt.Sprintf(allowConfig, version))
		d.awaitTimes(logReloaded, i+1)
		require.Contains(t, string(h.response(h.ask(`{"tool_name":"new"}`)).Result), version)
	}
	d.stop()
}

// A reload adds and removes workspaces.
func TestReloadOfWorkspaces(t *testing.T) {
	t.Parallel()
	tool := fmt.Sprintf(allowConfig, "x")
	h := newRig(t, "first", "[workspaces.first]\n"+tool)
	d := h.serve()
	d.awaitLog(`"serving"`)
	h.replaceConfig("[workspaces.second]\n" + tool)
	d.awaitTimes(logReloaded, 1)
	r := h.response(h.ask(`{"tool_name":"new"}`))
	require.Equal(t, approval.StatusAutoRejected, r.Status)
	require.Contains(t, *r.Error, "workspace first is not configured")
	require.DirExists(t, h.layout.Records("first"), "its folders are kept")

	h.agent = client.Files{Requests: h.layout.Requests("second"), Responses: h.layout.Responses("second")}
	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(`{"tool_name":"new"}`)).Status)
	d.stop()
}

// A tool that changes between the card and the decision does not run: the approver
// was shown the old one.
func TestReloadChangesATool(t *testing.T) {
	t.Parallel()
	asking := strings.ReplaceAll(allowConfig, "allow", "ask")
	h := newRig(t, "default", fmt.Sprintf(asking, "shown"))
	d := h.serve()
	id := h.ask(`{"tool_name":"new"}`)
	h.awaitPending("default", id)
	h.replaceConfig(fmt.Sprintf(asking, "other"))
	d.awaitTimes(logReloaded, 1)
	code, _, stderr := h.run("", "approve", id)
	require.Equal(t, console.ExitFailed, code, stderr)
	require.Contains(t, stderr, "failed: the tool changed, ask again")
	r := h.response(id)
	require.Equal(t, approval.StatusFailed, r.Status)
	require.Equal(t, "the tool changed, ask again", *r.Error)
	d.stop()
}

// A decider uses the current configuration: a person who is no longer an approver
// cannot decide.
func TestReloadAppliesToDeciders(t *testing.T) {
	t.Parallel()
	with := "[approvers.ann]\ntelegram = 7\n[workspaces.default]\napprovers = [\"ann\"]\n"
	h := newRig(t, "default", with+fmt.Sprintf(strings.ReplaceAll(allowConfig, "allow", "ask"), "x"))
	d := h.serve()
	id := h.ask(`{"tool_name":"new"}`)
	h.awaitPending("default", id)
	d.stop()
	a := &app{&console.Console{Env: os.Getenv, ConfigFlag: h.config, HomeFlag: h.layout.Home}}
	opened, keys, err := home.Open(a.Console)
	require.NoError(t, err)
	release, err := opened.Lock(t.Context())
	require.NoError(t, err)
	decider := opened.Decider(keys)
	next, err := config.Parse("next", []byte(strings.Replace(with, `["ann"]`, `[]`, 1)))
	require.NoError(t, err)
	ann := decide.Input{
		Key: approval.Key{Workspace: "default", ID: id}, Verdict: approval.Approved, Via: "telegram",
		By: approval.Person{Channel: "telegram", ID: "7", Name: "ann"},
	}
	opened.Live.Set(home.SettingsOf(next))
	_, err = decider.Decide(t.Context(), ann)
	require.ErrorIs(t, err, decide.ErrNotAuthorized)
	opened.Live.Set(home.SettingsOf(opened.Config))
	_, err = decider.Decide(t.Context(), ann)
	require.NoError(t, err)
	require.NoError(t, release())
}
