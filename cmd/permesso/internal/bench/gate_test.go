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
// from the gate's read of the decision to the visible response. A tool that starts a
// process is measured without the start of a process, which is measured beside it.
func BenchmarkLatency(b *testing.B) {
	b.Run("decision read to response visible, none", func(b *testing.B) {
		r := newRig(b)
		took, syncs := r.approvals("none")
		reportU(b, "p50", quantile(took, 0.5), "<=1.5")
		reportU(b, "p99", quantile(took, 0.99), "")
		report(b, "syncs from request to cleanup", syncs, "", "<=4")
	})
	b.Run("decision read to response visible, /bin/true", func(b *testing.B) {
		r := newRig(b)
		took, _ := r.approvals("true")
		spawn := r.spawn()
		reportU(b, "p50 without the spawn", quantile(took, 0.5)-spawn, "<=2")
		reportU(b, "p99", quantile(took, 0.99), "")
		reportU(b, "of which a spawn, p50", spawn, "")
	})
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
		reportU(b, "p50", quantile(took, 0.5), "<=1.5")
	})
	b.Run("every sync takes 10 ms more, none", func(b *testing.B) {
		r := newRig(b)
		r.fs.delay.Store(int64(10 * time.Millisecond))
		took, _ := r.approvals("none")
		reportMS(b, "decision read to response visible, p50", quantile(took, 0.5), "<=30")
		reportMS(b, "request to response, approved at once, p50", quantile(r.whole, 0.5), "<=60")
	})
}

// approvals returns the times from a decision to its response, one after another, and the
// number of syncs from a request to its cleanup.
func (r *rig) approvals(tool string) (took []time.Duration, syncs float64) {
	r.start()
	total := int64(0)
	for n := 0; r.b.Loop(); n++ {
		id, before, began := id(n), r.fs.syncs.Load(), time.Now()
		r.request(n, tool)
		r.Await("request pending", func() bool { return r.exists("pending_approvals", id) && !r.exists("requests", id) })
		require.NoError(r.b, r.approve(id))
		r.Await("settled", func() bool { return !r.exists("pending_approvals", id) })
		total += r.fs.syncs.Load() - before
		seen, out := r.store.times(id)
		took, r.whole = append(took, out.Sub(seen)), append(r.whole, out.Sub(began))
	}
	return took, float64(total) / float64(len(took))
}

// spawn is the median time that the executor needs for the last job, run again alone.
func (r *rig) spawn() time.Duration {
	took := make([]time.Duration, 100)
	for i := range took {
		began := time.Now()
		effect := r.executor.Run(context.Background(), r.executor.last)
		require.Empty(r.b, effect.Error)
		took[i] = time.Since(began)
	}
	return quantile(took, 0.5)
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
			reportRate(b, burstSize, burst(b, true), "<=0.9")
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
		require.NoError(r.b, r.store.Commit(context.Background(), store.Op{Doc: approval.DocPending, Key: key(i), Bytes: r.Seal.Seal(approval.DocPending, key(i), body), Mode: store.Volatile}))
	}
	require.NoError(r.b, r.fs.sync(r.Layout.Home))
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
	require.NoError(r.b, r.fs.sync(r.Layout.Home))
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
	b.Run("start on 100,000 pending", func(b *testing.B) {
		r := newRig(b)
		r.writePendings(10*sweepRequests, time.Hour, "none")
		for b.Loop() {
			began := time.Now()
			r.start()
			r.Await("sweep finished", r.Gate.Idle)
			reportU(b, "", time.Since(began), "<=5000")
			r.Close()
		}
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
			reportU(b, "each", took/sweepRequests, "<=0.45")
			report(b, "fsyncs", float64(r.fs.syncs.Load()-before), "", "")
		}
	})
}
