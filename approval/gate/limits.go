package gate

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/permesso-dev/permesso/approval"
)

// rates are the limits of one workspace, and the keys that wait for them. Refusals have
// their own limit: a flood of bad requests costs a bounded number of writes, and the last
// one waits in the folder.
type rates struct {
	all, ask, refused, strays *rate.Limiter
	plans                     *rate.Limiter // of programs: a plan takes processor time before anything else counts the request

	running int  // handlers
	turns   line // requests that wait in the folder until they may be refused
	slots   line // waiting for a handler slot
	paused  line // waiting for the end of a pause
}

// line holds keys that wait, each once, the oldest first.
type line struct {
	keys []approval.Key
	has  map[approval.Key]bool
}

// add adds a key; an event or a rescan can wake one that waits.
func (l *line) add(k approval.Key) {
	if l.has[k] {
		return
	}
	if l.has == nil {
		l.has = map[approval.Key]bool{}
	}
	l.has[k] = true
	l.keys = append(l.keys, k)
}

// take removes the first keys, n at most.
func (l *line) take(n int) (first []approval.Key) {
	n = min(n, len(l.keys))
	first, l.keys = l.keys[:n], l.keys[n:]
	for _, k := range first {
		delete(l.has, k)
	}
	return first
}

// lineInterval is the time between two wake-ups of the lines.
const lineInterval = time.Second

func perMinute(n int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(n)/60), n)
}

func (g *Gate) limits(ws string) *rates {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limitsLocked(ws)
}

func (g *Gate) limitsLocked(ws string) *rates {
	r := g.rates[ws]
	if r == nil {
		w, _ := g.settings().Workspace(ws)
		l := w.Limits.WithDefaults()
		r = &rates{all: perMinute(l.PerMinute), ask: perMinute(l.AskPerMinute), refused: perMinute(l.PerMinute), strays: perMinute(60), plans: perMinute(l.AskPerMinute)}
		g.rates[ws] = r
	}
	return r
}

// Reconfigured applies changed settings. Used-up limits stay used up, and added slots
// are filled.
func (g *Gate) Reconfigured() {
	now := g.Now()
	g.mu.Lock()
	for ws, r := range g.rates {
		w, _ := g.settings().Workspace(ws)
		l := w.Limits.WithDefaults()
		for limiter, n := range map[*rate.Limiter]int{r.all: l.PerMinute, r.ask: l.AskPerMinute, r.refused: l.PerMinute, r.plans: l.AskPerMinute} {
			limiter.SetLimitAt(now, rate.Limit(float64(n)/60))
			limiter.SetBurstAt(now, n)
		}
	}
	known := slices.Collect(maps.Keys(g.rates))
	g.mu.Unlock()
	for _, ws := range known {
		g.wakeQueued(ws)
	}
}

// limited reports a request that a limit refuses: no approver sees it.
func (g *Gate) limited(ws string) {
	if g.Limited != nil {
		g.Limited(ws)
	}
}

// lineUp makes a request wait until its workspace may refuse one more. So a backlog costs
// what may be refused of it, however long it is.
func (g *Gate) lineUp(k approval.Key) {
	g.mu.Lock()
	g.limitsLocked(k.Workspace).turns.add(k)
	g.mu.Unlock()
	g.wakeTicker(g.Now().Add(lineInterval))
}

// wakeLines wakes the first of each line, as many as may be refused now. waiting reports
// whether any are left.
func (g *Gate) wakeLines(now time.Time) (waiting bool) {
	var keys []approval.Key
	g.mu.Lock()
	for _, r := range g.rates {
		keys = append(keys, r.turns.take(int(r.refused.TokensAt(now)))...)
		waiting = waiting || len(r.turns.keys) > 0
	}
	g.mu.Unlock()
	g.wakeAll(keys)
	return waiting
}

// waitsForTurn reports that a request waits for a refusal, the end of a pause or a handler
// slot. Each of them wakes it; a rescan need not.
func (g *Gate) waitsForTurn(k approval.Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.rates[k.Workspace]
	return r != nil && (r.turns.has[k] || r.slots.has[k] || r.paused.has[k])
}

func (r *rates) stray(now time.Time) bool { return r.strays.AllowN(now, 1) }

// over returns which limit a request would exceed; none if it exceeds none. It counts the request.
func (r *rates) over(now time.Time, l approval.Limits, asks bool) (why approval.Reason) {
	if !r.all.AllowN(now, 1) {
		return approval.Because("limit_requests", "n", strconv.Itoa(l.PerMinute))
	}
	if asks && !r.ask.AllowN(now, 1) {
		return approval.Because("limit_asks", "n", strconv.Itoa(l.AskPerMinute))
	}
	return why
}
