package main

import (
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

const memoryConfig = `
[workspaces.default]
budget_day = { hard = 2 }
deny_above = { "time:read" = "2/24h" }
[tools.post]
capability = "channel:out"
target = "board"
trust = false
[tools.keep]
capability = "fs:write"
target = "/data/x"
trust = false
[tools.paid]
trust = false
cost = 1
[tools.clock]
capability = "time:read"
[tools.browse]
public_source = true
secret_data = false
public_sink = false
dangerous_writes = false
`

// Policy rebuilds its memory from the log: after a kill, after a stop, and if the
// snapshot is missing, damaged or newer than the log.
func TestPolicyMemorySurvivesRestarts(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", memoryConfig)
	d := h.serve()
	h.approveNew("post")
	h.approveNew("post")
	for _, tool := range []string{"paid", "paid", "clock", "clock", "browse"} {
		require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(`{"tool_name":"`+tool+`"}`)).Status, tool)
	}
	code, _, errs := h.run("", "grant", "add", "--tool", "keep", "--target", "/data/*")
	require.Equal(t, console.ExitOK, code, errs)
	require.Equal(t, approval.StatusAutoApproved, h.response(h.ask(`{"tool_name":"keep"}`)).Status)
	state := filepath.Join(h.layout.Home, "policy.state")

	d.kill()
	require.NoFileExists(t, state)
	d = h.serve()
	h.verifyMemory(2)
	d.stop()
	require.FileExists(t, state)
	d = h.serve()
	h.verifyMemory(2)
	require.NotContains(t, d.logged(), "snapshot", "the snapshot was used")
	d.stop()

	// The current home, with a later snapshot.
	older := h.copyHome()
	d = h.serve()
	h.approveNew("post")
	d.stop()
	newer, err := os.ReadFile(state)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(older.layout.Home, "policy.state"), newer, 0o600))
	d = older.serve()
	older.verifyMemory(2)
	require.Contains(t, d.logged(), "policy snapshot is newer than the log")
	d.stop()

	damaged := []byte(strings.Replace(string(newer), `"cost":1`, `"cost":0`, 1))
	require.NotEqual(t, newer, damaged)
	for _, b := range [][]byte{damaged, newer[:len(newer)/2], {}} {
		require.NoError(t, os.WriteFile(state, b, 0o600))
		d = h.serve()
		h.verifyMemory(3)
		require.Contains(t, d.logged(), "policy snapshot is unusable")
		d.stop()
	}
}

func (h *rig) approveNew(tool string) {
	h.t.Helper()
	id := h.ask(`{"tool_name":"` + tool + `"}`)
	h.awaitPending("default", id)
	code, _, errs := h.run("", "approve", id)
	require.Equal(h.t, console.ExitOK, code, errs)
	require.Equal(h.t, approval.StatusApproved, h.response(id).Status)
}

// verifyMemory compares the memory of the running daemon with what has happened.
func (h *rig) verifyMemory(approvals int) {
	h.t.Helper()
	id := h.ask(`{"tool_name":"post"}`)
	h.awaitPending("default", id)
	b, err := os.ReadFile(filepath.Join(h.layout.Pendings("default"), id+".json"))
	require.NoError(h.t, err)
	var p struct {
		Recurrence int `json:"recurrence_count"`
	}
	require.NoError(h.t, json.Unmarshal(b, &p))
	require.Equal(h.t, approvals, p.Recurrence)
	code, _, errs := h.run("", "deny", id)
	require.Equal(h.t, console.ExitOK, code, errs)
	for tool, says := range map[string]string{"paid": "hard limit", "clock": "more than 2 time:read"} {
		r := h.response(h.ask(`{"tool_name":"` + tool + `"}`))
		require.Equal(h.t, approval.StatusAutoRejected, r.Status, tool)
		require.Contains(h.t, *r.Error, says)
	}
	_, out, _ := h.run("", "grants")
	require.Contains(h.t, out, "used 1×")
	_, out, _ = h.run("", "session", "list")
	require.Contains(h.t, out, "default (supervised): corruption")
}

// copyHome returns a rig with a copy of the home.
func (h *rig) copyHome() *rig {
	h.t.Helper()
	other := newRig(h.t, "default", memoryConfig)
	out, err := osexec.Command("cp", "-a", h.layout.Home, other.layout.Home).CombinedOutput()
	require.NoError(h.t, err, "%s", out)
	return other
}
