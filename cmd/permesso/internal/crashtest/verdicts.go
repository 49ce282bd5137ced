package crashtest

import (
	"errors"
	"sync"
)

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
