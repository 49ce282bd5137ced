package deliver

import (
	"slices"
	"time"
)

// Above maxCards new cards a minute in one workspace, further requests become lines of a digest.
const (
	maxCards    = 5
	floodWindow = time.Minute
)

// flood counts the new cards of each place. Only the watch loop uses it.
type flood struct {
	most  int // cards a minute in a place
	cards map[floodKey][]time.Time
}

type floodKey struct {
	workspace string
	at        Address
}

// exceeded counts a card, and reports whether it is one too many.
func (f *flood) exceeded(ws string, to Place, now time.Time) bool {
	at := floodKey{ws, to.Address}
	recent := slices.DeleteFunc(f.cards[at], func(t time.Time) bool { return now.Sub(t) >= floodWindow })
	f.cards[at] = append(recent, now)
	if len(f.cards[at]) > 10*f.most {
		f.cards[at] = f.cards[at][len(f.cards[at])-10*f.most:]
	}
	return len(f.cards[at]) > f.most
}
