package gate

import (
	"errors"
	"fmt"

	"github.com/permesso-dev/permesso/approval"
)

// Bytes that documents may take.
const (
	outputRoom  = 256 << 10 // of a handler that says nothing else
	roomForRest = 64 << 10  // what documents hold besides, and the blocks of their files
	refusalRoom = 16 << 10
)

// refuseWeak is the answer to a request that the gate cannot take now, as long
// as there is room for one.
func (g *Gate) refuseWeak(s *state) (held bool, err error) {
	p, weak := g.Degraded()
	if weak && s.offer != nil {
		g.turnAway(s.offer, fmt.Errorf("%w: %s", approval.ErrDegraded, p.What))
		return true, nil
	}
	if !weak {
		p.What = "its disk has no room for what this tool may put out"
	}
	release, ok := g.reserve(int64(4*len(s.q) + refusalRoom))
	if !ok && s.offer != nil {
		g.turnAway(s.offer, fmt.Errorf("%w: %s", approval.ErrDegraded, p.What))
		return true, nil
	}
	if !ok {
		g.firstSeen(s.key, s.now)
		s.again = g.Now().Add(probeEvery)
		return true, nil
	}
	defer release()
	return g.refuseLimited(s, approval.StatusAutoRejected, approval.ErrDegraded, fmt.Sprintf(
		"The gate cannot take requests now: %s. Nothing ran; ask again later under a new id.", p.What))
}

// need is the room for the claim, the record, the response and the audit entry
// of one run.
func need(request int, t approval.Tool) int64 {
	output := int64(t.Handler.MaxOutput)
	if output == 0 {
		output = outputRoom
	}
	return 4*int64(request) + 3*output + roomForRest
}

func (g *Gate) reserve(bytes int64) (release func(), ok bool) {
	prober, is := g.Store.(HealthStore)
	if !is {
		return func() {}, true
	}
	release, err := prober.Reserve(bytes)
	if err == nil {
		return release, true
	}
	// A tool that may put out more than others must not keep the others waiting.
	if usual := 2 * need(0, approval.Tool{}); errors.Is(err, approval.ErrNoSpace) && bytes > usual {
		if release, err := prober.Reserve(usual); err == nil {
			release()
			return nil, false
		}
	}
	g.suspect(err)
	return nil, false
}

// takeRoom sets room aside for a run until its record is written. Without room
// nothing starts.
func (g *Gate) takeRoom(s *state, request int, t approval.Tool) bool {
	release, ok := g.reserve(need(request, t))
	if !ok {
		s.again = g.Now().Add(lookEvery)
		return false
	}
	g.condition.mu.Lock()
	defer g.condition.mu.Unlock()
	if g.condition.rooms == nil {
		g.condition.rooms = map[approval.Key]func(){}
	}
	g.condition.rooms[s.key] = release
	return true
}

func (g *Gate) giveRoom(k approval.Key) {
	g.condition.mu.Lock()
	release := g.condition.rooms[k]
	delete(g.condition.rooms, k)
	g.condition.mu.Unlock()
	if release != nil {
		release()
	}
}
