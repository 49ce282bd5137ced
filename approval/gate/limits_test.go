package gate_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc"
)

// Every limit has its own error, and applies to one workspace.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits approval.Limits
		tool   string
		good   int // so many are accepted, the next is refused
		want   string
	}{
		"waiting": {
			approval.Limits{Pending: 3},
			"run", 3,
			"auto_rejected: limit_pending n=3",
		},
		"asking": {
			approval.Limits{AskPerMinute: 4},
			"run", 4,
			"auto_rejected: limit_asks n=4",
		},
		"all, of requests that ask": {
			approval.Limits{PerMinute: 5},
			"run", 5,
			"auto_rejected: limit_requests n=5",
		},
		"all, of allowed requests": {
			approval.Limits{PerMinute: 5},
			"auto", 5,
			"auto_rejected: limit_requests n=5",
		},
		"the default for pending requests": {
			approval.Limits{},
			"run", 32,
			"auto_rejected: limit_pending n=32",
		},
		"the default for requests that ask": {
			approval.Limits{Pending: 1000},
			"run", 60,
			"auto_rejected: limit_asks n=60",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newRig(t, options{frozenClock: true, inline: true, limits: c.limits})
			var limited []string
			h.gate.Limited = func(ws string) { limited = append(limited, ws) }
			for n := range c.good {
				h.writeRequest(key(n), request(key(n), c.tool, ""))
				h.step(key(n))
				require.NotEqual(t, approval.StatusAutoRejected, h.status(key(n)), n)
			}
			over := key(c.good)
			h.writeRequest(over, request(over, c.tool, ""))
			h.step(over)
			require.Equal(t, c.want, h.outcome(over))
			require.True(t, h.isSettled(over))
			require.Equal(t, []string{personal}, limited, "each refusal is reported once")

			neighbor := keyIn(other, 5000)
			h.writeRequest(neighbor, request(neighbor, c.tool, ""))
			h.step(neighbor)
			require.NotEqual(t, approval.StatusAutoRejected, h.status(neighbor), "limits are per workspace")
		})
	}
}

func (h *rig) status(k approval.Key) approval.Status {
	if r := h.response(k); r != nil {
		return r.Status
	}
	return ""
}

// Limits recover with time.
func TestLimitsRecover(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true, limits: approval.Limits{Pending: 2, AskPerMinute: 6}})
	try := func(n int) approval.Status {
		h.writeRequest(key(n), request(key(n), "run", ""))
		h.step(key(n))
		return h.status(key(n))
	}
	require.Empty(t, try(1))
	require.Empty(t, try(2))
	require.Equal(t, approval.StatusAutoRejected, try(3))
	h.decide(decision(key(1), approval.Denied))
	h.step(key(1))
	require.Empty(t, try(4), "one pending was settled")
	h.reopen()
	require.Equal(t, approval.StatusAutoRejected, try(5), "a restart counts the pendings")
	for n := range 6 {
		k := []approval.Key{key(2), key(4), key(10), key(11), key(12), key(13)}[n]
		if n > 1 {
			require.Empty(t, try(10+n-2))
		}
		h.decide(decision(k, approval.Denied))
		h.step(k)
	}
	for n := range 2 {
		require.Empty(t, try(20+n))
		h.decide(decision(key(20+n), approval.Denied))
		h.step(key(20 + n))
	}
	require.Equal(t, approval.StatusAutoRejected, try(30), "six a minute since the restart")
	h.clock.move(10 * time.Second)
	require.Empty(t, try(31), "one more after ten seconds")
	require.Equal(t, approval.StatusAutoRejected, try(32))
}

func TestSizeLimit(t *testing.T) {
	h := newRig(t, options{inline: true, limits: approval.Limits{RequestSize: 1024}})
	for n, size := range []int{1024, 1025} {
		k := key(n)
		body := request(k, "auto", "")
		for len(body) < size {
			body += " "
		}
		h.writeRequest(k, body)
		h.step(k)
	}
	require.Equal(t, "auto_approved", h.outcome(key(0)))
	require.Equal(t, "malformed: malformed request: refused: the file is too large: a request may have 1024 bytes here", h.outcome(key(1)))
}

// Refusals are limited, too: the last one waits in the folder, costs no write, and is
// refused later.
func TestRefusalsAreLimited(t *testing.T) {
	var writes atomic.Int64
	h := newRig(t, options{frozenClock: true, inline: true, limits: approval.Limits{PerMinute: 6}, store: func(s store.Store) store.Store {
		return before(s, "Commit", "", func(approval.Key) { writes.Add(1) })
	}})
	for name, body := range map[string]func(k approval.Key) string{
		"malformed": func(approval.Key) string { return "{}" },
		"denied":    func(k approval.Key) string { return request(k, "never", "") },
		"unknown":   func(k approval.Key) string { return request(k, "nosuch", "") },
		"too many":  func(k approval.Key) string { return request(k, "auto", "") },
	} {
		t.Run(name, func(t *testing.T) {
			h.reopen() // with unused limits
			base := map[string]int{"malformed": 100, "denied": 200, "too many": 300, "unknown": 400}[name]
			for n := range 30 {
				h.writeRequest(key(base+n), body(key(base+n)))
				h.step(key(base + n))
			}
			answered := func() (count int) {
				for n := range 30 {
					if h.has(approval.DocResponse, key(base+n)) {
						count++
					}
				}
				return count
			}
			first := answered()
			require.LessOrEqual(t, first, 12, "the limits of requests and of refusals")
			require.GreaterOrEqual(t, first, 6)
			before := writes.Load()
			for n := range 30 {
				retryAt, err := h.gate.Step(context.Background(), key(base+n))
				require.NoError(t, err)
				if !h.has(approval.DocResponse, key(base+n)) {
					require.Zero(t, retryAt, "its turn wakes it")
					require.True(t, h.has(approval.DocRequest, key(base+n)))
				}
			}
			require.Equal(t, before, writes.Load(), "nothing is written meanwhile")

			neighbor := keyIn(other, base)
			h.writeRequest(neighbor, "{}")
			h.step(neighbor)
			require.Equal(t, approval.StatusMalformed, h.status(neighbor), "limits are per workspace")

			for range 10 {
				h.clock.move(30 * time.Second)
				for n := range 30 {
					h.step(key(base + n))
				}
			}
			require.Equal(t, 30, answered(), "every request gets a response")
		})
	}
}

// A backlog of requests that may not be refused yet costs nothing until some of them may: no
// event, no rescan and no timer reads them again. Each gets its response in the end.
func TestBacklogWaitsInLine(t *testing.T) {
	const files, perMinute = 300, 60
	var reads atomic.Int64
	h := newRig(t, options{frozenClock: true, limits: approval.Limits{PerMinute: perMinute}, store: func(s store.Store) store.Store {
		return before(s, "Read", approval.DocRequest, func(approval.Key) { reads.Add(1) })
	}})
	for n := range files {
		h.writeRequest(key(n), request(key(n), "nosuch", ""))
	}
	h.reopen()
	h.run(0)
	rescan := func() {
		require.NoError(t, h.gate.Rescan(t.Context(), personal))
		for range 2 { // the second probe comes after what the first one's tick has woken
			require.NoError(t, h.gate.Alive(t.Context()))
		}
		h.waitFor(time.Second, "idle", h.gate.Idle)
	}
	answered := func() int { // and cleaned up
		rescan()
		left, err := os.ReadDir(h.layout.Requests(personal))
		require.NoError(t, err)
		return files - len(left)
	}
	const first = 2 * perMinute // the limits of requests and of refusals
	h.waitFor(time.Second, "the first refusals", func() bool { return answered() == first })

	before := reads.Load()
	for range 5 {
		rescan()
	}
	require.Equal(t, before, reads.Load(), "a rescan reads none that waits")
	h.clock.move(2 * time.Second)
	h.waitFor(time.Second, "two more", func() bool { return answered() == first+2 })
	require.LessOrEqual(t, reads.Load()-before, int64(8), "only those are read")

	for answered() < files {
		was := answered()
		h.clock.move(10 * time.Second)
		h.waitFor(time.Second, "more", func() bool { return answered() > was })
	}
	for n := range files {
		require.NotEqual(t, "none", h.outcome(key(n)))
	}
}

// Another payload under a used id counts as a refusal, too.
func TestRejectedRequestsAreLimited(t *testing.T) {
	h, k := newRig(t, options{frozenClock: true, inline: true, limits: approval.Limits{PerMinute: 6}}), key(1)
	h.ask(k, request(k, "run", ""))
	for range 20 {
		h.writeRequest(k, request(k, "run", `{"other":true}`))
		h.step(k)
	}
	require.Len(t, h.history(k), 7, "one ask, six refusals")
	require.True(t, h.has(approval.DocRequest, k), "the last one waits")
	// Decision and outcome are not delayed.
	h.decide(decision(k, approval.Approved))
	h.step(k)
	require.Equal(t, "approved", h.outcome(k))
	require.Len(t, h.executor.argsOf(k), 1)
	h.clock.move(time.Minute)
	h.step(k)
	require.True(t, h.isSettled(k))
}

// Descriptions of strays are limited, and every stray is described in the end.
func TestStraysAreLimited(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true})
	for n := range 100 {
		require.NoError(t, os.WriteFile(h.layout.Requests(personal)+"/X "+key(n).ID+".json", nil, 0o644))
	}
	remaining := func() int {
		names, err := os.ReadDir(h.layout.Requests(personal))
		require.NoError(t, err)
		return len(names)
	}
	require.NoError(t, h.gate.Rescan(context.Background(), personal))
	require.Equal(t, 40, remaining(), "60 a minute")
	require.NoError(t, h.gate.Rescan(context.Background(), personal))
	require.Equal(t, 40, remaining())
	h.clock.move(time.Minute)
	require.NoError(t, h.gate.Rescan(context.Background(), personal))
	require.Zero(t, remaining())
}

// Handlers have a limited number of slots. A key without one is queued, and runs once
// when one is free, whether allowed or approved. Rescans do not change that.
func TestHandlerSlots(t *testing.T) {
	const all, places = 12, 2
	h := newRig(t, options{limits: approval.Limits{Running: places}})
	open := make(chan struct{})
	var running, most atomic.Int64
	h.executor.do = func(approval.Job) approval.Effect {
		now := running.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		<-open
		running.Add(-1)
		return approval.Effect{Result: approval.Raw(`{}`)}
	}
	h.run(0)
	for n := range all / 2 {
		h.writeRequest(key(n), request(key(n), "auto", ""))
		h.writeRequest(key(100+n), request(key(100+n), "run", ""))
		h.gate.Wake(key(n))
		h.gate.Wake(key(100 + n))
	}
	for n := range all / 2 {
		h.waitFor(5*time.Second, "pending", func() bool { return h.has(approval.DocPending, key(100+n)) })
		h.decide(decision(key(100+n), approval.Approved))
		h.gate.Wake(key(100 + n))
	}
	h.waitFor(5*time.Second, "all slots used", func() bool { return running.Load() == places })
	// A request that runs nothing needs no slot.
	h.writeRequest(key(50), request(key(50), "never", ""))
	h.gate.Wake(key(50))
	h.waitResponse(key(50), 5*time.Second)
	for range 20 {
		require.NoError(t, h.gate.Rescan(context.Background(), personal))
	}
	// Another workspace has its own slots.
	neighbor := keyIn(other, 60)
	h.writeRequest(neighbor, request(neighbor, "auto", ""))
	h.gate.Wake(neighbor)
	h.waitFor(5*time.Second, "the neighbor", func() bool { return running.Load() == places+1 })
	h.waitFor(5*time.Second, "idle", h.gate.Idle)

	close(open)
	for n := range all / 2 {
		h.waitResponse(key(n), 5*time.Second)
		h.waitResponse(key(100+n), 5*time.Second)
		require.Len(t, h.executor.argsOf(key(n)), 1)
		require.Len(t, h.executor.argsOf(key(100+n)), 1)
	}
	require.EqualValues(t, places+1, most.Load())
}

// The next queued key is gone when a slot becomes free: the key behind it gets the
// slot.
func TestFreedSlotIsUsed(t *testing.T) {
	h := newRig(t, options{limits: approval.Limits{Running: 1}})
	open := make(chan struct{})
	h.executor.do = func(job approval.Job) approval.Effect {
		if job.RequestID == key(0).ID {
			<-open
		}
		return approval.Effect{Result: approval.Raw(`{}`)}
	}
	h.run(0)
	for n := range 5 {
		h.writeRequest(key(n), request(key(n), "auto", ""))
		h.gate.Wake(key(n))
		h.waitFor(5*time.Second, "idle", h.gate.Idle)
	}
	for n := 1; n < 4; n++ {
		require.NoError(t, os.Remove(h.requestPath(key(n))))
	}
	close(open)
	h.waitResponse(key(4), 2*time.Second)
	require.Equal(t, 2, h.executor.count())
}

// Two workspaces queue ten thousand keys each, and use all workers. A single request
// of a third one waits for a few of their steps, not for all.
func TestNoWorkspaceStarvesAnother(t *testing.T) {
	t.Parallel()
	const many, third = 10_000, "third"
	var steps, until atomic.Int64
	single, woken := keyIn(other, 1), make(chan struct{})
	var once sync.Once
	h := newRig(t, options{store: func(s store.Store) store.Store {
		return before(s, "Read", approval.DocRecord, func(k approval.Key) { // at least once a step
			if k == single {
				once.Do(func() { until.Store(steps.Load()) })
				return
			}
			steps.Add(1)
			<-woken
		})
	}})
	require.NoError(t, h.layout.Prepare(ipc.OS(), third))
	one := filepath.Join(h.layout.Home, "one") // links are created faster than files
	require.NoError(t, os.WriteFile(one, []byte("{}"), 0o644))
	for n := range many {
		require.NoError(t, os.Link(one, h.requestPath(key(n))))
		require.NoError(t, os.Link(one, h.requestPath(keyIn(third, n))))
	}
	h.writeRequest(single, request(single, "auto", ""))
	h.run(0)
	require.NoError(t, h.gate.Rescan(context.Background(), personal))
	require.NoError(t, h.gate.Rescan(context.Background(), third))
	const workers = 128
	h.waitFor(10*time.Second, "all workers busy", func() bool { return steps.Load() == workers })
	before := steps.Load()
	h.gate.Wake(single)
	close(woken)
	took := h.waitFor(10*time.Second, "the neighbor's response", func() bool { return h.has(approval.DocResponse, single) })
	between := until.Load() - before
	t.Logf("%d other steps came before, the response took %v", between, took)
	require.Less(t, between, int64(500), "only the steps of busy workers come before")
	require.Less(t, until.Load(), int64(2*many), "the other keys are still queued")
}
