package gate

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/permesso-dev/permesso/approval"
)

// rates are one workspace's allowances. Refusals draw on one of their own, so
// that a workspace which floods the gate costs it a bounded number of writes:
// what comes on top waits in the folder.
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

// Reconfigured follows a change of the Settings: allowances keep what is used of
// them, and places that were added are given away.
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
	var waiting []string
	for ws := range g.queued {
		waiting = append(waiting, ws)
	}
	g.mu.Unlock()
	for _, ws := range waiting {
		g.wakeQueued(ws)
	}
}

func (r *rates) stray(now time.Time) bool { return r.strays.AllowN(now, 1) }

// over says which limit a request would break, if any. It takes from the
// allowances.
func (r *rates) over(now time.Time, l approval.Limits, asks bool) (why string) {
	if !r.all.AllowN(now, 1) {
		return rateLimitText(l.PerMinute, "requests")
	}
	if asks && !r.ask.AllowN(now, 1) {
		return rateLimitText(l.AskPerMinute, "requests that ask a person")
	}
	return ""
}
