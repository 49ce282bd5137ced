package crashtest

import (
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
	c := &config{Mutant: m, key: key, signer: signer}
	c.base, err = c.newBase()
	return c, err
}

// worker is one worker of an exploration.
type worker struct {
	*explorer
	rng    *rand.Rand
	beside bool // it plays a recovery beside other processes
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
		w := &worker{explorer: x, rng: rand.New(rand.NewPCG(x.Seed, j.run))} //nolint:gosec // the seed makes runs repeatable
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
		return x.interleave(w, w.flow.Actors, true)
	}
	points, err := x.run(w)
	if err != nil {
		return fmt.Errorf("without a crash: %w", err)
	}
	if x.StopEarly { // first without a second crash
		for _, p := range points {
			x.crash(p, 0)
		}
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
	if err := s.boot(); err != nil {
		return nil, err
	}
	for i, do := range w.flow.Script {
		w.actionIndex = i
		if err := do(s); err != nil {
			return nil, err
		}
		w.observe()
	}
	if s.daemon == nil {
		return points, nil
	}
	return points, s.daemon.stop()
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
	if x.StopEarly {
		h[2] += uint64(depth)
	}
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
	if (depth > 0 || x.StopEarly) && w.flow.decides() && !x.beside && x.rng.IntN(besideEvery) == 0 {
		x.recoverBeside(w.clone(d.Snapshot()))
	}
	x.verdict(w, x.cache.run(w, h[0]^h[1]), "flow "+w.flow.Name) // the lowest bit of h[0] alone is not random enough
	for _, p := range points {
		x.crash(p, depth-1)
	}
}

// besideEvery is after how many crashes others decide before the gate has recovered.
const besideEvery = 4

// recoverBeside starts the gate after a crash while people decide in other processes.
func (x *worker) recoverBeside(w *sim) {
	x.beside = true
	defer func() { x.beside = false }()
	w.trace = append(w.trace, "others decide while the gate starts")
	err := x.interleave(w, map[string][]action{
		"gate": {step, step}, "ann": {decision(approval.Approved, outside)}, "bob": {decision(approval.Denied, outside)},
	}, false)
	if err != nil {
		x.verdict(w, []string{"L recovery beside others: " + err.Error()}, "flow "+w.flow.Name)
	}
}

// testSigningKey signs the receipts of simulated gates, and nothing else.
const testSigningKey = "PRIVATE+KEY+permesso+f4086083+ARkC3fQQ4lWF3vTZR9UNb1sPJrEfvAX9Pg7Qdob44gFT"
