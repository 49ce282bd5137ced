package crashtest

import (
	"fmt"
	"strings"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/security/audit"
)

// checkAudit is I7: the log verifies, and every effect has its entry.
func (w *sim) checkAudit() (bad []string) {
	approved := map[string]bool{}
	last, pruned := int64(0), false
	err := audit.Entries(w.disk.Process("auditor"), layout.Audit(), func(e event.Entry) error {
		if e.Seq != last+1 {
			bad = append(bad, fmt.Sprintf("I7 entry %d follows %d", e.Seq, last))
		}
		last = e.Seq
		pruned = pruned || e.Event == event.Pruned
		if pruned && e.Event == event.Forged && strings.Contains(e.Reason, "response") {
			bad = append(bad, "L a response that pruning left was reported as forged")
		}
		if e.Event == event.Approved || e.Event == event.AutoApproved {
			approved[e.RequestID] = true
		}
		return nil
	})
	if err != nil {
		bad = append(bad, "I7 the log does not verify: "+err.Error())
	}
	for _, e := range w.effects {
		if !approved[e.id] {
			bad = append(bad, "I7 an effect without an audit entry")
		}
	}
	return append(bad, w.checkLog()...)
}

// checkLog compares the log with what was committed, and with the heads that cards showed.
func (w *sim) checkLog() (bad []string) {
	p := w.disk.Process("auditor")
	if alarm, err := audit.ReadAlarm(p, layout.Audit()); alarm != nil || err != nil {
		bad = append(bad, fmt.Sprintf("I7 alarm: %v %v", alarm, err))
	}
	lines, err := (&audit.Tail{FS: p, Dir: layout.Audit()}).Last(1 << 20)
	if err != nil {
		return append(bad, "I7 the log cannot be read: "+err.Error())
	}
	there := map[int64]string{}
	for _, l := range lines {
		there[l.Seq] = string(l.Raw) + "\n"
	}
	for seq, line := range w.committed {
		if there[seq] != line {
			bad = append(bad, fmt.Sprintf("I7 a committed entry is missing or differs: %s, now %s", line, there[seq]))
		}
	}
	if len(w.heads) > 0 {
		check := &audit.Check{FS: p, Dir: layout.Audit(), Keys: w.auditKeys().Known, Feet: w.heads}
		if _, err := check.Run(); err != nil {
			bad = append(bad, "I7 a signed head that was shown is contradicted: "+err.Error())
		}
	}
	return bad
}
