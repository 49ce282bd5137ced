package crashtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/ipc/crashfs"
)

// # Faults
//
// A disk can fail without a crash. The fault explorer plays every flow with a failing
// Nth file operation, once, for a while or permanently. Then it repairs the disk and
// lets the gate continue without a restart. It checks every promise, that the gate
// serves new requests in all workspaces, and that a power cut and a restart
// afterwards lose nothing. The gate is restarted only if it reports that it needs a
// restart. It may report that only after a failed sync that must not be retried.

// otherWorkspace is for requests after a fault.
const otherWorkspace = "v"

// Requests after a fault.
const (
	idAfter = "cccccccc00000003"
	idOther = "dddddddd00000004"
)

// fault is one way for a file operation to fail.
type fault struct {
	name  string
	err   error
	kinds []crashfs.Kind
}

// diskFull is a disk without a free byte: only what needs more space fails.
const diskFull = "disk full"

var (
	growing    = []crashfs.Kind{crashfs.OpCreate, crashfs.OpWrite, crashfs.OpRename, crashfs.OpMkdir}
	allocating = []crashfs.Kind{
		crashfs.OpCreate, crashfs.OpWrite, crashfs.OpRename, crashfs.OpMkdir,
		crashfs.OpSync, crashfs.OpSyncDir, crashfs.OpSyncFS,
	}
	opening  = []crashfs.Kind{crashfs.OpCreate, crashfs.OpOpen, crashfs.OpSyncDir, crashfs.OpSyncFS}
	changing = []crashfs.Kind{
		crashfs.OpCreate, crashfs.OpWrite, crashfs.OpOverwrite, crashfs.OpTruncate, crashfs.OpRename, crashfs.OpRemove,
		crashfs.OpMkdir, crashfs.OpChmod, crashfs.OpSync, crashfs.OpSyncDir, crashfs.OpSyncFS,
	}
	reading   = []crashfs.Kind{crashfs.OpOpen, crashfs.OpRead, crashfs.OpStat, crashfs.OpReadDir}
	forbidden = []crashfs.Kind{
		crashfs.OpCreate, crashfs.OpOpen, crashfs.OpRename, crashfs.OpRemove, crashfs.OpMkdir,
		crashfs.OpStat, crashfs.OpChmod, crashfs.OpSyncDir, crashfs.OpSyncFS,
	}
)

// faults lists the faults and the operations that can have them.
func faults() []fault {
	return []fault{
		{"EIO", syscall.EIO, slices.Concat(changing, reading)},
		{"ENOSPC", syscall.ENOSPC, allocating},
		{"EDQUOT", syscall.EDQUOT, allocating},
		{"EMFILE", syscall.EMFILE, opening},
		{"EROFS", syscall.EROFS, changing},
		{"EACCES", syscall.EACCES, forbidden},
		{"short write", crashfs.Short{Err: syscall.ENOSPC}, []crashfs.Kind{crashfs.OpWrite}},
		{"torn write", crashfs.Short{Err: syscall.EIO}, []crashfs.Kind{crashfs.OpWrite, crashfs.OpOverwrite}},
	}
}

// The number of operations that fail. A temporary fault ends in the middle of a flow,
// and the gate must notice that.
const (
	once      = 1
	temporary = 25
	permanent = 1 << 30
)

// trial is one run of a flow with one fault.
type trial struct {
	flow   *flow
	fault  fault
	at     int // the first operation of gate and deciders that fails, from 1
	length int // number of operations that may fail: once, temporary or permanent

	ops        int
	failed     []crashfs.Op // the operations that failed
	syncFailed bool         // a sync failed in the kernel: it must not be retried
}

func (t *trial) String() string {
	how := map[int]string{once: "once", temporary: "for a while", permanent: "permanently"}[t.length]
	s := fmt.Sprintf("%s at operation %d, %s", t.fault.name, t.at, how)
	if len(t.failed) > 0 {
		s += ": " + t.failed[0].String()
	}
	return s
}

// fail is the disk's hook. The disks of agents and forgers do not fail.
func (t *trial) fail(op crashfs.Op) error {
	if op.Proc != "gate" && op.Proc != "ann" && op.Proc != "bob" || op.Path == "effect" || op.Path == "after effect" {
		return nil
	}
	t.ops++
	if t.ops < t.at || t.ops >= t.at+t.length || !slices.Contains(t.fault.kinds, op.Kind) {
		return nil
	}
	journal := path.Dir(op.Path) == layout.Journal()
	if journal && t.fault.name == diskFull {
		return nil // its segments have their space
	}
	t.failed = append(t.failed, op)
	synced := op.Kind == crashfs.OpSyncDir || op.Kind == crashfs.OpSyncFS ||
		journal && (op.Kind == crashfs.OpSync || op.Kind == crashfs.OpOverwrite)
	opened := t.fault.name != "EMFILE" && t.fault.name != "EACCES"
	t.syncFailed = t.syncFailed || synced && opened
	return t.fault.err
}

// trialSearch explores every fault of every flow, or every jump of the clock.
type trialSearch struct {
	search
	Every  int // only every nth trial; 0: all
	Starts int // only every nth operation of the gate's start, which is the same in every flow; other ones in each flow; 0: all

	given int // trials, including those left out
}

// Faults plays every flow with every fault.
func (x *trialSearch) Faults(workers int) (*report, error) {
	return x.trials(workers, faults(), once, temporary, permanent)
}

// FullDisk plays every flow with a disk that is full from an operation on.
func (x *trialSearch) FullDisk(workers int) (*report, error) {
	return x.trials(workers, []fault{{diskFull, syscall.ENOSPC, growing}}, permanent)
}

func (x *trialSearch) trials(workers int, faults []fault, lengths ...int) (*report, error) {
	return explore(&x.search, workers, func(trials chan<- *trial) error {
		return x.eachOperation(func(f *flow, at int, kind crashfs.Kind) {
			for _, fault := range faults {
				if !slices.Contains(fault.kinds, kind) {
					continue
				}
				for _, length := range lengths {
					if x.sampled() {
						trials <- &trial{flow: f, fault: fault, at: at, length: length}
					}
				}
			}
		})
	}, x.playFault)
}

// eachOperation calls each for the operations of every flow, numbered from 1.
func (x *trialSearch) eachOperation(each func(f *flow, at int, kind crashfs.Kind)) error {
	for n, f := range allFlows() {
		kinds, started, err := x.operations(f)
		if err != nil {
			return fmt.Errorf("flow %s without a fault: %w", f.Name, err)
		}
		for i, kind := range kinds {
			if i >= started || inSample(i+n, x.Starts) {
				each(f, i+1, kind)
			}
		}
	}
	return nil
}

// sampled counts a trial, and reports whether it is in the sample.
func (x *trialSearch) sampled() bool {
	x.given++
	return inSample(x.given, x.Every)
}

// inSample selects every nth number, and all if every is 0.
func inSample(i, every int) bool { return every < 2 || i%every == 0 }

// operations plays a flow without a fault and lists its operations. The first ones
// are the gate's start.
func (x *trialSearch) operations(f *flow) (kinds []crashfs.Kind, started int, err error) {
	t := &trial{flow: f}
	w, err := x.newSim(f)
	if err != nil {
		return nil, 0, err
	}
	w.disk.Fail = func(op crashfs.Op) error {
		before := t.ops
		_ = t.fail(op)
		if t.ops > before {
			kinds = append(kinds, op.Kind)
		}
		return nil
	}
	s := &env{w: w, clearSlot: slotStaysBlocked}
	if err := s.boot(); err != nil {
		return nil, 0, err
	}
	started = len(kinds)
	for _, do := range f.sequence() {
		if err := do(s); err != nil {
			return nil, 0, err
		}
	}
	return kinds, started, nil
}

func (x *trialSearch) newSim(f *flow) (*sim, error) {
	w, err := x.Config.newSim(f)
	if err != nil {
		return nil, err
	}
	p := w.disk.Process("setup")
	return w, errors.Join(layout.Prepare(p, otherWorkspace), p.SyncFS("/"))
}

// sequence is the flow's script, or its actors in turns.
func (f *flow) sequence() []action {
	if f.Script != nil {
		return f.Script
	}
	names := sortedKeys(f.Actors)
	slices.SortStableFunc(names, func(a, b string) int { return turnOrder(a) - turnOrder(b) })
	var actions []action
	for round := range 3 {
		for _, name := range names {
			if theirs := f.Actors[name]; round < len(theirs) {
				actions = append(actions, theirs[round])
			}
		}
	}
	return actions
}

// turnOrder puts the agent first, then the gate, and the clock last: people can only
// decide what the gate has asked.
func turnOrder(name string) int {
	return map[string]int{"agent": 0, "gate": 1, "clock": 9}[name]
}

// playFault runs one trial.
func (x *trialSearch) playFault(t *trial) error {
	w, err := x.newSim(t.flow)
	if err != nil {
		return err
	}
	w.disk.Fail = t.fail
	s := &env{w: w, clearSlot: slotStaysBlocked, retries: true}
	_ = s.boot() // if it fails, a later action starts it again
	for _, do := range t.flow.sequence() {
		// After an error every actor but the agent retries once.
		if err := do(s); err != nil {
			w.trace = append(w.trace, err.Error())
			if err := do(s); err != nil {
				w.trace = append(w.trace, err.Error())
			}
		}
		w.observe()
		if len(t.failed) > 0 {
			x.verdict(w, x.cut(w), "flow "+t.flow.Name, t.String())
		}
	}
	w.disk.Fail = nil
	bad, restarted := x.recover(s, t)
	x.verdict(w, bad, "flow "+t.flow.Name, t.String())
	x.count(t.flow)
	if restarted {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.report.Restarts++
	}
	return nil
}

// recover repairs the disk and lets the gate continue.
func (x *trialSearch) recover(s *env, t *trial) (bad []string, restarted bool) {
	w := s.w
	w.now = w.now.Add(6 * time.Second)
	if s.daemon == nil {
		if err := s.boot(); err != nil {
			return []string{"F the gate does not start after the fault: " + err.Error()}, false
		}
	}
	if w.flow.pauses() { // otherwise nothing would be served
		if err := resumeAll(s); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return []string{"F the pause does not end: " + err.Error()}, false
		}
	}
	_ = s.daemon.store.Checkpoint(context.Background()) // as the gate does when one is due
	s.daemon.gate.Examine(context.Background())
	if p, ok := s.daemon.gate.Degraded(); ok {
		if !p.Restart {
			return []string{"F the gate does not recover: " + p.Reason}, false
		}
		if !t.syncFailed {
			bad = append(bad, "F the gate asks for a restart without need")
		}
		bad = append(bad, s.takesNoWork()...)
		restarted = true
		s.daemon.proc.Kill()
		if err := s.boot(); err != nil {
			return append(bad, "F the gate does not start after the fault: "+err.Error()), true
		}
	}
	if s.daemon.locked {
		s.daemon.proc.Kill()
		if err := s.boot(); err != nil {
			return append(bad, "F the gate does not start after the prune: "+err.Error()), true
		}
	}
	bad = append(bad, s.settleAll()...)
	bad = append(bad, s.servesNewRequests()...)
	bad = append(bad, x.cut(w)...)
	return append(bad, s.runUntilSettled()...), restarted
}

// cut is a kill or a power cut at this point, on a disk that works afterwards.
func (x *trialSearch) cut(w *sim) (bad []string) {
	h := w.hash()
	if !x.isNew(h) {
		return nil
	}
	for _, d := range []*crashfs.Disk{
		w.disk.Kill(), w.disk.Cut(crashfs.OnlySynced), w.disk.Cut(crashfs.NamesNotData), w.disk.Cut(crashfs.Seeded(h[0])),
	} {
		for _, b := range x.cache.run(w.clone(d), 1) {
			bad = append(bad, strings.Replace(b, " ", " after a crash: ", 1))
		}
	}
	return bad
}
