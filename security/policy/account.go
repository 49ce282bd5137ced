package policy

import (
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
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
	Soft, Hard int64
}

// Limits are the limits of one workspace.
type Limits struct {
	Ask     map[string]Rate // by capability, "" for tools without one: above it a person is asked
	Deny    map[string]Rate // above it nothing runs
	Session Budget
	Day     Budget // the last 24 hours
}

// bucket is the state of one Rate: tokens used, refilled since at.
type bucket struct {
	used float64
	at   time.Time
}

func (b bucket) level(r Rate, now time.Time) float64 {
	if b.at.IsZero() || r.Per <= 0 {
		return b.used
	}
	if gone := now.Sub(b.at); gone > 0 { // a clock set back refills nothing
		return max(0, b.used-float64(r.Burst)*gone.Seconds()/r.Per.Seconds())
	}
	return b.used
}

// take uses one token.
func (b *bucket) take(r Rate, now time.Time) {
	b.used = b.level(r, now) + 1
	if now.After(b.at) {
		b.at = now
	}
}

// dayCost is the cost of one run, for sums over a day.
type dayCost struct {
	at   time.Time
	cost int64
}

// account is the memory of one workspace, from the log.
type account struct {
	taints   map[string]map[string]bool // by session, "": all sessions
	ask      map[string]bucket          // by capability
	deny     map[string]bucket
	day      []dayCost
	sessions map[string]int64 // cost by session
	asked    []askedRequest   // the last requests that asked a person, the newest last
}

// askedRequest holds the fields of a request that a grant is matched against.
type askedRequest struct {
	f     approval.Facts
	exact string
}

const (
	maxAsked    = 20      // of account.asked
	maxSessions = 100_000 // distinct sessions of an account; the rest share one
)

func newAccount() *account {
	return &account{
		taints: map[string]map[string]bool{}, ask: map[string]bucket{}, deny: map[string]bucket{}, sessions: map[string]int64{},
	}
}

// session is the account's key for a session. Agents choose session names, so the
// number of keys is bounded.
func (a *account) session(id string) string {
	if _, known := a.sessions[id]; !known && len(a.sessions) >= maxSessions {
		return "\x00others"
	}
	return id
}

// addUse adds what one claim consumed.
func (a *account) addUse(l Limits, capability, session string, cost int64, now time.Time) {
	if r, ok := l.Ask[capability]; ok {
		b := a.ask[capability]
		b.take(r, now)
		a.ask[capability] = b
	}
	if r, ok := l.Deny[capability]; ok {
		b := a.deny[capability]
		b.take(r, now)
		a.deny[capability] = b
	}
	if cost == 0 {
		return
	}
	a.sessions[a.session(session)] += cost
	a.day = append(a.day, dayCost{now, cost})
	a.day = slices.DeleteFunc(a.day, func(s dayCost) bool { return now.Sub(s.at) >= 24*time.Hour })
}

func (a *account) costToday(now time.Time) (sum int64) {
	for _, s := range a.day {
		if now.Sub(s.at) < 24*time.Hour {
			sum += s.cost
		}
	}
	return sum
}

func (a *account) taintSet(session string, bound bool) map[string]bool {
	set := map[string]bool{}
	for t := range a.taints[""] {
		set[t] = true
	}
	if bound {
		for t := range a.taints[session] {
			set[t] = true
		}
	}
	return set
}
