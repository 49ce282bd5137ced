package policy

import (
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/grant"
)

// reservation is what a claim in progress will consume when its entry is in the
// log.
type reservation struct {
	capability, session, grant string
	cost                       int64
	taints                     []string
}

// Reserve reserves what running a request consumes, right before its claim. It
// judges again under one lock, so a limit, revocation or taint since the ruling
// counts, even with concurrent claims. For a human approval only hard limits count.
// On refusal the ruling says why. Otherwise Learn ends the reservation, or undo if
// nothing was claimed.
func (e *Engine) Reserve(f approval.Facts, given approval.Ruling, human bool) (undo func(), refused *approval.Ruling) {
	return (&View{e: e}).Reserve(f, given, human)
}

// Reserve is Engine.Reserve with this configuration.
func (w *View) Reserve(f approval.Facts, given approval.Ruling, human bool) (undo func(), refused *approval.Ruling) {
	e := w.e
	f.Autonomy = grant.LowerLevel(f.Autonomy, grant.Full)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.init()
	r, rs := given, w.rules()
	if human {
		v := &evaluation{f: &f, rs: rs, base: approval.Allow}
		if e.judgeLimits(v); v.deny != "" {
			now := v.ruling()
			return nil, &now
		}
	} else if r = e.judge(rs, f, given.Secrets); r.Outcome != approval.Allow {
		return nil, &r
	}
	k := approval.Key{Workspace: f.Workspace, ID: f.RequestID}
	b := &reservation{capability: f.Capability, session: f.SessionID, cost: f.Cost, taints: r.Taints, grant: r.Grant}
	if human {
		b.grant = ""
	}
	e.reservations[k] = b
	e.reserve(b, 1)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.reservations[k] == b {
			delete(e.reservations, k)
			e.reserve(b, -1)
		}
	}, nil
}

func (e *Engine) reserve(b *reservation, n int) {
	if h := e.grants.byID[b.grant]; h != nil {
		h.reserved += n
	}
}

// judgeLimits applies the rates and budgets.
func (e *Engine) judgeLimits(v *evaluation) {
	f := v.f
	l, ok := v.rs.limits[f.Workspace]
	if !ok {
		return
	}
	a := e.accountView(f.Workspace)
	under, session, day := e.reserved(f)
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
	v.budget(l.Session, "cost_session_ask", "cost_session_deny", a.Sessions[a.session(f.SessionID)]+session+f.Cost)
	v.budget(l.Day, "cost_day_ask", "cost_day_deny", a.costToday(f.Now)+day+f.Cost)
}

func (v *evaluation) budget(b Budget, ask, deny string, sum int64) {
	cost := func(code string, limit int64) {
		v.addReason(code, "n", strconv.FormatInt(sum, 10), "max", strconv.FormatInt(limit, 10))
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

// reserved sums the reservations of other requests.
func (e *Engine) reserved(f *approval.Facts) (n int, session, day int64) {
	for k, b := range e.reservations {
		if k.Workspace != f.Workspace || k.ID == f.RequestID {
			continue
		}
		if b.capability == f.Capability {
			n++
		}
		if b.session == f.SessionID {
			session += b.cost
		}
		day += b.cost
	}
	return n, session, day
}

// Learn takes one entry of the audit log. Entries come in the log's order. An entry
// that was learned before is ignored.
func (e *Engine) Learn(x event.Entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.init()
	if x.Seq > 0 {
		if x.Seq <= e.seq {
			return
		}
		e.seq = x.Seq
	}
	switch x.Event {
	case event.Approved, event.AutoApproved:
		if x.Detail != event.DetailAgain {
			e.learnClaim(&x)
		}
	case event.Requested:
		e.learnAsked(&x)
	case event.TaintsCleared:
		a := e.account(x.Workspace)
		if x.SessionID == "" {
			clear(a.Taints)
		} else {
			delete(a.Taints, x.SessionID)
		}
	}
}

func (e *Engine) learnClaim(x *event.Entry) {
	k := approval.Key{Workspace: x.Workspace, ID: x.RequestID}
	if b := e.reservations[k]; b != nil {
		delete(e.reservations, k)
		e.reserve(b, -1)
	}
	a := e.account(x.Workspace)
	a.addUse(e.current().limits[x.Workspace], x.Capability, x.SessionID, x.Cost, x.Time)
	session := ""
	if e.current().bound[x.Workspace] {
		session = x.SessionID
	}
	for _, t := range x.Taints {
		if a.Taints[session] == nil {
			a.Taints[session] = map[string]bool{}
		}
		a.Taints[session][t] = true
	}
	if h := e.grants.byID[x.Grant]; h != nil {
		h.uses++
		h.lastUsed = x.Time
	} else if x.Grant != "" {
		e.addPendingUse(x)
	}
	if x.Human {
		e.approvalsByKind[kindOf(x.Workspace, x.Capability, x.Tool, x.Target)]++
	}
}

// addPendingUse counts a use of a grant that is not loaded yet.
func (e *Engine) addPendingUse(x *event.Entry) {
	if e.pendingUses == nil {
		e.pendingUses = map[string]grantUses{}
	}
	u := e.pendingUses[x.Grant]
	e.pendingUses[x.Grant] = grantUses{u.N + 1, x.Time}
}

type grantUses struct {
	N    int       `json:"n"`
	Last time.Time `json:"last"`
}

func (e *Engine) learnAsked(x *event.Entry) {
	a := e.account(x.Workspace)
	a.Asked = append(a.Asked, askedRequest{*x})
	if len(a.Asked) > maxAsked {
		a.Asked = append(a.Asked[:0], a.Asked[1:]...)
	}
}

// Recurrence is how often people approved requests of the same workspace, capability
// (or tool, if there is none) and target.
func (e *Engine) Recurrence(ws, capability, tool, target string) int {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.approvalsByKind[kindOf(ws, capability, tool, target)]
}

func kindOf(ws, capability, tool, target string) string {
	if capability == "" {
		capability = "tool " + tool
	}
	return strings.Join([]string{ws, capability, target}, sep)
}
