package policy

import (
	"cmp"
	"maps"
	"slices"

	"github.com/permesso-dev/permesso/approval/codec"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
)

// reservation is what a claim in progress will consume when its entry is in the
// log.
type reservation struct {
	capability, session, grant string
	cost                       codec.Cost
	taints                     []string
}

func reservationOf(f *approval.Facts, r approval.Ruling) *reservation {
	if isRun(f) { // its steps consume the rest
		return &reservation{capability: approval.ActionProgram, grant: r.Grant}
	}
	return &reservation{capability: f.Capability, session: f.SessionID, cost: f.Cost, taints: r.Taints, grant: r.Grant}
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
	q := e.request(&f)
	if human {
		if why := moved(given.Links, q.links.elsewhere()); !why.IsZero() {
			return nil, &approval.Ruling{Outcome: approval.Deny, Rule: byLinks, Reasons: []approval.Reason{why}}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.init()
	r, rs := given, w.rules()
	if q.running = f.Program != nil; isRun(&f) {
		if r = e.judgeRun(&f, given.Grant); !human && r.Outcome != approval.Allow {
			return nil, &r
		}
	} else if human {
		v := &evaluation{f: &f, rs: rs, base: approval.Allow}
		if e.judgeLimits(v); v.deny != "" {
			now := v.ruling()
			return nil, &now
		}
	} else if r = e.judge(rs, q, given.Secrets); r.Outcome != approval.Allow {
		return nil, &r
	}
	k := approval.Key{Workspace: f.Workspace, ID: f.RequestID}
	b := reservationOf(&f, r)
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

// moved says which path leads elsewhere than when a person was asked; none if none does.
func moved(was, is map[string]string) approval.Reason {
	leads := func(m map[string]string, name string) string {
		if to, elsewhere := m[name]; elsewhere {
			return cmp.Or(to, "?")
		}
		return name
	}
	for _, m := range []map[string]string{is, was} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if then, now := leads(was, name), leads(is, name); then != now {
				return approval.Because("path_moved", "path", name, "was", then, "leads", now)
			}
		}
	}
	return approval.Reason{}
}

func (e *Engine) reserve(b *reservation, n int) {
	if h := e.grants.byID[b.grant]; h != nil {
		h.reserved += n
	}
}

// reserved sums the reservations of other requests.
func (e *Engine) reserved(f *approval.Facts) (n int, session, day codec.Cost) {
	for k, b := range e.reservations {
		if k.Workspace != f.Workspace || k.ID == f.RequestID {
			continue
		}
		if b.capability == f.Capability {
			n++
		}
		if b.session == f.SessionID {
			session = session.Plus(b.cost)
		}
		day = day.Plus(b.cost)
	}
	return n, session, day
}
