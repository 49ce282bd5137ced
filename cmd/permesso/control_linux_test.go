package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// While a daemon runs, its operator's commands need no configuration file.
func TestSocketNeedsNoConfiguration(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	first, second := h.ask(`{"tool_name":"say","request_data":{"n":1}}`), h.ask(`{"tool_name":"say","request_data":{"n":2}}`)
	h.awaitPending("default", first)
	h.awaitPending("default", second)
	served := h.config
	h.config = filepath.Join(h.dir, "none.toml")
	require.NoError(t, os.WriteFile(h.config, []byte("this is = no [configuration"), 0o600))
	ok := func(args ...string) string {
		t.Helper()
		code, out, errs := h.run("", args...)
		require.Zero(t, code, "%v: %s", args, errs)
		require.Contains(t, []string{"", "permesso: " + h.config + " is not read: the daemon serves " + served + "\nhint: leave out --config, or name that file\n"}, errs, args)
		return out
	}
	require.Contains(t, ok("pending"), first[:8])
	require.Contains(t, ok("show", first), "🔐 May I run say?")
	require.Contains(t, ok("pause", "--reason", "careful"), "paused: nothing runs")
	require.Contains(t, ok("pending"), "careful")
	require.Contains(t, ok("resume"), "resumed")
	out := ok("approve", first, "--always")
	require.Contains(t, out, "Approved")
	require.NotContains(t, out, "not running")
	h.response(first)
	require.Contains(t, ok("cancel", "--operator", second), "Cancelled")
	h.response(second)
	require.Contains(t, ok("show", first), "decision: approved by operator:")
	require.Contains(t, ok("history", "--tool", "say"), "approved")
	require.Contains(t, ok("stats"), "2 requests, 2 of them needed an approver")
	grant := strings.Fields(ok("grants"))[0]
	require.Equal(t, "revoked\n", ok("revoke", grant[:6]))
	require.Equal(t, "no-op\n", ok("revoke", grant))
	require.Contains(t, ok("grants", "--all"), "revoked")
	require.Contains(t, ok("grant", "add", "--action-type", "send_message"), "granted ")
	require.Contains(t, ok("session", "list"), "default (supervised)")
	require.Contains(t, ok("session", "clear", "default"), "cleared")
	require.Contains(t, ok("status"), "daemon  running")
	require.Contains(t, ok("audit", "tail", "-n", "100"), "granted")
	require.Contains(t, ok("ui", "--print"), "/enter/")
	code, secret, errs := h.run("", "key", "create", "default")
	require.Zero(t, code, errs)
	require.Regexp(t, `^permesso_.{43}\n$`, secret)
	key := strings.Fields(ok("key", "list"))[0]
	require.Equal(t, "revoked\n", ok("key", "revoke", key[:6]))
	d.stop()

	code, _, errs = h.run("", "pending")
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "none.toml", "without a daemon the configuration is needed")
	require.Contains(t, ok("pause"), "paused: nothing runs", "except for a pause")
	require.Contains(t, ok("resume"), "resumed")
}

// An approver at the socket may do what the web UI allows: nothing in other workspaces, and
// nothing that only the operator may.
func TestSocketApproverRights(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	v.configure(strings.Replace(fmt.Sprintf(multiUserConfig, v.socket, v.ann), `language = "it"`, "", 1))
	v.startServing()
	ids := map[string]string{}
	for _, ws := range []string{"annes", "bobs", "operators"} {
		ids[ws] = v.submitAndAwait(ws)
	}
	for _, ws := range []string{"bobs", "operators"} {
		code, _, errs := v.run("", "approve", ids[ws], "--always")
		if v.root && ws == "operators" || !v.root {
			require.Zero(t, code, errs)
		}
	}
	ok := func(args ...string) string {
		t.Helper()
		code, out, errs := v.runAs(v.ann, args...)
		require.Zero(t, code, "%v: %s", args, errs)
		for ws, id := range ids {
			require.False(t, ws != "annes" && strings.Contains(out, id[:8]), "%v shows %s: %s", args, ws, out)
		}
		return out
	}
	refused := func(args ...string) {
		t.Helper()
		code, out, errs := v.runAs(v.ann, args...)
		require.Equal(t, console.ExitRefused, code, "%v: %s", args, errs)
		require.Empty(t, out)
		require.Regexp(t, `^permesso: nothing here for you: (name one of your workspaces: annes|only the daemon's operator may do this: .*)\n$`, errs, args)
	}
	require.Contains(t, ok("approve", ids["annes"], "--always"), "Undo: permesso revoke")
	v.awaitFile(filepath.Join(v.layout.Responses("annes"), ids["annes"]+".json"))
	require.Contains(t, ok("history"), ids["annes"][:8])
	require.Contains(t, ok("show", ids["annes"]), "timeline:\n")
	require.Contains(t, ok("stats"), "1 requests, 1 of them needed an approver")
	require.Contains(t, ok("audit", "tail", "-n", "100"), "executed")
	require.Contains(t, ok("audit", "tail", "-n", "1", "--json"), `"workspace":"annes"`)

	lines := strings.Split(strings.TrimSpace(ok("grants")), "\n")
	require.Len(t, lines, 1, "only grants of her workspace")
	grant := strings.Fields(lines[0])[0]
	_, all, _ := v.run("", "grants")
	for _, line := range strings.Split(strings.TrimSpace(all), "\n") {
		if other := strings.Fields(line)[0]; other != grant {
			require.Equal(t, "no-op\n", ok("revoke", other), "of another workspace")
		}
	}
	require.Equal(t, "revoked\n", ok("revoke", grant))

	require.Contains(t, ok("pause", "annes", "--reason", "enough"), "paused")
	_, out, _ := v.run("", "status")
	require.Contains(t, out, "paused: annes, since ")
	require.Contains(t, out, "by ann: enough")
	require.Contains(t, ok("resume", "annes"), "resumed")
	refused("pause")
	refused("resume")
	refused("pause", "bobs")
	refused("grant", "add", "--action-type", "send_message", "--workspace", "annes")
	require.NotContains(t, ok("session", "list"), "bobs")
	next := v.submitAndAwait("annes")
	for _, args := range [][]string{{"cancel", "--operator", next}, {"session", "clear", "annes"}} {
		code, _, errs := v.runAs(v.ann, args...)
		require.Equal(t, console.ExitRefused, code)
		require.Regexp(t, `only the operator of the daemon can c.*\nhint: `, errs, args)
	}
	require.Contains(t, ok("deny", next), "Denied")
}

// A daemon that does not answer is named; nothing is written beside it.
func TestSocketSilentDaemon(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	id := h.ask(`{"tool_name":"say","request_data":{}}`)
	h.awaitPending("default", id)
	awaitFile(t, h.layout.Health())
	code, _, errs := h.run("", "status")
	require.Zero(t, code, errs)
	d.signal(syscall.SIGSTOP)
	defer d.signal(syscall.SIGCONT)
	type result struct {
		code      int
		out, errs string
	}
	commands := [][]string{{"approve", id}, {"pending"}, {"pause"}, {"grant", "add", "--action-type", "send_message"}}
	results := make(chan result, len(commands))
	began := time.Now()
	for _, args := range commands {
		go func() {
			var r result
			r.code, r.out, r.errs = h.runRaw("", args...)
			results <- r
		}()
	}
	for range commands {
		r := <-results
		require.Equal(t, console.ExitError, r.code)
		require.Empty(t, r.out)
		named, errs, _ := strings.Cut(r.errs, "\n")
		require.Regexp(t, `^permesso: waiting for the daemon with PID `+strconv.Itoa(d.cmd.Process.Pid)+`; its last sign of life was at \d{4}-`, named)
		require.Regexp(t, `^permesso: the daemon with PID `+strconv.Itoa(d.cmd.Process.Pid)+` has locked `+h.layout.Home+` and does not answer; `+
			`its last sign of life was at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\nhint: if it is not about to start or stop, check its log; if it was stopped, kill -CONT \d+; otherwise kill -9 \d+ and start it again; nothing was changed\n$`, errs)
	}
	require.Less(t, time.Since(began), 20*time.Second)
	for _, dir := range []string{h.layout.Decisions("default"), h.layout.Grants()} {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, entries, "nothing was written")
	}
	entries, err := os.ReadDir(h.layout.Pauses())
	require.NoError(t, err)
	for _, e := range entries {
		require.NotContains(t, e.Name(), "_all.json")
	}
	d.signal(syscall.SIGCONT)
	code, _, errs = h.run("", "approve", id)
	require.Zero(t, code, errs)
	h.response(id)
}

// Command and daemon of different versions work together, and the command says so.
// It is not parallel: it changes the version that all commands have.
func TestSocketVersions(t *testing.T) {
	h := newRig(t, "default", askAll)
	d := h.serve()
	d.awaitLog(`"message":"serving"`)
	id := h.ask(`{"tool_name":"say","request_data":{}}`)
	h.awaitPending("default", id)
	var out, errs bytes.Buffer
	old := version
	defer func() { version = old }()
	version = "0.0.1-other"
	m := Main{In: strings.NewReader(""), Out: &out, Err: &errs, Env: func(string) string { return "" }}
	require.Zero(t, m.Run(t.Context(), []string{"--home", h.layout.Home, "approve", id, "--seen", digestOf(h.layout, id)}), errs.String())
	require.Equal(t, "permesso: this command has version 0.0.1-other, the running daemon "+old+"; restart the daemon to update it\n", errs.String(), "once")
	require.Contains(t, out.String(), "Approved")
	h.response(id)
}

// A home may lie so deep that its socket's path does not fit into an address.
func TestSocketInADeepHome(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", askAll)
	h.layout.Home = filepath.Join(h.dir, strings.Repeat("deep/", 30), "home")
	h.agent.Requests, h.agent.Responses = h.layout.Requests("default"), h.layout.Responses("default")
	for range 2 {
		d := h.serve()
		d.awaitLog(`"message":"serving"`)
		id := h.ask(`{"tool_name":"say","request_data":{}}`)
		h.awaitPending("default", id)
		code, out, errs := h.run("", "approve", id)
		require.Zero(t, code, errs)
		require.NotContains(t, out, "not running")
		h.response(id)
		d.kill()
	}
	code, out, errs := h.run("", "status")
	require.Zero(t, code, errs)
	require.Contains(t, out, "not running", "its socket is left, and leads nowhere")
}
