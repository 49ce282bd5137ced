package bench

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/approval/store"
)

// BenchmarkLatency submits and approves requests one by one. It measures the times
// from the gate's read of the decision to the visible response.
func BenchmarkLatency(b *testing.B) {
	for tool, limit := range map[string]string{"none": "<=3", "true": "<=6"} {
		b.Run("decision read to response visible, "+tool, func(b *testing.B) {
			r := newRig(b)
			r.start()
			var took []time.Duration
			total := int64(0)
			for n := 0; b.Loop(); n++ {
				id := id(n)
				r.request(n, tool)
				r.Await("request pending", func() bool { return r.exists("pending_approvals", id) && !r.exists("requests", id) })
				require.NoError(b, r.approve(id))
				before := r.fs.syncs.Load()
				r.Await("settled", func() bool { return !r.exists("pending_approvals", id) })
				total += r.fs.syncs.Load() - before
				seen, out := r.store.times(id)
				took = append(took, out.Sub(seen))
			}
			reportU(b, "p50", quantile(took, 0.5), limit)
			reportU(b, "p99", quantile(took, 0.99), "")
			if tool == "none" { // the first fsync of the claim may end before the counter is read
				report(b, "fsyncs at most", float64(total)/float64(len(took)), "", "<=7")
			}
		})
	}
	b.Run("allowed request to response visible", func(b *testing.B) {
		r := newRig(b)
		r.start()
		var took []time.Duration
		for n := 0; b.Loop(); n++ {
			began := time.Now()
			r.request(n, "auto")
			var out time.Time
			r.Await("settled", func() bool { _, out = r.store.times(id(n)); return !out.IsZero() })
			took = append(took, out.Sub(began))
		}
		reportU(b, "p50", quantile(took, 0.5), "")
	})
}

const burstSize = 1000

// burst returns the time from many decisions at once to the last visible response.
func burst(b *testing.B, signed bool) time.Duration {
	b.Helper()
	r := newRig(b, func(o *gatetest.Options) { o.Signed = signed })
	defer r.Close()
	r.writePendings(burstSize, time.Hour, "none")
	r.start()
	time.Sleep(time.Second) // until the start-up sweep has ended
	show := r.writeDecisions(burstSize)
	began := time.Now()
	show()
	r.Await("all settled", func() bool { return r.store.visibleCount() == burstSize })
	return time.Since(began)
}

// BenchmarkBurst decides a thousand pending requests as fast as one process can.
func BenchmarkBurst(b *testing.B) {
	b.Run("approvals, 1,000 decided in a burst", func(b *testing.B) {
		for b.Loop() {
			reportRate(b, burstSize, burst(b, true), ">=900")
		}
	})
	b.Run("the same including Decide, 64 at once", func(b *testing.B) {
		for b.Loop() {
			reportRate(b, burstSize, burstDecided(b), "")
		}
	})
}

func burstDecided(b *testing.B) time.Duration {
	r := newRig(b)
	r.writePendings(burstSize, time.Hour, "none")
	r.start()
	time.Sleep(time.Second)
	began := time.Now()
	errs := make([]error, burstSize)
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < burstSize; i += 64 {
				errs[i] = r.approve(id(i))
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(b, err)
	}
	r.Await("all settled", func() bool { return r.store.visibleCount() == burstSize })
	return time.Since(began)
}

// writePendings writes pendings as the gate does.
func (r *rig) writePendings(n int, left time.Duration, tool string) {
	r.b.Helper()
	t, _ := r.Tool(tool)
	for i := range n {
		p := &approval.Pending{
			Version: approval.Version, RequestID: id(i), ShortID: approval.ShortID(id(i)), Type: approval.TypeAction,
			ToolName: tool, SourceGroup: workspace, RequestData: approval.Raw(`{"text":"Meeting at 5"}`),
			Timestamp: time.Now().UTC(), RequestSHA256: approval.Digest([]byte(id(i))), ToolSHA256: t.SHA256(),
			ClientID: "ws:" + workspace, ActionType: "custom:" + tool, Reversibility: approval.Irreversible,
			Ruling: approval.Ruling{Outcome: approval.Ask, Rule: "default"}, ExpiresAt: time.Now().Add(left).UTC(),
		}
		body, err := p.Encode()
		require.NoError(r.b, err)
		require.NoError(r.b, r.store.Create(context.Background(), approval.DocPending, key(i), r.Seal.Seal(approval.DocPending, key(i), body), store.Volatile))
	}
	require.NoError(r.b, r.fs.SyncFS(r.Layout.Home))
}

// writeDecisions writes approvals under temporary names. show renames all of them
// into their slots.
func (r *rig) writeDecisions(n int) (show func()) {
	r.b.Helper()
	dir := r.Layout.Decisions(workspace)
	for i := range n {
		k := key(i)
		pending, err := r.store.Read(context.Background(), approval.DocPending, k)
		require.NoError(r.b, err)
		d := &approval.Decision{
			Version: approval.Version, RequestID: k.ID, Approved: true, Verdict: approval.Approved, Code: "1", Scope: approval.Once,
			PendingSHA256: approval.Digest(pending), RunBefore: time.Now().Add(time.Hour).UTC(), DecidedBy: "bench", DecidedByID: "local:0",
			Via: "bench", DecidedAt: time.Now().UTC(),
		}
		body, err := d.Encode()
		require.NoError(r.b, err)
		require.NoError(r.b, os.WriteFile(filepath.Join(dir, ".planted-"+k.ID), r.Seal.Seal(approval.DocDecision, k, body), 0o600))
	}
	require.NoError(r.b, r.fs.SyncFS(r.Layout.Home))
	return func() {
		for i := range n {
			require.NoError(r.b, os.Rename(filepath.Join(dir, ".planted-"+id(i)), filepath.Join(dir, id(i)+".json")))
		}
	}
}

const sweepRequests = 10_000

// BenchmarkSweep measures the start on many pending requests.
func BenchmarkSweep(b *testing.B) {
	b.Run("start-up sweep of 10,000 pending", func(b *testing.B) {
		r := newRig(b)
		r.writePendings(sweepRequests, time.Hour, "none")
		var took []time.Duration
		for b.Loop() {
			began := time.Now()
			r.start()
			r.Await("sweep finished", r.Gate.Idle)
			took = append(took, time.Since(began))
			r.Close()
		}
		reportMS(b, "", quantile(took, 0.5), "<=300")
	})
	b.Run("start-up sweep of 10,000 expired", func(b *testing.B) {
		for b.Loop() {
			r := newRig(b)
			r.writePendings(sweepRequests, -time.Minute, "none")
			before, began := r.fs.syncs.Load(), time.Now()
			r.start()
			r.Await("sweep finished", func() bool { return r.store.visibleCount() == sweepRequests && r.Gate.Idle() })
			took := time.Since(began)
			reportMS(b, "", took, "<=5000")
			reportU(b, "each", took/sweepRequests, "")
			report(b, "fsyncs", float64(r.fs.syncs.Load()-before), "", "")
		}
	})
}
