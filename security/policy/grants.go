package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
)

// How long a grant is valid, and how long if it is not used.
const (
	sessionLife   = 24 * time.Hour
	ruleLife      = 90 * 24 * time.Hour
	permanentLife = 365 * 24 * time.Hour
)

// AddGrant adds a grant, or replaces its earlier state. It refuses an incomplete
// grant.
func (e *Engine) AddGrant(g grant.Grant) error {
	if err := g.Check(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.init()
	e.grants.put(g)
	if u, ok := e.pendingUses[g.ID]; ok {
		h := e.grants.byID[g.ID]
		h.uses += u.N
		h.lastUsed = u.Last
		delete(e.pendingUses, g.ID)
	}
	return nil
}

// RemoveGrant removes a grant whose file was removed.
func (e *Engine) RemoveGrant(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.grants == nil {
		return
	}
	if h := e.grants.byID[id]; h != nil {
		e.grants.remove(h)
		delete(e.grants.byID, id)
	}
}

// Grants lists the grants, the newest first.
func (e *Engine) Grants() []grant.Use {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.grants == nil {
		return nil
	}
	all := make([]grant.Use, 0, len(e.grants.byID))
	for _, h := range e.grants.byID {
		all = append(all, grant.Use{Grant: h.Grant, Uses: h.uses, LastUsed: h.lastUsed})
	}
	slices.SortFunc(all, func(a, b grant.Use) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return all
}

// GrantFrom is the grant that an approval gives: code 2 a session allow, code 6 an
// allow rule, otherwise by the tool's territory. nil means none.
func GrantFrom(p *approval.Pending, d *approval.Decision) *grant.Grant {
	if d.Verdict != approval.Approved {
		return nil
	}
	g := &grant.Grant{
		Version: approval.Version, ID: p.RequestID, Workspace: p.SourceGroup, ClientID: p.ClientID, ActionType: p.ActionType,
		By: d.DecidedBy, ByID: d.DecidedByID, Via: d.Via, CreatedAt: d.DecidedAt,
		Reason: "code " + d.Code + " on " + p.ShortID,
	}
	if d.Code == "" {
		g.Reason = "approval of " + p.ShortID
	}
	switch {
	case d.Scope == approval.Session && grant.WhyNot(p, d.Scope).IsZero():
		g.Kind, g.SessionID, g.Exact = grant.Session, p.SessionID, p.Ruling.Exact
		g.ExpiresAt = g.CreatedAt.Add(sessionLife)
		return g
	case d.Scope == approval.Always && grant.WhyNot(p, d.Scope).IsZero():
		g.Kind, g.Exact = grant.Rule, p.Ruling.Exact
		g.ExpiresAt = g.CreatedAt.Add(ruleLife)
		return g
	case d.Scope == approval.Session || d.Scope == approval.Always:
		return nil
	}
	return territory(p, g)
}

// territory completes the grant of a tool with a territory, nil if it has none.
func territory(p *approval.Pending, g *grant.Grant) *grant.Grant {
	c, ok := facts.CapabilityNamed(p.Capability)
	if len(p.Ruling.Secrets) > 0 {
		return nil // its target may be a secret
	}
	if !ok || c.Default == facts.AskAlways || p.Channel == "" || p.Sender == "" {
		return nil
	}
	switch p.Territory {
	case "session":
		if p.SessionID == "" {
			return nil
		}
		g.SessionID, g.ExpiresAt = p.SessionID, g.CreatedAt.Add(sessionLife)
	case "permanent":
		g.ExpiresAt = g.CreatedAt.Add(permanentLife)
	default:
		return nil
	}
	g.Kind, g.Channel, g.Sender = grant.Target, p.Channel, p.Sender
	g.Capability, g.TargetKind, g.Target = c.Name, c.TargetKind, p.Target
	switch c.TargetKind {
	case "none":
		g.Target = ""
	case "path_glob":
		if !clean(p.Target) {
			return nil
		}
		g.Target = escapeGlob(p.Target)
	case "host":
		g.Target = host(p.Target)
	}
	if g.Check() != nil {
		return nil
	}
	return g
}

// escapeGlob returns the glob that matches only this path.
func escapeGlob(path string) string {
	var b strings.Builder
	for _, r := range path {
		if strings.ContainsRune(meta, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// WouldHaveAllowed lists which of the last requests that asked a person in its
// workspace a grant would have allowed, the newest first.
func (e *Engine) WouldHaveAllowed(g grant.Grant) (which []approval.Facts, of int) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	a := e.accounts[g.Workspace]
	if a == nil {
		return nil, 0
	}
	g.RevokedAt, g.MaxUses = time.Time{}, 0
	g.ExpiresAt = g.ExpiresAt.Add(permanentLife)
	alone := newGrantIndex()
	alone.put(g)
	for _, p := range slices.Backward(a.Asked) {
		f := p.facts()
		c, has := facts.CapabilityNamed(f.Capability)
		if has && c.Default == facts.AskAlways {
			continue
		}
		if h, _ := alone.covering(&f, exactFor(&f, p.Entry.Exact)); h != nil {
			which = append(which, f)
		}
	}
	return which, len(a.Asked)
}
