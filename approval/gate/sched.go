package gate

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

const (
	workers      = 128 // concurrent steps; they wait for the disk, not for a CPU
	perWorkspace = 96  // the most that one workspace may use
	tickInterval = 5 * time.Second
	minTick      = 20 * time.Millisecond
)

// scheduler lets one worker at a time step a key, and gives every workspace the same
// number of turns, however many keys it has queued.
type scheduler struct {
	mu        sync.Mutex
	cond      *sync.Cond
	queues    map[string][]approval.Key
	turns     []string // workspaces with a queue; the first is next
	queued    map[approval.Key]bool
	busy      map[approval.Key]bool
	rewake    map[approval.Key]bool // woken while busy
	busyCount map[string]int        // busy keys by workspace
	failed    map[approval.Key]int
	tick      chan struct{}
	full      chan struct{} // a commit found the journal full
	next      atomic.Int64  // when the ticker runs next, in Unix nanoseconds
	lines     time.Time     // when the ticker last woke the lines
	probes    []chan struct{}
	closed    bool
}

// probeKey belongs to no workspace.
var probeKey = approval.Key{}

func (q *scheduler) init() {
	q.cond = sync.NewCond(&q.mu)
	q.queues, q.queued = map[string][]approval.Key{}, map[approval.Key]bool{}
	q.busy, q.rewake = map[approval.Key]bool{}, map[approval.Key]bool{}
	q.busyCount, q.failed = map[string]int{}, map[approval.Key]int{}
	q.tick, q.full = make(chan struct{}, 1), make(chan struct{}, 1)
}

func (q *scheduler) push(k approval.Key) {
	q.queued[k] = true
	if len(q.queues[k.Workspace]) == 0 {
		q.turns = append(q.turns, k.Workspace)
	}
	q.queues[k.Workspace] = append(q.queues[k.Workspace], k)
	q.cond.Signal()
}

// pop blocks until a key is ready; ok is false when the gate stops.
func (q *scheduler) pop() (k approval.Key, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.closed {
			return k, false
		}
		if k, ok := q.takeNext(); ok {
			return k, true
		}
		q.cond.Wait()
	}
}

func (q *scheduler) takeNext() (approval.Key, bool) {
	for i, ws := range q.turns {
		if q.busyCount[ws] >= perWorkspace {
			continue
		}
		queue := q.queues[ws]
		k := queue[0]
		q.turns = append(q.turns[:i:i], q.turns[i+1:]...)
		if len(queue) == 1 {
			delete(q.queues, ws)
		} else {
			q.queues[ws] = queue[1:]
			q.turns = append(q.turns, ws)
		}
		delete(q.queued, k)
		if len(q.queued) == 0 {
			q.queued = map[approval.Key]bool{} // a map never shrinks
		}
		q.busy[k] = true
		q.busyCount[ws]++
		return k, true
	}
	return approval.Key{}, false
}

// finishStep returns a key; failures counts its failures in a row. rest is called
// with that count before another worker can take the key, so that what rest records
// is never older than the next step. rest may be nil.
func (q *scheduler) finishStep(k approval.Key, failed bool, rest func(failures int)) (failures int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busyCount[k.Workspace]--; q.busyCount[k.Workspace] == 0 {
		delete(q.busyCount, k.Workspace)
	}
	if failed {
		q.failed[k]++
	} else {
		delete(q.failed, k)
	}
	failures = q.failed[k]
	if rest != nil {
		rest(failures)
	}
	delete(q.busy, k)
	if q.rewake[k] {
		delete(q.rewake, k)
		if !failed {
			q.push(k)
		}
	}
	q.cond.Signal()
	return failures
}

// Run steps keys until ctx ends. Then it starts nothing new, waits for running
// handlers, writes their outcomes, and returns.
func (g *Gate) Run(ctx context.Context, keys []approval.Key) error {
	for _, k := range keys {
		g.enqueue(k)
	}
	var wg sync.WaitGroup
	unending := context.WithoutCancel(ctx) // the end of ctx stops no step
	for range workers {
		wg.Go(func() { g.worker(unending) })
	}
	tickCtx, stopTicking := context.WithCancel(unending)
	wg.Go(func() { g.ticker(tickCtx) })
	wg.Go(func() { g.checkpoints(tickCtx) })
	wg.Go(func() { g.sweeps(tickCtx) })
	<-ctx.Done()
	g.mu.Lock()
	g.stopping = true
	g.mu.Unlock()
	g.work.Wait()
	g.drain()
	stopTicking()
	g.sched.mu.Lock()
	g.sched.closed = true
	g.sched.cond.Broadcast()
	g.sched.mu.Unlock()
	wg.Wait()
	g.rejectAll()
	return nil
}

// drain waits until every outcome is written, at most ten seconds.
func (g *Gate) drain() {
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) && !g.isStopped() {
		remaining := g.outcomes.keys()
		if len(remaining) == 0 {
			return
		}
		g.wakeAll(remaining)
		time.Sleep(minTick)
	}
	g.Log.Error().Msg("outcomes not written before the stop; they will be reported as interrupted")
}

func (g *Gate) worker(ctx context.Context) {
	for {
		k, ok := g.sched.pop()
		if !ok {
			return
		}
		if k == probeKey {
			g.answerProbes()
			continue
		}
		retryAt, err := g.step(ctx, k)
		failures := g.sched.finishStep(k, err != nil, func(failures int) {
			if err != nil {
				retryAt = g.backoff(failures)
			}
			g.index.scheduleRetry(k, retryAt)
		})
		// A failing disk fails every key, and setHealth has logged it.
		if err != nil && !g.degraded() && (failures == 1 || failures%20 == 0) {
			g.Log.Error().Str("ws", k.Workspace).Str("id", k.ID).Int("failures", failures).Err(err).Msg("step failed")
		}
		g.wakeTicker(retryAt)
		g.wakeQueued(k.Workspace)
	}
}

// wakeTicker wakes the ticker if at is earlier than its next run.
func (g *Gate) wakeTicker(at time.Time) {
	if at.IsZero() || at.UnixNano() >= g.sched.next.Load() {
		return
	}
	select {
	case g.sched.tick <- struct{}{}:
	default:
	}
}

// ticker wakes keys that are due. It sleeps a few seconds at most, because timers
// stop while a machine is suspended and deadlines do not.
func (g *Gate) ticker(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-g.sched.tick:
		}
		g.checkHealth(context.WithoutCancel(ctx))
		// A time that is set after this line may miss takeDue; the maximum makes it
		// wake the ticker.
		g.sched.next.Store(math.MaxInt64)
		g.queueProbe()
		now := g.Now()
		keys, next := g.index.takeDue(now)
		g.wakeAll(keys)
		wait := min(tickInterval, g.tickLines(now))
		if !next.IsZero() {
			wait = min(wait, max(next.Sub(now), minTick))
		}
		g.sched.next.Store(now.Add(wait).UnixNano())
		timer.Reset(wait)
	}
}

// checkpoints makes a checkpoint when the store needs one, or when a key waits for room in the
// journal; after a failure, a second later.
func (g *Gate) checkpoints(ctx context.Context) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	full := g.sched.full
	for {
		select {
		case <-ctx.Done():
			return
		case <-second.C:
			if full != nil && !g.Store.NeedsCheckpoint() {
				continue
			}
		case <-full:
		}
		if full = g.sched.full; g.checkpoint(ctx) != nil {
			full = nil
		}
	}
}

func (g *Gate) checkpoint(ctx context.Context) error {
	if g.isStopped() {
		return store.ErrRestart
	}
	err := g.Store.Checkpoint(context.WithoutCancel(ctx))
	if err != nil {
		g.reportError(ctx, err)
		if !g.degraded() {
			g.Log.Error().Err(err).Msg("checkpoint failed")
		}
	}
	return err
}

// askCheckpoint frees room in the journal.
func (g *Gate) askCheckpoint(ctx context.Context) {
	if g.Inline {
		_ = g.checkpoint(ctx) // it has been reported
		return
	}
	select {
	case g.sched.full <- struct{}{}:
	default: // asked already
	}
}

// tickLines wakes the lines once in lineInterval, and returns when to call it again.
func (g *Gate) tickLines(now time.Time) (wait time.Duration) {
	since := now.Sub(g.sched.lines)
	if since >= 0 && since < lineInterval { // less than 0: the clock was set back
		return lineInterval - since
	}
	g.sched.lines = now
	if g.wakeLines(now) {
		return lineInterval
	}
	return tickInterval
}

// Alive sends a probe the way of every request: through the ticker and the queue to a
// worker. It returns when a worker has taken the probe, or ctx's error: then the gate
// makes no progress.
func (g *Gate) Alive(ctx context.Context) error {
	through := make(chan struct{})
	g.sched.mu.Lock()
	g.sched.probes = append(g.sched.probes, through)
	g.sched.mu.Unlock()
	select {
	case g.sched.tick <- struct{}{}:
	default: // the ticker runs anyway
	}
	select {
	case <-through:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for probe: %w", ctx.Err())
	}
}

func (g *Gate) queueProbe() {
	q := &g.sched
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.probes) == 0:
	case q.busy[probeKey]:
		q.rewake[probeKey] = true // this probe came after the one that is being answered
	case !q.queued[probeKey]:
		q.push(probeKey)
	}
}

// answerProbes runs in a worker. It takes the locks that every step needs, then
// answers.
func (g *Gate) answerProbes() {
	g.keyPaused(probeKey)
	g.index.isPending(probeKey)
	g.sched.mu.Lock()
	probes := g.sched.probes
	g.sched.probes = nil
	g.sched.mu.Unlock()
	for _, p := range probes {
		close(p)
	}
	g.sched.finishStep(probeKey, false, nil)
}

// Idle reports that no key is queued or busy.
func (g *Gate) Idle() bool {
	q := &g.sched
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.busy) == 0 && len(q.queued) == 0
}
