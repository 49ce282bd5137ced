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
type lives struct {
	mu       sync.Mutex
	verdicts map[life][]string
	all      bool // live every life to its end
}

// life is what decides the future of a world.
type life struct {
	world [3]uint64
	dice  uint64
	since moment
}

// moment is a point of a life at which worlds are compared.
type moment uint8

const (
	opened moment = iota // home is open, and the gate has read nothing yet
	rested               // the first gate has come to rest and stopped
)

// errJoined ends a start on a world whose future is known.
var errJoined = errors.New("the rest of this life is known")

// fork is how many futures the dice choose from: every act that is left to them
// takes their remainder by 2, 3 or 5.
const fork = 2 * 3 * 5

// live is World.live, unless the rest of it is known.
func (l *lives) live(w *World, dice uint64) []string {
	var passed []life
	var known []string
	bad, joined := w.live(dice, func(m moment) bool {
		h := life{w.fingerprint(), dice % fork, m}
		passed = append(passed, h)
		l.mu.Lock()
		defer l.mu.Unlock()
		verdict, ok := l.verdicts[h]
		known = verdict
		return ok && !l.all
	})
	if joined {
		bad = known
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range passed {
		l.verdicts[h] = bad
	}
	return bad
}
