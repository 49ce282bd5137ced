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
	"github.com/permesso-dev/permesso/security/audit"
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
	first := time.Now().Add(-30 * 24 * time.Hour).UTC()
	for i := range n {
		at := first.Add(time.Duration(i) * 30 * 24 * time.Hour / time.Duration(n))
		for _, e := range historyEntries(i, at) {
			log.Note(e)
		}
	}
	require.NoError(r.b, log.Close())
}

func historyEntries(i int, at time.Time) []approval.Entry {
	e := approval.Entry{
		Time: at, Workspace: workspace, RequestID: id(i), Tool: "x_post", Capability: "channel:out",
		Target: fmt.Sprintf("x.com/user-%d", i%500), ClientID: "ws:" + workspace, SessionID: "sess_123", Rule: "rule 1",
	}
	with := func(event approval.Event, after time.Duration) approval.Entry {
		e := e
		e.Event, e.Time = event, at.Add(after)
		return e
	}
	receipt := approval.Digest([]byte(e.RequestID))
	if i%4 == 0 {
		e.ReceiptSHA256, e.Tool = receipt, "read_calendar"
		return []approval.Entry{with(approval.EventAutoApproved, 0), with(approval.EventExecuted, time.Second)}
	}
	asked := with(approval.EventRequested, 0)
	e.By, e.ByID, e.Via = "ann", "telegram:123456789", "telegram"
	if i%10 == 1 {
		return []approval.Entry{asked, with(approval.EventDeniedByUser, 20*time.Second)}
	}
	e.ReceiptSHA256 = receipt
	return []approval.Entry{asked, with(approval.EventApproved, 10*time.Second), with(approval.EventExecuted, 12*time.Second)}
}
