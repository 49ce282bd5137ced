package policy

import (
	"strconv"
	"time"

	"github.com/permesso-dev/permesso/approval/codec"
)

// Rate is a token bucket: Burst tokens, refilled evenly over Per. The zero Rate is
// no limit.
type Rate struct {
	Burst int
	Per   time.Duration
}

// Budget bounds costs: above Soft a person is asked, above Hard nothing runs. Zero
// is no bound.
type Budget struct {
	Soft, Hard codec.Cost
}

// Limits are the limits of one workspace.
type Limits struct {
	Ask     map[string]Rate // by capability, "" for tools without one: above it a person is asked
	Deny    map[string]Rate // above it nothing runs
	Session Budget
	Day     Budget // the last 24 hours
}

// judgeLimits applies the rates and budgets.
func (e *Engine) judgeLimits(v *evaluation) {
	f := v.f
	l, ok := v.rs.limits[f.Workspace]
	if !ok {
		return
	}
	a := e.accountView(f.Workspace)
	under, _, _ := e.reserved(f)
	full := func(rates map[string]Rate, used map[string]bucket) (Rate, bool) {
		r, ok := rates[f.Capability]
		return r, ok && used[f.Capability].level(r, f.Now)+float64(under)+1 > float64(r.Burst)+1e-9
	}
	if r, over := full(l.Deny, a.Deny); over {
		v.setDeny(byLimits)
		v.addRate(r, "rate_deny", "rate_deny_bare")
	}
	if r, over := full(l.Ask, a.Ask); over {
		v.setHardAsk(byLimits)
		v.addRate(r, "rate_ask", "rate_ask_bare")
	}
	e.judgeBudgets(v)
}

func (e *Engine) judgeBudgets(v *evaluation) {
	f, l := v.f, v.rs.limits[v.f.Workspace]
	a := e.accountView(f.Workspace)
	_, session, day := e.reserved(f)
	v.budget(l.Session, "cost_session_ask", "cost_session_deny", a.Sessions[a.session(f.SessionID)].Plus(session).Plus(f.Cost))
	v.budget(l.Day, "cost_day_ask", "cost_day_deny", a.costToday(f.Now).Plus(day).Plus(f.Cost))
}

func (v *evaluation) budget(b Budget, ask, deny string, sum codec.Cost) {
	cost := func(code string, limit codec.Cost) {
		v.addReason(code, "n", sum.String(), "max", limit.String())
	}
	switch {
	case v.f.Cost <= 0:
	case b.Hard > 0 && sum > b.Hard:
		v.setDeny(byLimits)
		cost(deny, b.Hard)
	case b.Soft > 0 && sum > b.Soft:
		v.setHardAsk(byLimits)
		cost(ask, b.Soft)
	}
}

func (v *evaluation) addRate(r Rate, code, bare string) {
	if v.f.Capability == "" {
		code = bare
	}
	v.addReason(code, "n", strconv.Itoa(r.Burst), "per", r.Per.String(), "capability", v.f.Capability)
}

// bucket is the state of one Rate: tokens used, refilled since at.
type bucket struct {
	Used float64   `json:"used"`
	At   time.Time `json:"at"`
}

func (b bucket) level(r Rate, now time.Time) float64 {
	if b.At.IsZero() || r.Per <= 0 {
		return b.Used
	}
	if gone := now.Sub(b.At); gone > 0 { // a clock set back refills nothing
		return max(0, b.Used-float64(r.Burst)*gone.Seconds()/r.Per.Seconds())
	}
	return b.Used
}

// take uses one token.
func (b *bucket) take(r Rate, now time.Time) {
	b.Used = b.level(r, now) + 1
	if now.After(b.At) {
		b.At = now
	}
}
