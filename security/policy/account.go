package policy

import (
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval/codec"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
)

// dayCost is the cost of one run, for sums over a day.
type dayCost struct {
	At   time.Time  `json:"at"`
	Cost codec.Cost `json:"cost"`
}

// account is the memory of one workspace, from the log. A snapshot holds it as JSON.
type account struct {
	Taints   map[string]map[string]taint `json:"taints"` // by session, "": all sessions; then by kind
	Ask      map[string]bucket           `json:"ask"`    // by capability
	Deny     map[string]bucket           `json:"deny"`
	Day      []dayCost                   `json:"day"`
	Sessions map[string]codec.Cost       `json:"sessions"` // cost by session
	Asked    map[string][]askedRequest   `json:"asked"`    // by client: the last requests that asked a person, the newest last
}

// askedRequest is a request that a grant is matched against.
type askedRequest struct {
	Entry   event.Entry `json:"entry"`
	command command     // in memory only: the log holds no arguments
}

func (r *askedRequest) facts() approval.Facts {
	x := &r.Entry
	return approval.Facts{
		RequestID: x.RequestID, Workspace: x.Workspace, Tool: x.Tool, Capability: x.Capability, Target: x.Target,
		ActionType: x.ActionType, ClientID: x.ClientID, SessionID: x.SessionID, Now: x.Time,
	}
}

const (
	maxAsked    = 20      // of each client
	maxSessions = 100_000 // distinct sessions of an account; the rest share one
)

func newAccount() *account {
	return &account{
		Taints: map[string]map[string]taint{}, Ask: map[string]bucket{}, Deny: map[string]bucket{}, Sessions: map[string]codec.Cost{},
		Asked: map[string][]askedRequest{},
	}
}

// session is the account's key for a session. Agents choose session names, so the
// number of keys is bounded.
func (a *account) session(id string) string {
	if _, known := a.Sessions[id]; !known && len(a.Sessions) >= maxSessions {
		return "\x00others"
	}
	return id
}

// addUse adds what one claim consumed.
func (a *account) addUse(l Limits, capability, session string, cost codec.Cost, now time.Time) {
	use := func(rates map[string]Rate, used map[string]bucket) {
		if r, ok := rates[capability]; ok {
			b := used[capability]
			b.take(r, now)
			used[capability] = b
		}
	}
	use(l.Ask, a.Ask)
	use(l.Deny, a.Deny)
	if cost == 0 {
		return
	}
	session = a.session(session)
	a.Sessions[session] = a.Sessions[session].Plus(cost)
	a.Day = append(a.Day, dayCost{now, cost})
	a.Day = slices.DeleteFunc(a.Day, func(s dayCost) bool { return now.Sub(s.At) >= 24*time.Hour })
}

func (a *account) costToday(now time.Time) (sum codec.Cost) {
	for _, s := range a.Day {
		if now.Sub(s.At) < 24*time.Hour {
			sum = sum.Plus(s.Cost)
		}
	}
	return sum
}

func (a *account) taintSet(session string, bound bool) map[string]bool {
	set := map[string]bool{}
	for t, x := range a.Taints[""] {
		set[t] = x.N > 0
	}
	if bound {
		for t, x := range a.Taints[session] {
			set[t] = set[t] || x.N > 0
		}
	}
	return set
}

// taint is one taint of a client: what it read.
type taint struct {
	N     int         `json:"n"`     // reads that were not taken back
	Reads []taintRead `json:"reads"` // the first of them
}

// taintRead is one read that tainted a client.
type taintRead struct {
	ID         string `json:"id"`
	Tool       string `json:"tool"`
	Capability string `json:"capability"`
	Target     string `json:"target"`
}

// by names what read it: the capability, or "tool" and its name; "" of a release-only request.
func (r taintRead) by() string {
	if r.Capability == "" && r.Tool != "" {
		return "tool " + r.Tool
	}
	return r.Capability
}

const maxTaintReads = 4

// addTaint notes that a claim reads what taints.
func (a *account) addTaint(session, kind string, by taintRead) {
	if a.Taints[session] == nil {
		a.Taints[session] = map[string]taint{}
	}
	t := a.Taints[session][kind]
	if t.N++; len(t.Reads) < maxTaintReads {
		t.Reads = append(t.Reads, by)
	}
	a.Taints[session][kind] = t
}

// takeBack removes the taint of a claim that read nothing. One that is not among the known
// reads stays: it may have been cleared, and then others count.
func (a *account) takeBack(session, kind, id string) {
	t := a.Taints[session][kind]
	i := slices.IndexFunc(t.Reads, func(r taintRead) bool { return r.ID == id })
	if i < 0 {
		return
	}
	t.N--
	t.Reads = slices.Delete(slices.Clone(t.Reads), i, i+1)
	a.Taints[session][kind] = t
}

// taintRead returns the first of n reads that added a taint, for the sentence on the card.
func (a *account) taintRead(session, kind string) (r taintRead, n int) {
	for _, s := range sessionsOf(session) {
		if t := a.Taints[s][kind]; t.N > 0 && len(t.Reads) > 0 {
			return t.Reads[0], t.N
		}
	}
	return taintRead{}, 0
}
