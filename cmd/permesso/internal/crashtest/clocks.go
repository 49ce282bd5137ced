package crashtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/move"
	"github.com/permesso-dev/permesso/ipc/crashfs"
)

// # Clocks
//
// A clock can be wrong by years and be corrected later. The clock explorer plays
// every flow with a clock jump before its Nth operation. The clock stays wrong, or is
// corrected with the next action. Then it checks every promise, and that every run
// was in time by the clock at its start.

const tenYears = 10 * 365 * 24 * time.Hour

// jump is one clock change.
type jump struct {
	flow     *flow
	at       int // before which operation, from 1
	by       time.Duration
	restored bool // with the next action
}

func (j jump) String() string {
	return fmt.Sprintf("flow %s: %v before operation %d, back %v", j.flow.Name, j.by, j.at, j.restored)
}

// Clocks plays every flow with every jump.
func (x *trialSearch) Clocks(workers int) (*report, error) {
	return explore(&x.search, workers, func(jumps chan<- jump) error {
		return x.eachOperation(func(f *flow, at int, _ crashfs.Kind) {
			for _, by := range []time.Duration{tenYears, -tenYears} {
				for _, back := range []bool{false, true} {
					if x.sampled() {
						jumps <- jump{f, at, by, back}
					}
				}
			}
		})
	}, x.playJump)
}

func (x *trialSearch) playJump(j jump) error {
	w, err := x.Config.newSim(j.flow)
	if err != nil {
		return err
	}
	w.gateWasDown = true // an approval may expire before it runs
	ops, off := 0, time.Duration(0)
	w.disk.Fail = func(crashfs.Op) error {
		if ops++; ops == j.at {
			off = j.by
			w.now = w.now.Add(off)
		}
		return nil
	}
	s := &env{w: w, clearSlot: slotStaysBlocked, retries: true}
	err = s.boot()
	for _, do := range j.flow.sequence() {
		err = errors.Join(err, do(s))
		w.observe()
		if j.restored && off != 0 {
			w.now, off = w.now.Add(-off), 0
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", j, err)
	}
	w.disk.Fail = nil
	bad := w.checkExpiredStays(s)
	// However wrong the clock was, every request must end.
	w.now = w.now.Add(3 * tenYears)
	for range 2 {
		w.now = w.now.Add(move.IncompleteGrace)
		bad = append(bad, settleError(s.daemon.settle())...)
		w.observe()
	}
	bad = append(bad, w.checkPromises()...)
	x.verdict(w, append(bad, w.ranLate...), j.String())
	x.count(j.flow)
	return nil
}

// checkExpiredStays sets the clock back to before every deadline and tries to approve
// what has ended. Nothing may run or change.
func (w *sim) checkExpiredStays(s *env) (bad []string) {
	before := map[string]approval.Status{}
	for _, id := range w.flow.ids() {
		if rec, _ := w.record(approval.Key{Workspace: workspace, ID: id}); rec != nil {
			before[id] = rec.Status
		}
	}
	effects := len(w.effects)
	now := w.now
	w.now = start.Add(-tenYears)
	for id, st := range before {
		k := approval.Key{Workspace: workspace, ID: id}
		if err := w.decide(w.disk.Process("ann"), k, approval.Approved, slotStaysBlocked); err == nil {
			bad = append(bad, fmt.Sprintf("I4 approved though %s", st))
		}
		bad = append(bad, settleError(s.daemon.settle())...)
		if rec, _ := w.record(k); rec == nil || rec.Status != st {
			bad = append(bad, fmt.Sprintf("I5 the outcome changed with the clock: it was %s", st))
		}
	}
	if len(before) == len(w.flow.ids()) && len(w.effects) != effects {
		bad = append(bad, "I4 an ended request ran after the clock was set back")
	}
	w.now = now
	return bad
}

// checkRunTime compares the time of a run with its approval's RunBefore.
func (w *sim) checkRunTime(k approval.Key) {
	b, _ := w.disk.File(layout.Receipts(k.Workspace) + "/" + k.ID + ".json")
	body, err := w.config.key.Open(approval.DocClaim, k, b)
	if err != nil {
		return // the second claim of an idempotent tool may be the only one
	}
	c, err := approval.ParseClaim(body, k)
	if err != nil || len(c.Decision) == 0 || string(c.Decision) == "null" {
		return
	}
	body, err = w.config.key.Open(approval.DocDecision, k, c.Decision)
	if err != nil {
		return
	}
	d, err := approval.ParseDecision(body, k)
	if err == nil && w.now.After(d.RunBefore.Add(5*time.Minute)) { // a receipt's lifetime
		w.ranLate = append(w.ranLate, "I4 it ran after RunBefore")
	}
}
