package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
)

// explorer tries crashes, and crashes during recoveries. Which states it reaches
// depends on the seed and, a little, on the timing of its workers.
type explorer struct {
	search
	Seed      uint64
	Budget    int    // minimum of states, if there are that many
	Seeds     int    // random power cuts at every crash, besides the fixed ones
	StopEarly bool   // at the first violation
	First     string // the flow to explore first, with StopEarly; empty: as allFlows lists them
}

// newConfig creates the keys that all simulations of an exploration share.
func newConfig(m mutant) (*config, error) {
	key, err := seal.NewKey([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		return nil, err
	}
	signer, err := receipt.NewSigner(testSigningKey)
	if err != nil {
		return nil, err
	}
	return &config{Mutant: m, key: key, signer: signer}, nil
}

// worker is one worker of an exploration.
type worker struct {
	*explorer
	rng *rand.Rand
}

// job is one flow to play, in one interleaving if it has actors.
type job struct {
	flow *flow
	run  uint64
}

// maxRuns is the maximum number of interleavings of a flow.
const maxRuns = 50_000

// Explore plays every script with a crash before every operation and again during the
// recovery. Then it plays interleavings until the budget is used.
func (x *explorer) Explore(workers int) (*report, error) {
	return explore(&x.search, workers, x.queueJobs, func(j job) error {
		w := &worker{x, rand.New(rand.NewPCG(x.Seed, j.run))} //nolint:gosec // the seed makes runs repeatable
		if err := w.play(j); err != nil {
			return fmt.Errorf("flow %s, run %d: %w", j.flow.Name, j.run, err)
		}
		return nil
	})
}

// perScript is how many interleavings run after each script with StopEarly: some
// violations appear only in scripts, others only in interleavings.
const perScript = 20

// perFirst is how many interleavings of the first flow run before the other flows.
const perFirst = 500

// queueJobs queues the scripts, then interleavings until the budget is used.
func (x *explorer) queueJobs(jobs chan<- job) error {
	flows := allFlows()
	x.queueFirst(jobs, flows)
	run := uint64(0)
	for _, f := range flows {
		if f.Script == nil || x.stopped() {
			continue
		}
		jobs <- job{f, 0}
		if x.StopEarly {
			x.queueInterleavings(jobs, flows, run, run+perScript)
			run += perScript
		}
	}
	x.queueInterleavings(jobs, flows, run, maxRuns)
	return nil
}

func (x *explorer) queueFirst(jobs chan<- job, flows []*flow) {
	i := slices.IndexFunc(flows, func(f *flow) bool { return f.Name == x.First })
	if i < 0 {
		return
	}
	if flows[i].Script != nil {
		jobs <- job{flows[i], 0}
		return
	}
	x.queueInterleavings(jobs, flows[i:i+1], maxRuns, maxRuns+perFirst) // seeds that no later run has
}

func (x *explorer) queueInterleavings(jobs chan<- job, flows []*flow, from, to uint64) {
	for run := from; run < to; run++ {
		if x.spent() && !slices.ContainsFunc(flows, func(f *flow) bool { return f.Actors != nil && !x.explored(f) }) {
			return
		}
		for _, f := range flows {
			if f.Actors == nil {
				continue
			}
			if x.stopped() {
				return
			}
			if !x.spent() || !x.explored(f) {
				jobs <- job{f, run}
			}
		}
	}
}

func (x *explorer) spent() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.report.States >= x.Budget
}

// explored reports that a flow has had its share of a sample.
func (x *explorer) explored(f *flow) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.report.ByFlow[f.Name] > x.Budget/100
}

func (x *explorer) stopped() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.StopEarly && len(x.report.Violations) > 0
}

func (x *worker) play(j job) error {
	w, err := x.Config.newSim(j.flow)
	if err != nil {
		return err
	}
	if j.flow.Actors != nil {
		return x.interleave(w)
	}
	points, err := x.run(w)
	if err != nil {
		return fmt.Errorf("without a crash: %w", err)
	}
	for _, p := range points {
		x.crash(p, 1)
	}
	x.verdict(w, x.cache.run(w, 1), "flow "+w.flow.Name)
	return nil
}

// run plays a script to its end and returns the simulation before every operation.
func (x *worker) run(w *sim) (points []*sim, err error) {
	w.disk.Before = func(op crashfs.Op) { points = append(points, w.snapshotBefore(op)) }
	defer func() { w.disk.Before = nil }()
	s := &env{w: w}
	if s.daemon, err = w.boot(); err != nil {
		return nil, err
	}
	for i, do := range w.flow.Script {
		w.actionIndex = i
		if err := do(s); err != nil {
			return nil, err
		}
		w.observe()
	}
	return points, errors.Join(s.daemon.log.Close(), s.daemon.release())
}

func (w *sim) snapshotBefore(op crashfs.Op) *sim {
	if w.renamed { // only a rename makes a response visible
		w.observe()
	}
	w.renamed = op.Kind == crashfs.OpRename
	c := w.clone(w.disk.Snapshot())
	c.trace = append(c.trace, "crash before "+op.String())
	return c
}

// crash tries a kill and power cuts at one point.
func (x *worker) crash(w *sim, depth int) {
	x.start(w, w.disk.Kill(), "kill", depth)
	ways := crashfs.Ways()
	for range x.Seeds {
		ways = append(ways, crashfs.Seeded(x.rng.Uint64()))
	}
	for _, way := range ways {
		x.start(w, w.disk.Cut(way), way.String(), depth)
	}
}

// start starts the gate on one disk state and runs it to the end. If depth is not
// zero, it also crashes before every operation of the recovery.
func (x *worker) start(from *sim, d *crashfs.Disk, how string, depth int) {
	// Beyond the budget, take a sample of every flow.
	if x.stopped() || x.spent() && x.explored(from.flow) && x.rng.IntN(20) > 0 {
		return
	}
	w := from.clone(d)
	w.trace = append(w.trace, how)
	h := w.hash()
	if !x.isNew(h) {
		return
	}
	x.count(w.flow)
	var points []*sim
	if depth > 0 {
		again := w.clone(d.Snapshot())
		again.disk.Before = func(op crashfs.Op) { points = append(points, again.snapshotBefore(op)) }
		x.verdict(again, again.settleAgain(), "flow "+w.flow.Name)
		again.disk.Before = nil
	}
	x.verdict(w, x.cache.run(w, h[0]^h[1]), "flow "+w.flow.Name) // the lowest bit of h[0] alone is not random enough
	for _, p := range points {
		x.crash(p, depth-1)
	}
}

// testSigningKey signs the receipts of simulated gates, and nothing else.
const testSigningKey = "PRIVATE+KEY+permesso+f4086083+ARkC3fQQ4lWF3vTZR9UNb1sPJrEfvAX9Pg7Qdob44gFT"

// operationLock lets one actor at a time use the disk.
type operationLock struct {
	arrive chan string // an actor waits before its next operation
	finish chan result
	next   map[string]chan struct{}
}

type result struct {
	who string
	err error
}

func (l *operationLock) wait(who string) {
	l.arrive <- who
	<-l.next[who]
}

// interleave plays a flow with several actors. Random numbers choose the actor of the
// next operation and when the gate is killed. A power cut may come before every
// operation.
func (x *worker) interleave(w *sim) error {
	rng := x.rng
	l := &operationLock{arrive: make(chan string), finish: make(chan result), next: map[string]chan struct{}{}}
	s := &env{w: w, yield: l.wait}
	s.clearSlot = func(context.Context, approval.Key) error { return nil } // the next attempt yields by itself
	var err error
	if s.daemon, err = w.boot(); err != nil {
		return err
	}
	actors := sortedKeys(w.flow.Actors)
	for _, name := range actors {
		l.next[name] = make(chan struct{})
	}
	w.disk.Before = func(op crashfs.Op) { l.wait(op.Proc) }
	w.disk.BeforeRead = w.disk.Before
	for _, name := range actors {
		go func() { l.finish <- result{name, s.runActions(w.flow.Actors[name])} }()
	}
	killAt := rng.IntN(200) // often after the end: then there is no kill
	return x.schedule(s, l, len(actors), killAt)
}

func (s *env) runActions(actions []action) error {
	for _, do := range actions {
		err := do(s)
		if errors.Is(err, crashfs.ErrKilled) {
			// Only the gate is killed alone, and it is started again.
			s.w.trace = append(s.w.trace, "gate starts again")
			if s.daemon, err = s.w.boot(); err == nil {
				err = s.daemon.settle()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// schedule waits until every actor waits or has finished, then lets one continue.
func (x *worker) schedule(s *env, l *operationLock, running, killAt int) error {
	rng := x.rng
	waiting := []string{}
	var failed error
	for n := 0; running > 0; n++ {
		for len(waiting) < running {
			select {
			case who := <-l.arrive:
				waiting = append(waiting, who)
			case r := <-l.finish:
				running--
				if r.err != nil && !errors.Is(r.err, crashfs.ErrKilled) {
					failed = errors.Join(failed, fmt.Errorf("%s: %w", r.who, r.err))
				}
			}
		}
		if running == 0 {
			break
		}
		s.w.observe()
		if rng.IntN(6) == 0 {
			x.cutNow(s.w)
		}
		if n == killAt {
			s.daemon.proc.Kill()
			s.w.trace = append(s.w.trace, fmt.Sprintf("kill at %d", n))
		}
		slices.Sort(waiting)
		i := rng.IntN(len(waiting))
		who := waiting[i]
		waiting = slices.Delete(waiting, i, i+1)
		l.next[who] <- struct{}{}
	}
	s.w.disk.Before, s.w.disk.BeforeRead = nil, nil
	s.daemon.proc.Kill()
	if failed == nil {
		x.start(s.w, s.w.disk.Kill(), "end of run", 0)
	}
	return failed
}

// cutNow is a power cut, or a kill of all processes, at this point.
func (x *worker) cutNow(w *sim) {
	rng := x.rng
	ways := append(crashfs.Ways(), crashfs.Seeded(rng.Uint64()))
	way := ways[rng.IntN(len(ways))]
	if rng.IntN(4) == 0 {
		x.start(w, w.disk.Kill(), "kill all", 1)
		return
	}
	x.start(w, w.disk.Cut(way), way.String(), 1)
}
