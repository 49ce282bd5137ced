package gate

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/permesso-dev/permesso/approval"
)

// rates are the rate limits of one workspace. Refusals have their own limit: a flood
// of bad requests costs a bounded number of writes, and the last one waits in the folder.
type rates struct {
	all, ask, refused, strays *rate.Limiter
}

func perMinute(n int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(n)/60), n)
}

func (g *Gate) limits(ws string) *rates {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.rates[ws]
	if r == nil {
		w, _ := g.Settings.Workspace(ws)
		l := w.Limits.WithDefaults()
		r = &rates{all: perMinute(l.PerMinute), ask: perMinute(l.AskPerMinute), refused: perMinute(l.PerMinute), strays: perMinute(60)}
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
		w, _ := g.Settings.Workspace(ws)
		l := w.Limits.WithDefaults()
		for limiter, n := range map[*rate.Limiter]int{r.all: l.PerMinute, r.ask: l.AskPerMinute, r.refused: l.PerMinute} {
			limiter.SetLimitAt(now, rate.Limit(float64(n)/60))
			limiter.SetBurstAt(now, n)
		}
	}
	waiting := slices.Collect(maps.Keys(g.queued))
	g.mu.Unlock()
	for _, ws := range waiting {
		g.wakeQueued(ws)
	}
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
