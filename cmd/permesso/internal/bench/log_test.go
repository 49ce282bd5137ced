package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/audit/audittest"
)

// BenchmarkAuditShare compares bursts with and without tree and checkpoints in the
// log. They alternate, and the order in a pair changes: the speed of a machine varies
// over minutes by more than the target.
func BenchmarkAuditShare(b *testing.B) {
	b.Run("tree and checkpoints, added to the burst", func(b *testing.B) {
		for b.Loop() {
			took := map[bool][]time.Duration{}
			for i := range 7 {
				for j := range 2 {
					signed := (i+j)%2 == 0
					took[signed] = append(took[signed], burst(b, signed))
				}
			}
			with, without := quantile(took[true], 0.5), quantile(took[false], 0.5)
			report(b, "", 100*(with.Seconds()/without.Seconds()-1), "%", "<=5")
			reportMS(b, "burst without them", without, "")
		}
	})
}

const logEntries = 1_000_000

// BenchmarkAudit measures the verification of a log of a million entries, four for
// each request.
func BenchmarkAudit(b *testing.B) {
	r := newRig(b)
	keys := audit.Keys{Signer: r.Receipts.NoteSigner(), Known: r.Verifier.Known()}
	open := func() *audit.Log {
		log, err := audit.OpenSigned(r.fs, r.Layout.Audit(), time.Now, keys)
		require.NoError(b, err)
		audittest.Attach(log)
		return log
	}
	log := open()
	for i := range logEntries {
		log.Note(historyEntry(i))
		if i%1000 == 999 {
			require.NoError(b, log.Checkpoint())
		}
	}
	require.NoError(b, log.Close())
	b.Run("1,000,000 audit entries verified", func(b *testing.B) {
		for b.Loop() {
			began := time.Now()
			report, err := (&audit.Check{FS: r.fs, Dir: r.Layout.Audit(), Keys: keys.Known, Progress: func(int64, int64) {}}).Run()
			took := time.Since(began)
			require.NoError(b, err)
			require.EqualValues(b, logEntries, report.Entries)
			require.EqualValues(b, logEntries, report.Signed)
			reportMS(b, "", took, "<=10000")
		}
	})
	b.Run("open such a log", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			began := time.Now()
			log := open()
			took = append(took, time.Since(began))
			require.NoError(b, log.Close())
		}
		reportMS(b, "", quantile(took, 0.5), "")
	})
}

func historyEntry(i int) event.Entry {
	e := event.Entry{Workspace: workspace, RequestID: id(i / 4), Tool: "none", Rule: "default"}
	switch i % 4 {
	case 0:
		e.Event, e.Target, e.ActionType = event.Requested, "x.com/ricardo", "send_message"
	case 1:
		e.Event, e.By, e.Via, e.ReceiptSHA256 = event.Approved, "telegram:123456789", "telegram", approval.Digest([]byte(id(i)))
	case 2:
		e.Event, e.By, e.Via, e.ReceiptSHA256 = event.Executed, "telegram:123456789", "telegram", approval.Digest([]byte(id(i-1)))
	default:
		e.Event, e.Reason = event.DeniedByUser, "Denied by user: perché no"
	}
	return e
}
