package telegram

import (
	"slices"
	"time"
)

// Above so many new cards a minute in one workspace, the rest comes as lines of a digest.
const (
	mostCards   = 5
	floodWindow = time.Minute
)

// flood counts the cards of a workspace in one place. It is only used by who looks at what waits.
type flood struct {
	off   bool
	cards map[floodKey][]time.Time
}

type floodKey struct {
	workspace string
	chat      int64
	thread    int
}

// rises counts one more, and says whether that is too many for a card of its own.
func (f *flood) rises(ws string, to Place, now time.Time) bool {
	if f.cards == nil {
		f.cards = map[floodKey][]time.Time{}
	}
	at := floodKey{ws, to.Chat, to.Thread}
	recent := slices.DeleteFunc(f.cards[at], func(t time.Time) bool { return now.Sub(t) >= floodWindow })
	f.cards[at] = append(recent, now)
	if len(f.cards[at]) > 10*mostCards {
		f.cards[at] = f.cards[at][len(f.cards[at])-10*mostCards:]
	}
	return len(f.cards[at]) > mostCards && !f.off
}
