package crashtest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// search is what all explorations share.
type search struct {
	Config   *config
	NoCache  bool             // run every state to its end, even if its verdict is known
	Progress func(states int) // called for every new state; nil: not

	mu     sync.Mutex
	seen   map[[3]uint64]bool
	cache  verdictCache
	report report
}

// report is the result of an exploration.
type report struct {
	States     int            // different disk states from which the gate was started
	Violations map[string]int // by the beginning of the message
	Example    map[string][]string
	ByFlow     map[string]int
	Trials     int
	Restarts   int // trials in which the gate reported that it needs a restart
}

func (r *report) String() string {
	s := fmt.Sprintf("%d disk states, %d kinds of violation\n", r.States, len(r.Violations))
	for _, v := range sortedKeys(r.Violations) {
		s += fmt.Sprintf("  %s (%d)\n", v, r.Violations[v])
		for _, line := range r.Example[v] {
			s += "      " + line + "\n"
		}
	}
	return s
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// explore lets workers play the jobs that queue passes on.
func explore[J any](x *search, workers int, queue func(chan<- J) error, play func(J) error) (*report, error) {
	x.seen = map[[3]uint64]bool{}
	x.cache = verdictCache{verdicts: map[futureKey][]string{}, disabled: x.NoCache}
	x.report = report{Violations: map[string]int{}, Example: map[string][]string{}, ByFlow: map[string]int{}}
	jobs := make(chan J)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for j := range jobs {
				errs[i] = errors.Join(errs[i], play(j))
			}
		})
	}
	err := queue(jobs)
	close(jobs)
	wg.Wait()
	return &x.report, errors.Join(append(errs, err)...)
}

// isNew reports and counts a state that was not reached before.
func (x *search) isNew(h [3]uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.seen[h] {
		return false
	}
	x.seen[h] = true
	x.report.States++
	if x.Progress != nil {
		x.Progress(x.report.States)
	}
	return true
}

// count counts a trial of a flow.
func (x *search) count(f *flow) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.report.Trials++
	x.report.ByFlow[f.Name]++
}

// verdict records violations, and of each kind the first one: what was tried, its message, and the trace of w,
// which may be nil.
func (x *search) verdict(w *sim, bad []string, tried ...string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range bad {
		kind := b[:min(len(b), 60)]
		x.report.Violations[kind]++
		if x.report.Example[kind] != nil {
			continue
		}
		x.report.Example[kind] = append(tried, b)
		if w != nil {
			x.report.Example[kind] = append(x.report.Example[kind], w.trace...)
		}
	}
}

// # Verdicts
//
// Crashes leave different disks, but most differences are gone as soon as a gate has
// opened HOME: it removes temporary files, and a sync makes everything visible
// durable. From there on, equal simulations have the same future, because a new gate
// has nothing in memory. The same holds when a gate has settled all keys and stopped.
// So a run that reaches a known state stops there, with the known verdict.

// verdictCache knows the verdicts of states that were run to the end.
type verdictCache struct {
	mu       sync.Mutex
	verdicts map[futureKey][]string
	disabled bool // run every state to its end
}

// futureKey determines the future of a simulation.
type futureKey struct {
	sim    [3]uint64
	choice uint64
	at     checkpoint
}

// checkpoint is a point at which simulations are compared.
type checkpoint uint8

const (
	homeOpened   checkpoint = iota // HOME is open, and the gate has read nothing yet
	firstSettled                   // the first gate has settled all keys and stopped
)

// errKnownFuture ends a start on a simulation whose future is known.
var errKnownFuture = errors.New("the future is known")

// choices is the number of different futures: every later action takes the remainder
// of choice by 2, 3 or 5.
const choices = 2 * 3 * 5

// run is sim.runToEnd, or the known verdict.
func (l *verdictCache) run(w *sim, choice uint64) []string {
	var passed []futureKey
	var cached []string
	bad, known := w.runToEnd(choice, func(m checkpoint) bool {
		h := futureKey{w.fingerprint(), choice % choices, m}
		passed = append(passed, h)
		l.mu.Lock()
		defer l.mu.Unlock()
		verdict, ok := l.verdicts[h]
		cached = verdict
		return ok && !l.disabled
	})
	if known {
		bad = cached
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range passed {
		l.verdicts[h] = bad
	}
	return bad
}
