package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// --home of a daemon that was started with --config shows the configuration of that daemon, also
// after it has ended.
func TestHomeShowsWhatItsDaemonServes(t *testing.T) {
	t.Parallel()
	v := newIncident(t, "home")
	v.configure(fmt.Sprintf(incidentConfig, uidAnn))
	cmd := v.rig.command("serve")
	cmd.Env = append(v.environ(), "HOME="+v.dir)
	d := v.start(cmd)
	v.env["HOME"] = filepath.Join(v.dir, "elsewhere")
	shows := func() {
		for line, says := range map[string]string{
			"config show":                "# file " + v.rig.config + "\n",
			"config check":               "ok      " + v.rig.config + "\n",
			"status":                     "config  " + v.rig.config + "\n",
			"doctor --quick":             v.rig.config + ": 2 workspaces, 1 tool\n",
			"policy explain " + v.ids[0]: "ask by trust",
			"workspace list":             "w · supervised · approvers: ann · ",
			"mounts w":                   v.rig.layout.Requests("w"),
		} {
			_, out, errs := v.run(append(strings.Fields(line), "--home", v.rig.layout.Home), "")
			require.Contains(t, out, says, "%s\n%s", line, errs)
		}
	}
	shows()

	v.configure("colour = true\n")
	d.awaitLog("configuration change refused")
	code, out, errs := v.run([]string{"config", "check", "--home", v.rig.layout.Home}, "")
	require.Equal(t, console.ExitError, code)
	require.Empty(t, out)
	require.Contains(t, errs, "permesso: the daemon does not serve "+v.rig.config+" as it is now\nhint: permesso status says so if it refused the change\n")
	require.Contains(t, errs, v.rig.config+`:1:1: unknown key "colour"`)

	v.configure(fmt.Sprintf(incidentConfig, uidAnn))
	d.stop()
	shows()
}

// A configuration that is named and that the daemon does not serve changes nothing, and the user
// is told.
func TestNamedConfigurationThatIsNotServed(t *testing.T) {
	t.Parallel()
	v := newIncident(t, "named")
	v.serve()
	wrong := filepath.Join(v.dir, "wrong.toml")
	for _, row := range []struct{ why, text, says string }{
		{"missing", "", "permesso: " + wrong + ": no such file or directory\nhint: the daemon serves " + v.rig.config + "\n"},
		{"broken", "[[[", "permesso: " + wrong + " is not read: the daemon serves " + v.rig.config + "\nhint: leave out --config, or name that file\n"},
		{"of another daemon", "[workspaces.x]\n", "permesso: " + wrong + " is not read: the daemon serves " + v.rig.config + "\n"},
	} {
		if row.text != "" {
			require.NoError(t, os.WriteFile(wrong, []byte(row.text), 0o600))
		}
		for _, line := range []string{"pending", "approve " + v.ids[0] + " --seen " + digestOf(v.rig.layout, v.ids[0])} {
			code, out, errs := v.run(append([]string{"--config", wrong}, strings.Fields(line)...), "")
			require.Zero(t, code, "%s: %s", row.why, errs)
			require.NotEmpty(t, out)
			require.True(t, strings.HasPrefix(errs, row.says), "%s: %s", row.why, errs)
			require.Equal(t, 1, strings.Count(errs, "permesso: "), row.why)
		}
		v.ids = v.ids[1:]
	}
	code, _, errs := v.run([]string{"--config", v.rig.config, "pending"}, "")
	require.Zero(t, code)
	require.Empty(t, errs, "the file that it serves")
}

// An approver at the socket sees the whole story of a request, and pauses its own workspaces.
func TestApproverSeesAndPausesOwnWorkspaces(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	d := v.startServing()
	id, bobs := v.submitAndAwait("annes"), v.submitAndAwait("bobs")
	code, _, errs := v.runAs(v.ann, "deny", id, "not today")
	require.Zero(t, code, errs)
	v.awaitFile(filepath.Join(v.layout.Responses("annes"), id+".json"))

	_, shown, _ := v.runAs(v.ann, "show", id)
	for _, part := range []string{"annes · " + id + " · denied", "decision: denied by ann via socket", "timeline:\n", "approval requested", "denied by ann"} {
		require.Contains(t, shown, part)
	}
	_, listed, _ := v.runAs(v.ann, "history", "--json")
	require.Contains(t, listed, id)
	require.NotContains(t, listed, bobs)

	code, out, errs := v.runAs(v.ann, "pause", "annes", "--reason", "odd requests")
	require.Zero(t, code, errs)
	require.Equal(t, "paused: nothing runs until permesso resume annes\n", out)
	_, _, errs = v.run("", "pause", "bobs")
	require.Empty(t, errs)
	for _, args := range [][]string{{"pause"}, {"pause", "bobs"}, {"resume"}, {"resume", "bobs"}, {"pause", "none"}} {
		code, out, errs := v.runAs(v.ann, args...)
		require.Equal(t, console.ExitRefused, code, "%v: %s", args, out)
		require.Equal(t, "permesso: nothing here for you: name one of your workspaces: annes\n", errs, "%v", args)
	}
	_, out, _ = v.runAs(v.ann, "status")
	require.Contains(t, out, "paused: annes, since")
	require.NotContains(t, out, "bobs")
	code, out, errs = v.runAs(v.ann, "resume", "annes")
	require.Zero(t, code, errs)
	require.Equal(t, "resumed: paused requests run\n", out)
	d.stop()
	log := v.readAudit()
	require.Regexp(t, `"event":"paused","workspace":"annes"[^\n]*"by":"ann"[^\n]*"via":"socket"[^\n]*odd requests`, log)
	require.Regexp(t, `"event":"resumed","workspace":"annes"[^\n]*"by":"ann"[^\n]*"via":"socket"`, log)
}

// A HOME of another user shows nothing, and no command pretends that it has the defaults.
func TestHomeOfAnotherUser(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	v.startServing()
	if !v.root {
		v.logNeedsRoot()
		return
	}
	for _, line := range []string{"config show", "config check", "workspace list", "audit keys", "mounts annes", "policy simulate", "prune --dry-run"} {
		cmd := v.commandAs(v.ann, nil, append(strings.Fields(line), "--home", v.layout.Home)...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		require.Error(t, cmd.Run(), line)
		require.Empty(t, out.String(), line)
		require.Equal(t, fmt.Sprintf("permesso: this user cannot read %s: permission denied\nhint: run it as the daemon's user (UID %d), or as root\n", v.layout.Home, uidGate), errs.String(), line)
	}
	// The operator's root reads them.
	cmd := v.commandAs(0, nil, "config", "show", "--home", v.layout.Home)
	b, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", b)
	require.Contains(t, string(b), "# file "+v.config+"\n")
}

// Root with a HOME of its own is told that this machine's daemon is another one.
func TestOwnHomeBesideThisMachinesDaemon(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		require.Empty(t, os.Getenv("CI"), "CI has root")
		t.Skip("only root has another user's HOME")
	}
	v := situation(t, inPackaged)
	own := filepath.Join(v.env["HOME"], ".local", "state", "permesso")
	code, _, errs := v.run([]string{"init", "--yes", "--home", own}, "")
	require.Zero(t, code, errs)
	code, out, errs := v.run([]string{"status"}, "")
	require.Zero(t, code, errs)
	require.Contains(t, out, "not running")
	require.Contains(t, out, own)
	require.Equal(t, "permesso: the HOME in "+own+" is meant; this machine's daemon has another one\nhint: to ask it: PERMESSO_SOCKET="+
		config.DefaultSocket+"; as its operator: --home "+config.SystemHome+"\n", errs)

	code, out, errs = v.run([]string{"status", "--home", config.SystemHome}, "")
	require.Zero(t, code, errs)
	require.Contains(t, out, "daemon  running")
	require.Empty(t, errs)
}
