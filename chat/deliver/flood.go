package deliver

import (
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// While more than maxCards cards of the last minute wait in one place, further requests become lines of a digest.
const (
	maxCards    = 5
	floodWindow = time.Minute
)

// flood counts the new cards of each place. Only the watch loop uses it.
type flood struct {
	most  int // cards a minute in a place
	cards map[floodKey][]newCard
}

type newCard struct {
	approval.Key
	at time.Time
}

type floodKey struct {
	workspace string
	at        Address
}

// exceeded counts a card, and reports whether it is one too many. Those that were decided meanwhile are none.
func (f *flood) exceeded(k approval.Key, to Place, now time.Time, isOpen func(approval.Key) bool) bool {
	at := floodKey{k.Workspace, to.Address}
	recent := slices.DeleteFunc(f.cards[at], func(c newCard) bool { return now.Sub(c.at) >= floodWindow })
	open := 0
	for i := len(recent) - 1; i >= 0 && open < f.most; i-- { // no more are read than needed
		if isOpen(recent[i].Key) {
			open++
		} else {
			recent = slices.Delete(recent, i, i+1)
		}
	}
	recent = append(recent, newCard{k, now})
	f.cards[at] = recent[max(0, len(recent)-10*f.most):]
	return open >= f.most
}
