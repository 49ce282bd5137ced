package bench

import (
	"fmt"
	"io"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/audit/audittest"
)

const historyRequests = 100_000 // in the log

// BenchmarkHistory measures complete runs of history commands on a log of 100,000
// requests.
func BenchmarkHistory(b *testing.B) {
	r := newRig(b)
	r.writeHistory(historyRequests)
	for _, args := range [][]string{
		{"history"},
		{"history", "--by", "nomatch"}, // reads all of them
		{"history", "--all", "--json"},
		{"stats", "--json"},
	} {
		b.Run(strings.Join(args, " ")+" over 100,000", func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				c := osexec.Command(bin, append(args, "--home", r.Layout.Home)...)
				c.Stdout = io.Discard
				began := time.Now()
				require.NoError(b, c.Run())
				took = append(took, time.Since(began))
			}
			reportMS(b, "", quantile(took, 0.5), "<=500")
		})
	}
}

// writeHistory writes the log of n requests of the last month: a person decided
// three of four, and denied every tenth.
func (r *rig) writeHistory(n int) {
	log, err := audit.OpenSigned(r.fs, r.Layout.Audit(), time.Now, audit.Keys{})
	require.NoError(r.b, err)
	audittest.Attach(log)
	first := time.Now().Add(-30 * 24 * time.Hour).UTC()
	for i := range n {
		at := first.Add(time.Duration(i) * 30 * 24 * time.Hour / time.Duration(n))
		for _, e := range historyEntries(i, at) {
			log.Note(e)
		}
	}
	require.NoError(r.b, log.Close())
}

func historyEntries(i int, at time.Time) []event.Entry {
	e := event.Entry{
		Time: at, Workspace: workspace, RequestID: id(i), Tool: "x_post", Capability: "channel:out",
		Target: fmt.Sprintf("x.com/user-%d", i%500), ClientID: "ws:" + workspace, SessionID: "sess_123", Rule: "rule 1",
	}
	with := func(kind event.Kind, after time.Duration) event.Entry {
		e := e
		e.Event, e.Time = kind, at.Add(after)
		return e
	}
	receipt := approval.Digest([]byte(e.RequestID))
	if i%4 == 0 {
		e.ReceiptSHA256, e.Tool = receipt, "read_calendar"
		return []event.Entry{with(event.AutoApproved, 0), with(event.Executed, time.Second)}
	}
	asked := with(event.Requested, 0)
	e.By, e.ByID, e.Via = "ann", "telegram:123456789", "telegram"
	if i%10 == 1 {
		return []event.Entry{asked, with(event.DeniedByUser, 20*time.Second)}
	}
	e.ReceiptSHA256 = receipt
	return []event.Entry{asked, with(event.Approved, 10*time.Second), with(event.Executed, 12*time.Second)}
}
