package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

func (h *rig) auditFile(name string) string { return filepath.Join(h.layout.Audit(), name) }

func (h *rig) readAudit(name string) string {
	h.t.Helper()
	b, err := os.ReadFile(h.auditFile(name))
	require.NoError(h.t, err)
	return string(b)
}

func (h *rig) writeAudit(name, content string) {
	h.t.Helper()
	require.NoError(h.t, os.WriteFile(h.auditFile(name), []byte(content), 0o600))
}

func (h *rig) removeAudit(name string) {
	h.t.Helper()
	require.NoError(h.t, os.Remove(h.auditFile(name)))
}

// standsUntilAcknowledged expects an alarm with a text that matches says, in all commands.
func (h *rig) standsUntilAcknowledged(says string) {
	h.t.Helper()
	d := h.serve()
	d.awaitLog("serving")
	h.settleOne()
	require.NotNil(h.t, h.status().Alarm, "no alarm")
	require.Regexp(h.t, says, h.status().Alarm.Reason)
	require.Regexp(h.t, says, h.verifies(console.ExitRefused))
	_, out, _ := h.run("", "status")
	require.Regexp(h.t, says, out)
	_, out, _ = h.run("", "doctor")
	require.Regexp(h.t, says, out)
	d.stop()
	require.Regexp(h.t, says, h.verifies(console.ExitRefused), "it stays")
	d = h.serve()
	d.awaitLog("audit log alarm")
	h.must("audit", "acknowledge", "--reason", "it was me")
	d.kill()
	require.Contains(h.t, h.verifies(console.ExitOK), "it was me")
	d = h.serve()
	d.awaitLog("serving")
	require.Nil(h.t, h.status().Alarm, "the next start does not raise it again")
	d.stop()
	h.verifies(console.ExitOK)
}

// nthLine finds the n-th line, from 1, of a log.
func nthLine(log string, n int) string { return strings.SplitAfter(log, "\n")[n-1] }

// A log that was altered while no daemon ran is never signed in silence.
func TestAlteredLogIsAnAlarm(t *testing.T) {
	t.Parallel()
	alter := func(h *rig) {
		log := h.readAudit("log.jsonl")
		altered := strings.Replace(log, `"event":"auto_approved"`, `"event":"auto_rejected"`, 1)
		require.NotEqual(h.t, log, altered)
		h.writeAudit("log.jsonl", altered)
	}
	for _, c := range []struct {
		why  string
		end  func(h *rig, d *daemonProcess)
		do   func(h *rig)
		says string
	}{
		{"without its checkpoints", stopClean, func(h *rig) { alter(h); h.removeAudit("checkpoints.jsonl") }, "an entry between numbers 1 and [0-9]+ was changed"},
		{"after a kill", killedInASecondLife, func(h *rig) { alter(h); h.removeAudit("checkpoints.jsonl") }, "an entry between numbers 1 and [0-9]+ was changed"},
		{"with its checkpoints", stopClean, alter, "an entry between numbers 1 and [0-9]+ was changed"},
		{"only the checkpoints are gone", stopClean, func(h *rig) { h.removeAudit("checkpoints.jsonl") }, "checkpoints.jsonl is missing or empty, but [0-9]+ entries were signed"},
		{"the checkpoints are empty", killedInASecondLife, func(h *rig) { h.writeAudit("checkpoints.jsonl", "") }, "checkpoints.jsonl is missing or empty, but [0-9]+ entries were signed"},
		{"the checkpoints are shorter", stoppedTwice, func(h *rig) { h.writeAudit("checkpoints.jsonl", nthLine(h.readAudit("checkpoints.jsonl"), 1)) }, "checkpoints.jsonl ends with a checkpoint of [0-9]+ entries, but [0-9]+ were signed"},
		{"an entry was added", stopClean, func(h *rig) {
			log := h.readAudit("log.jsonl")
			n := strings.Count(log, "\n")
			h.writeAudit("log.jsonl", log+fmt.Sprintf(`{"seq":%d,"time":"2026-11-21T12:00:00Z","event":"stopped"}`+"\n", n+1))
		}, "entry [0-9]+ added: neither the journal"},
		{"a line of something else was added", stopClean, func(h *rig) { h.writeAudit("log.jsonl", h.readAudit("log.jsonl")+"hello\n") }, "log.jsonl has an invalid line after number [0-9]+; 1 line from"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			h := newRig(t, "default", allowHello)
			d := h.serve()
			h.settleOne()
			c.end(h, d)
			c.do(h)
			h.standsUntilAcknowledged(c.says)
		})
	}
}

func stopClean(_ *rig, d *daemonProcess) { d.stop() }

func stoppedTwice(h *rig, d *daemonProcess) {
	d.stop()
	d = h.serve()
	h.settleOne()
	d.stop()
}

func killedInASecondLife(h *rig, d *daemonProcess) {
	d.stop()
	d = h.serve()
	h.settleOne()
	d.kill()
}

// A damaged line stops no daemon. The alarm says what is damaged, and no line is removed.
func TestDamagedLogIsAnAlarm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why    string
		line   func(string) string // the new third line
		says   string
		follow int // lines that follow
	}{
		{"removed", func(string) string { return "" }, "log.jsonl has number 4 after number 2", 0},
		{"garbage", func(string) string { return "garbage\n" }, "log.jsonl has an invalid line after number 2", 1},
		{"another number", func(s string) string { return strings.Replace(s, `"seq":3,`, `"seq":7,`, 1) }, "log.jsonl has number 7 after number 2", 1},
		{"without a line feed", strings.TrimSpace, "log.jsonl has an invalid line after number 2", 0},
	} {
		for _, end := range []struct {
			how string
			end func(*rig, *daemonProcess)
		}{{"stopped", stopClean}, {"killed", func(_ *rig, d *daemonProcess) { d.kill() }}, {"killed later", killedInASecondLife}} {
			t.Run(c.why+", "+end.how, func(t *testing.T) {
				t.Parallel()
				h := newRig(t, "default", allowHello)
				d := h.serve()
				h.settleOne()
				end.end(h, d)
				log := h.readAudit("log.jsonl")
				if end.how == "killed" {
					// The journal has all lines: it restores them.
					h.writeAudit("log.jsonl", strings.Replace(log, nthLine(log, 3), c.line(nthLine(log, 3)), 1))
					d = h.serve()
					d.awaitLog("serving")
					require.Nil(t, h.status().Alarm)
					d.stop()
					h.verifies(console.ExitOK)
					return
				}
				n := strings.Count(log, "\n")
				damaged := strings.Replace(log, nthLine(log, 3), c.line(nthLine(log, 3)), 1)
				h.writeAudit("log.jsonl", damaged)
				says := fmt.Sprintf("%s; %s from there on, not counted and not verified, of them [0-9]+ entr(y|ies)", c.says, hints.Plural(n-3+c.follow, "line"))
				h.standsUntilAcknowledged(says)
				require.True(t, strings.HasPrefix(h.readAudit("log.jsonl"), damaged), "never overwritten")
				require.Contains(t, h.readAudit("log-2.jsonl"), `{"seq":3,`)
				require.NotRegexp(t, "crash left", h.verifies(console.ExitOK))
				require.Regexp(t, "log.jsonl: [0-9]+ lines? after number 2, not counted and not verified, of them [0-9]+ entr(y|ies)", h.verifies(console.ExitOK))
			})
		}
	}
}

// A segment that is gone, or empty, stops no daemon either.
func TestLostSegmentIsAnAlarm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why  string
		do   func(h *rig, segment string)
		says string
	}{
		{"removed", (*rig).removeAudit, "log.jsonl is missing; [0-9]+ lines"},
		{"empty", func(h *rig, name string) { h.writeAudit(name, "") }, "log.jsonl does not begin with an entry"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			h := newRig(t, "default", allowHello)
			d := h.serve()
			h.settleOne()
			killedInASecondLife(h, d)
			h.verifies(console.ExitOK)
			require.FileExists(t, h.auditFile("log-2.jsonl"))
			second := h.readAudit("log-2.jsonl")
			d = h.serve()
			d.awaitLog("serving")
			d.stop()
			c.do(h, "log.jsonl")
			h.standsUntilAcknowledged(c.says)
			require.Contains(t, h.readAudit("log-2-1.old"), second)
		})
	}
}

var afterKill = regexp.MustCompile(`entries 5 to [0-9]+ of log.jsonl: not what the journal committed`)

// A start never removes lines from the folder: not those of a copy that was put back.
func TestLogThatIsPutBack(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"killed, over the new one", "killed, instead of the new one", "stopped", "before a start"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			h := newRig(t, "default", allowHello)
			d := h.serve()
			for range 3 {
				h.settleOne()
			}
			d.stop()
			whole, heads := h.readAudit("log.jsonl"), h.readAudit("checkpoints.jsonl")
			n := strings.Count(whole, "\n")
			h.cutLog(4)
			if how == "before a start" {
				require.Contains(t, h.verifies(console.ExitRefused), "entries 5 to")
			} else {
				d = h.serve()
				d.awaitLog("audit log alarm: entries 5 to")
				await(t, h.layout.Audit(), func() bool { // a kill before this entry leaves the log as it was
					names, err := filepath.Glob(filepath.Join(h.layout.Audit(), "*.jsonl"))
					require.NoError(t, err)
					return slices.ContainsFunc(names, func(name string) bool {
						return strings.Contains(h.readAudit(filepath.Base(name)), `"event":"`+string(event.LogAlarm)+`"`)
					})
				})
				if strings.HasPrefix(how, "killed") {
					d.kill()
				} else {
					d.stop()
				}
			}
			if how == "killed, instead of the new one" {
				require.NoError(t, os.RemoveAll(h.layout.Audit()))
				require.NoError(t, os.Mkdir(h.layout.Audit(), 0o700))
			}
			h.writeAudit("log.jsonl", whole)
			h.writeAudit("checkpoints.jsonl", heads)

			d = h.serve()
			d.awaitLog("audit log alarm")
			alarm := h.status().Alarm
			require.NotNil(t, alarm)
			require.NotRegexp(t, "^entries", strings.Replace(alarm.Reason, "entries 5 to "+fmt.Sprint(n)+" of", "", 1))
			verified := fmt.Sprintf("its first %d entries are those that were durable", n)
			switch how {
			case "killed, instead of the new one":
				require.Regexp(t, afterKill, alarm.Reason)
				require.NotContains(t, alarm.Reason, "missing")
			case "killed, over the new one":
				require.Regexp(t, afterKill, alarm.Reason)
				require.Contains(t, alarm.Reason, verified)
			default:
				require.Contains(t, alarm.Reason, verified)
			}
			var kept bool
			names, err := os.ReadDir(h.layout.Audit())
			require.NoError(t, err)
			for _, e := range names {
				b := h.readAudit(e.Name())
				kept = kept || strings.HasPrefix(b, whole)
			}
			require.True(t, kept, "all %d lines are in one file", n)
			d.stop()
			h.standsUntilAcknowledged("put back|not those that the journal committed")
		})
	}
}

// Every kill begins a new segment: verify counts them in one note.
func TestVerifyCountsTheSegmentsOfKills(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", allowHello)
	for range 4 {
		d := h.serve()
		h.settleOne()
		d.kill()
	}
	out := h.verifies(console.ExitOK)
	require.Regexp(t, "note: the last entries of [0-9]+ segments are repeated, each in the next segment", out)
	require.Equal(t, 1, strings.Count(out, "repeated"), out)
	require.NotContains(t, out, "failed write or fsync")
}

// The start that raises an alarm commits the head of the log as it is: a kill soon after the
// acknowledgement raises no second one.
func TestAcknowledgedAlarmDoesNotReturnAfterAKill(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", allowHello)
	d := h.serve()
	h.settleOne()
	d.stop()
	h.removeAudit("checkpoints.jsonl")
	h.writeAudit("log.jsonl", strings.Replace(h.readAudit("log.jsonl"), "auto_approved", "auto_rejected", 1))
	d = h.serve()
	d.awaitLog("audit log alarm")
	h.must("audit", "acknowledge", "--reason", "it was me")
	d.kill()
	d = h.serve()
	d.awaitLog("serving")
	require.Nil(t, h.status().Alarm)
	d.stop()
	h.verifies(console.ExitOK)
}
