package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

const allowHello = `
[workspaces.default]
autonomy = "supervised"
[tools.hello]
capability = "parse:local"
verb = "say hello"
args = {}
handler = { kind = "none" }
`

// settleOne settles one request that a rule allows.
func (h *rig) settleOne() string {
	h.t.Helper()
	id := h.ask(`{"tool_name":"hello"}`)
	require.Equal(h.t, approval.StatusAutoApproved, h.response(id).Status)
	return id
}

// verifies runs audit verify.
func (h *rig) verifies(code int, args ...string) string {
	h.t.Helper()
	got, out, errs := h.run("", append([]string{"audit", "verify"}, args...)...)
	require.Equal(h.t, code, got, out+errs)
	return out + errs
}

// cutLog leaves the first n entries, and no checkpoint.
func (h *rig) cutLog(n int) {
	h.t.Helper()
	name := filepath.Join(h.layout.Audit(), "log.jsonl")
	b, err := os.ReadFile(name)
	require.NoError(h.t, err)
	lines := strings.SplitAfter(string(b), "\n")
	require.NoError(h.t, os.RemoveAll(h.layout.Audit()))
	require.NoError(h.t, os.Mkdir(h.layout.Audit(), 0o700))
	if n > 0 {
		require.NoError(h.t, os.WriteFile(name, []byte(strings.Join(lines[:n], "")), 0o600))
	}
}

// A log that lost what was durable is an alarm, however it was cut, until the operator
// acknowledges it.
func TestCutLogIsAnAlarmUntilAcknowledged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why  string
		end  func(d *daemonProcess)
		left int
		also []string // of HOME, removed as well
		says string
	}{
		{"after a kill", func(d *daemonProcess) {
			d.stop() // what follows is in the journal, what was before is not
			d = d.serve()
			d.settleOne()
			d.kill()
		}, 1, nil, "missing, although durable"},
		{"after a stop", (*daemonProcess).stop, 1, nil, "missing, although durable before the last stop"},
		{"removed", (*daemonProcess).stop, 0, nil, "entries 1 to"},
		{"with the journal", (*daemonProcess).stop, 0, []string{"journal", "version"}, "is missing, of default/"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			h := newRig(t, "default", allowHello)
			d := h.serve()
			h.settleOne()
			h.verifies(console.ExitOK)
			c.end(d)
			h.cutLog(c.left)
			for _, name := range c.also {
				require.NoError(t, os.RemoveAll(filepath.Join(h.layout.Home, name)))
			}

			d = h.serve()
			d.awaitLog("audit log alarm")
			h.settleOne()
			require.Contains(t, h.verifies(console.ExitRefused), c.says)
			require.Contains(t, h.status().Alarm.Reason, c.says)
			_, out, _ := h.run("", "status")
			require.Contains(t, out, c.says)
			_, out, _ = h.run("", "doctor")
			require.Contains(t, out, c.says)
			code, _, _ := h.run("", "audit", "acknowledge")
			require.Equal(t, console.ExitUsage, code, "without a reason")
			d.stop()
			require.Contains(t, h.verifies(console.ExitRefused), c.says, "it stays")

			d = h.serve()
			d.awaitLog("audit log alarm")
			h.must("audit", "acknowledge", "--reason", "it was me")
			require.Contains(t, h.must("audit", "tail"), `reason="it was me"`)
			require.Nil(t, h.status().Alarm)
			d.stop()
			h.verifies(console.ExitOK)
			h.serve().awaitLog("serving")
			require.Nil(t, h.status().Alarm, "nor does the next start raise it again")
			h.verifies(console.ExitOK)
		})
	}
}

// What the journal has is written again after a kill, byte for byte.
func TestLogIsCompletedFromTheJournal(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", allowHello)
	d := h.serve()
	id := h.settleOne()
	d.kill()
	before, err := os.ReadFile(filepath.Join(h.layout.Audit(), "log.jsonl"))
	require.NoError(t, err)
	h.cutLog(2)
	require.Contains(t, h.verifies(console.ExitRefused), "no checkpoint covers", "it is complete, and the daemon signs it again")
	after, err := os.ReadFile(filepath.Join(h.layout.Audit(), "log.jsonl"))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(after), string(before)), "%s\n%s", before, after)
	require.Contains(t, string(after), id, "also what the kill left out of the file")
	d = h.serve()
	d.awaitLog("serving")
	d.stop()
	h.verifies(console.ExitOK)
	require.Nil(t, h.status().Alarm)
}

// The alarm can also be acknowledged while no daemon runs.
func TestAlarmIsAcknowledgedWithoutADaemon(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", allowHello)
	d := h.serve()
	h.settleOne()
	d.stop()
	code, _, errs := h.run("", "audit", "acknowledge", "--reason", "x")
	require.Equal(t, console.ExitRefused, code)
	require.Contains(t, errs, "has no alarm")
	h.cutLog(1)
	h.verifies(console.ExitRefused)
	h.must("audit", "acknowledge", "--reason", "it was me")
	h.verifies(console.ExitOK)
}

func TestVerifyNamesAnAlteredRecord(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", allowHello)
	d := h.serve()
	h.settleOne()
	id := h.settleOne()
	d.stop()
	h.verifies(console.ExitOK)
	name := filepath.Join(h.layout.Records("default"), id+".json")
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, []byte(strings.Replace(string(b), "auto_approved", "auto_rejected", 1)), 0o600))
	require.Contains(t, h.verifies(console.ExitRefused), "default/"+id)
}

// Only a witness shows that the whole state folder was set back.
func TestWitness(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", allowHello)
	d := h.serve()
	h.settleOne()
	d.stop()
	old := h.copyHome()
	d = h.serve()
	h.settleOne()
	d.stop()
	file, piped := filepath.Join(h.dir, "witness"), filepath.Join(h.dir, "piped")
	for range 2 {
		h.must("audit", "witness", "--to", file)
	}
	first, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(first), "permesso\n"), "the same checkpoint once")
	d = h.serve()
	h.settleOne()
	d.stop()
	h.must("audit", "witness", "--to", file)
	h.must("audit", "witness", "--to", "!cat > "+piped)
	require.Contains(t, h.verifies(console.ExitOK, "--witness", file, "--witness", piped), "other proofs")

	old.verifies(console.ExitOK)
	for _, kept := range []string{file, piped} {
		require.Contains(t, old.verifies(console.ExitRefused, "--witness", kept), "the end was cut off")
	}
	require.NoError(t, os.WriteFile(piped, nil, 0o600))
	require.Contains(t, h.verifies(console.ExitRefused, "--witness", piped), piped+" holds no checkpoint")
	h.must("audit", "witness", "--to", piped)
	for _, to := range []string{"", "!", "!exit 3", h.dir} {
		code, _, _ := h.run("", "audit", "witness", "--to", to)
		require.NotZero(t, code, to)
	}
	for to, says := range map[string]string{
		"!exit 3":                             "permesso: witness checkpoint [0-9]+: the command ended with an error: exit status 3\nhint: the checkpoint may not be kept",
		filepath.Join(h.dir, "no", "witness"): "there is no folder .*/no\nhint: create it first",
	} {
		_, _, errs := h.run("", "audit", "witness", "--to", to)
		require.Regexp(t, says, errs)
	}
	require.NoError(t, os.RemoveAll(h.layout.Audit()))
	code, _, errs := h.run("", "audit", "witness", "--to", file)
	require.Equal(t, console.ExitRefused, code)
	require.Contains(t, errs, "the audit log of "+h.layout.Home+" is gone")
}

// A witness never goes backwards: it would hide that the log was set back.
func TestWitnessRefusesAnotherLog(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", allowHello)
	d := h.serve()
	h.settleOne()
	d.stop()
	old := h.copyHome()
	d = h.serve()
	h.settleOne()
	d.stop()
	file := filepath.Join(h.dir, "witness")
	h.must("audit", "witness", "--to", file)
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	refused := func(h *rig, says string) {
		t.Helper()
		code, _, errs := h.run("", "audit", "witness", "--to", file)
		require.Equal(t, console.ExitRefused, code)
		require.Contains(t, errs, says)
		now, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(kept), string(now), "nothing is appended")
	}
	refused(old, "this log is smaller than that of the newest checkpoint")
	for range 3 {
		d = old.serve()
		d.awaitLog("serving")
		d.stop()
	}
	refused(old, "this log is not a continuation of the newest checkpoint")
	other := newRig(t, "default", allowHello)
	d = other.serve()
	other.settleOne()
	d.stop()
	refused(other, "is not one of this log's keys")

	// The witness is of use also while an alarm stands, but the operator must see it.
	h.cutLog(2)
	d = h.serve()
	d.awaitLog("audit log alarm")
	d.stop() // and signs
	to := filepath.Join(h.dir, "another")
	code, _, errs := h.run("", "audit", "witness", "--to", to)
	require.Equal(t, console.ExitRefused, code)
	require.Contains(t, errs, "the checkpoint was appended, but the audit log has an alarm")
	require.FileExists(t, to)

	for _, c := range []struct{ to, hint string }{
		{"|cat", "'!cat'"}, {"ssh host tee", "'!ssh host tee'"},
	} {
		code, _, errs := h.run("", "audit", "witness", "--to", c.to)
		require.Equal(t, console.ExitUsage, code)
		require.Contains(t, errs, c.hint)
		require.NoFileExists(t, c.to)
	}
	pipe := filepath.Join(h.dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, to := range []string{pipe, h.dir, "/dev/null"} {
		code, _, errs := h.run("", "audit", "witness", "--to", to)
		require.Equal(t, console.ExitUsage, code)
		require.Contains(t, errs, to+" is not a file")
	}
	for command, says := range map[string][]string{
		"witness":     {"FILE", "!COMMAND", "standard input"},
		"acknowledge": {"alarm", "exits with 0", "log_alarm_acknowledged"},
	} {
		for _, word := range says {
			require.Contains(t, h.must("audit", command, "--help"), word)
		}
	}
}
