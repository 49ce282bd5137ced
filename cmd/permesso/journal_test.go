package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// crashedRig is a HOME after a kill, with an approval that only the journal has: a power cut
// has torn its file.
func crashedRig(t *testing.T) (h *rig, decision string) {
	h = newRig(t, "default", "[tools.slow]\n"+noTrust+"handler = { kind = \"command\", argv = [\"/bin/sleep\", \"600\"] }\n[[rules]]\nmatch = { tool = \"slow\" }\noutcome = \"ask\"\n")
	d := h.serve()
	d.awaitLog(`"serving"`)
	h.must("pause")
	id := h.ask(`{"tool_name":"slow"}`)
	h.awaitPending("default", id)
	h.must("approve", id)
	d.kill()
	decision = filepath.Join(h.layout.Decisions("default"), id+".json")
	require.NoError(t, os.Remove(decision))
	return h, decision
}

// A start without a segment would lose acknowledged approvals without a word.
func TestHomeWithoutASegmentIsRefused(t *testing.T) {
	t.Parallel()
	h, decision := crashedRig(t)
	at := func(name string) string { return filepath.Join(h.layout.Journal(), name) }
	aside := filepath.Join(h.dir, "aside")
	for _, c := range []struct{ move, says string }{
		{at("segment-1"), "journal: segment-1 is missing\nhint: put it back, or restore HOME from a backup"},
		{at("segment-2"), "journal: segment-2 is missing\nhint: put it back, or restore HOME from a backup"},
		{h.layout.Journal(), "journal: segment-1, segment-2, segment-3 and segment-4 are missing\nhint: put it back"},
	} {
		require.NoError(t, os.Rename(c.move, aside))
		d := h.serve()
		d.awaitLog(c.says)
		require.Error(t, d.awaitExit())
		for _, args := range [][]string{{"pending"}, {"deny", "0000000000000001"}, {"backup", filepath.Join(h.dir, "backup")}, {"sweep"}, {"prune"}, {"pause"}, {"status", "--disk"}} {
			code, _, errs := h.run("", args...)
			require.Equal(t, console.ExitError, code, "%v: %s", args, errs)
			require.Contains(t, errs, c.says, "%v", args)
		}
		code, out, _ := h.run("", "doctor", "--quick")
		require.Equal(t, console.ExitErrors, code, out)
		require.Contains(t, out, "journal: segment-")
		if c.move == h.layout.Journal() {
			require.NoError(t, os.RemoveAll(c.move)) // serve creates the folder
		}
		require.NoError(t, os.Rename(aside, c.move))
	}
	h.must("pending")
	require.FileExists(t, decision, "nothing was lost")
}

// A backup is worth nothing without the segment that holds what its files lack.
func TestBackupWithoutASegmentIsRefused(t *testing.T) {
	t.Parallel()
	h, _ := crashedRig(t)
	dir := filepath.Join(h.dir, "backup")
	h.must("backup", dir)
	require.FileExists(t, filepath.Join(dir, "version"))
	h.must("restore", "--check", dir)
	_, out, _ := h.run("", "restore", "--check", dir)
	flags := " --home " + h.layout.Home + " --config " + h.config
	require.Contains(t, out, "\n  permesso doctor"+flags+"; systemctl start permesso  # or permesso serve"+flags+"\n")

	link := filepath.Join(h.dir, "link")
	require.NoError(t, os.Symlink(h.layout.Home, link))
	_, _, errs := h.run("", "backup", filepath.Join(link, "inside"))
	require.Contains(t, errs, "is a part of HOME, or holds it")
	require.NoFileExists(t, filepath.Join(h.layout.Home, "inside"))

	keys := filepath.Join(dir, "keys")
	require.NoError(t, os.Rename(filepath.Join(keys, "mac.key"), filepath.Join(h.dir, "mac.key")))
	_, out, _ = h.run("", "restore", "--check", dir)
	require.Contains(t, out, "there is no key")
	require.Contains(t, out, "put keys/ back from a backup")
	require.Contains(t, out, "Do not put it in place.")
	require.NoError(t, os.Rename(filepath.Join(h.dir, "mac.key"), filepath.Join(keys, "mac.key")))

	require.NoError(t, os.Remove(filepath.Join(dir, "journal", "segment-1")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "records", "default")))
	code, out, _ := h.run("", "restore", "--check", dir)
	require.Equal(t, console.ExitErrors, code, out)
	require.Contains(t, out, "journal: segment-1 is missing")
	require.Contains(t, out, "Do not put it in place.")
}

// A HOME that lost a key gets no other one: that would verify nothing that is there.
func TestLostKeyIsNotReplaced(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", allowHello)
	d := h.serve()
	d.awaitLog("serving")
	h.settleOne()
	d.stop()
	for _, key := range []string{"mac.key", "signing.key"} {
		path := filepath.Join(h.layout.Keys(), key)
		require.NoError(t, os.Rename(path, path+".lost"))
		for _, command := range [][]string{{"init", "--yes"}, {"serve"}} {
			code, out, errs := h.run("", command...)
			require.NotZero(t, code, "%s: %s%s", command, out, errs)
			require.Contains(t, errs, "there is no key")
			require.Contains(t, errs, "put keys/ back from a backup")
		}
		require.NoFileExists(t, path)
		require.NoError(t, os.Rename(path+".lost", path))
	}
	h.serve().awaitLog("serving")
}

// A journal that is removed while the daemon runs is noticed at the next decision, and without
// one within seconds. Nothing is lost: a stop makes the files durable.
func TestJournalRemovedWhileTheDaemonRuns(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", allowHello+"[tools.held]\n"+noTrust+"handler = { kind = \"command\", argv = [\"/bin/true\"] }\n[[rules]]\nmatch = { tool = \"held\" }\noutcome = \"ask\"\n")
	d := h.serve()
	d.awaitLog(`serving`)
	settled := h.settleOne()
	id := h.ask(`{"tool_name":"held"}`)
	h.awaitPending("default", id)
	require.NoError(t, os.RemoveAll(h.layout.Journal()))
	_, out, errs := h.run("", "status", "--disk")
	require.Contains(t, out+errs, "failed      journal: segment-1 was removed while it was in use")
	require.Regexp(t, `\nbefore      4 segments`, out, "these figures are no longer true")
	out = h.must("status")
	require.Contains(t, out, "daemon  running, degraded", "at once, not when the daemon looks next")
	require.Contains(t, out, "⚠ nothing is committed any more: journal: segment-1 was removed while it was in use")
	code, _, errs := h.run("", "approve", id)
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "segment-1 was removed while it was in use")
	require.NotContains(t, errs, "disk sync failed")
	require.Contains(t, errs, "hint: stop the daemon")
	h.requireUndecided(id)
	copied := filepath.Join(h.dir, "copy")
	code, _, errs = h.run("", "backup", copied)
	require.NotZero(t, code)
	require.Contains(t, errs, "segment-1 was removed while it was in use")
	require.NoDirExists(t, copied)
	d.awaitLog("gate degraded: the journal was removed or replaced while the daemon runs")
	_, out, _ = h.run("", "status")
	require.Contains(t, out, "the journal was removed or replaced while the daemon runs")
	code, out, _ = h.run("", "doctor", "--quick")
	require.Equal(t, console.ExitErrors, code)
	require.Contains(t, out, "segment-4 are missing")
	require.Contains(t, out, "the daemon reports: no new requests are accepted: the journal was removed")

	d.signal(syscall.SIGTERM)
	require.Error(t, d.awaitExit())
	require.NoError(t, os.RemoveAll(h.layout.Journal()))
	require.NoError(t, os.Remove(h.layout.Version()))
	d = h.serve()
	d.awaitLog("serving")
	require.Contains(t, h.must("history"), settled[:8])
	h.awaitPending("default", id)
	require.Nil(t, h.status().Alarm)
}
