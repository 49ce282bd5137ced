package crashtest

import (
	"errors"
	"sync"
)

// # Lives
//
// Crashes differ in what they leave, and most of the differences are gone as
// soon as a gate has opened its home: temporary names are swept, and a sync
// makes durable whatever is visible. From there on, worlds that are alike have
// one future, because a gate that has just started has nothing in its memory.
// The same holds when a gate has come to rest and stopped. So a life that joins
// one that was lived ends there, with the same verdict.

// lives knows the verdicts on the lives that were lived.
type verdictCache struct {
	mu       sync.Mutex
	verdicts map[futureKey][]string
	disabled bool // live every life to its end
}

// life is what decides the future of a world.
type futureKey struct {
	sim    [3]uint64
	choice uint64
	at     checkpoint
}

// moment is a point of a life at which worlds are compared.
type checkpoint uint8

const (
	homeOpened   checkpoint = iota // home is open, and the gate has read nothing yet
	firstSettled                   // the first gate has come to rest and stopped
)

// errKnownFuture ends a start on a world whose future is known.
var errKnownFuture = errors.New("the rest of this life is known")

// fork is how many futures the dice choose from: every act that is left to them
// takes their remainder by 2, 3 or 5.
const choices = 2 * 3 * 5

// live is Sim.live, unless the rest of it is known.
func (l *verdictCache) run(w *Sim, choice uint64) []string {
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
