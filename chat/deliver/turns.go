package deliver

import (
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// turnWindow is within how long the calls of one turn of an agent's model usually come. Each waits so long for the others:
// several become one message.
const turnWindow = 700 * time.Millisecond

// turns are the latest calls that agents themselves execute. Only the watch loop uses them.
type turns struct {
	window time.Duration
	recent map[turnKey][]newCard
}

type turnKey struct{ workspace, session string }

// delay notes a request, and returns how long its card waits for the other calls of the turn.
func (t *turns) delay(k approval.Key, p *approval.Pending, now time.Time) time.Duration {
	if p.Runs.Kind != approval.HandlerAgent || p.SessionID == "" {
		return 0
	}
	for of, all := range t.recent {
		all = slices.DeleteFunc(all, func(c newCard) bool { return now.Sub(c.at) > time.Minute })
		if t.recent[of] = all; len(all) == 0 {
			delete(t.recent, of)
		}
	}
	age := now.Sub(p.Timestamp)
	if age < 0 || age >= t.window {
		return 0
	}
	of := turnKey{k.Workspace, p.SessionID}
	if all := t.recent[of]; !slices.ContainsFunc(all, func(c newCard) bool { return c.Key == k }) {
		t.recent[of] = append(all, newCard{k, p.Timestamp})
	}
	return t.window - age
}

// several reports whether another call of the turn is undecided.
func (t *turns) several(k approval.Key, p *approval.Pending, isOpen func(approval.Key) bool) bool {
	return slices.ContainsFunc(t.recent[turnKey{k.Workspace, p.SessionID}], func(c newCard) bool {
		return c.Key != k && c.at.Sub(p.Timestamp).Abs() < t.window && isOpen(c.Key)
	})
}
