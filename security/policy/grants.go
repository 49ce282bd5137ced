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

// How many hours a grant is valid.
const (
	sessionHours = 24
	alwaysHours  = 90 * 24
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

// HasGrant says whether a grant with this id is known.
func (e *Engine) HasGrant(id string) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.grants != nil && e.grants.byID[id] != nil
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

// Offers says what approvals of a request would remember, and how many of the client's last
// requests would not have been asked then: one offer for each scope. The one for a command
// pattern, which only a command has, is what the parsed command suggests.
func (w *View) Offers(f approval.Facts, given approval.Ruling) []approval.Offer {
	e := w.e
	e.mu.Lock()
	defer e.mu.Unlock()
	e.init()
	scopes := []approval.Scope{approval.Session, approval.Always}
	cmd, _, why := commandOf(&f)
	if len(cmd.words) > 0 || !why.IsZero() && onlyAgain(&f) {
		scopes = append(scopes, approval.Commands)
		e.keepCommand(&f, cmd)
	}
	offers := make([]approval.Offer, 0, len(scopes))
	for _, s := range scopes {
		o := approval.Offer{Scope: s}
		if o.Terms, o.WhyNot = e.termsOf(&f, given, s); o.WhyNot.IsZero() {
			o.Hours = hoursOf(s)
			o.Would, o.Of = e.wouldHaveAllowed(&o.Terms)
		} else {
			o.Terms = approval.Terms{}
		}
		offers = append(offers, o)
	}
	return offers
}

// Bounds of the commands in memory.
const (
	maxKept   = 4096 // bytes of one command
	maxAsking = 1000 // requests that are not learned yet
)

// keepCommand keeps the command of a request that is about to be asked, for the figure of
// later offers.
func (e *Engine) keepCommand(f *approval.Facts, cmd command) {
	if len(f.Args) > maxKept {
		return
	}
	if e.asking == nil || len(e.asking) >= maxAsking {
		e.asking = map[approval.Key]command{}
	}
	e.asking[approval.Key{Workspace: f.Workspace, ID: f.RequestID}] = cmd
}

func hoursOf(s approval.Scope) int {
	if s == approval.Session {
		return sessionHours
	}
	return alwaysHours
}

// Offers is View.Offers with the current configuration.
func (e *Engine) Offers(f approval.Facts, given approval.Ruling) []approval.Offer {
	return (&View{e: e}).Offers(f, given)
}

// termsOf returns the terms that a scope would remember of a request, or why it cannot.
func (e *Engine) termsOf(f *approval.Facts, given approval.Ruling, s approval.Scope) (approval.Terms, approval.Reason) {
	t := approval.Terms{Workspace: f.Workspace, ClientID: f.ClientID, Tool: f.Tool, ToolSHA256: f.ToolSHA256}
	if s == approval.Session {
		t.SessionID = f.SessionID
	}
	switch {
	case f.Question:
		return t, approval.Because("answer_once")
	case f.Tool != "" && !f.KnownTool:
		return t, approval.Because("unknown_tool")
	case f.Tool == "" && f.ActionType == "":
		return t, approval.Because("no_action_type")
	case !given.Soft:
		return t, approval.Because("asked_anyway", "rule", given.Rule)
	case e.blocksItself(f, given.Taints):
		return t, approval.Because("asked_anyway", "rule", byTrifecta)
	case e.exhausts(f):
		return t, approval.Because("asked_anyway", "rule", byLimits)
	case s == approval.Session && f.SessionID == "":
		return t, approval.Because("no_session")
	}
	why := shape(&t, f, s)
	if leads, elsewhere := given.Links[f.Target]; elsewhere && t.TargetKind == "path_glob" {
		why = approval.Because("path_leads", "path", f.Target, "leads", leads)
	}
	if why.IsZero() && grant.CheckTerms(&t) != nil {
		why = approval.Because("not_offered")
	}
	return t, why
}

// blocksItself says whether running the request taints its client so that the next request
// of the kind falls under the trifecta: a grant would not work twice.
func (e *Engine) blocksItself(f *approval.Facts, taints []string) bool {
	tainted := e.taintsOf(e.current(), f)
	for _, kind := range taints {
		tainted[kind] = true
	}
	_, trifecta := traitsOf(f, approval.Trust{}).asks(tainted)
	return trifecta
}

// exhausts says whether a budget has no room for the request twice.
func (e *Engine) exhausts(f *approval.Facts) bool {
	twice := *f
	twice.Cost = twice.Cost.Plus(twice.Cost)
	v := &evaluation{f: &twice, rs: e.current()}
	e.judgeBudgets(v)
	return v.hardAsk != "" || v.deny != ""
}

// shape chooses the form of a grant for a request, and fills in what the form names.
func shape(t *approval.Terms, f *approval.Facts, s approval.Scope) (why approval.Reason) {
	c, has := facts.CapabilityNamed(f.Capability)
	switch {
	case isRun(f):
		t.Form, t.ActionType, t.Digest = grant.Program, f.ActionType, f.Program.SHA256
	case onlyAgain(f):
		var cmd command
		t.Form = grant.Again
		cmd, t.Digest, why = commandOf(f)
		if prose := exactProse(f); prose != "" && s != approval.Commands {
			t.Digest, why = prose, approval.Reason{}
		} else if why.IsZero() && s == approval.Commands {
			t.Form, t.Digest, t.Words = grant.Command, cmd.rest, SuggestPattern(cmd.words)
			why = checkPattern(t.Words)
		}
		if f.Tool == "" {
			t.ActionType = f.ActionType
		}
		return why
	case f.Tool == "":
		t.Form, t.ActionType = grant.Action, f.ActionType
	case !f.Targeted || has && c.TargetKind == "none":
		t.Form = grant.Tool
	default:
		t.Form, t.TargetKind = grant.Target, targetKind(f)
		if t.Target = canonicalTarget(t.TargetKind, f.Target); t.Target == "" {
			return approval.Because("no_target")
		}
		if t.TargetKind == "path_glob" {
			t.Target = EscapeGlob(t.Target)
		}
	}
	return approval.Reason{}
}

// onlyAgain says whether a grant can cover only the same request, or a command pattern.
func onlyAgain(f *approval.Facts) bool {
	if f.Tool == "" {
		return f.ActionType == actionExec && !f.AnyExec
	}
	c, has := facts.CapabilityNamed(f.Capability)
	return has && c.Default == facts.AskAlways
}

// targetKind is how the target of a request is compared.
func targetKind(f *approval.Facts) string {
	if c, has := facts.CapabilityNamed(f.Capability); has {
		return c.TargetKind
	}
	return "exact"
}

// EscapeGlob returns the glob that matches only this path.
func EscapeGlob(path string) string {
	var b strings.Builder
	for _, r := range path {
		if strings.ContainsRune(meta, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// wouldHaveAllowed counts which of the client's last asked requests a grant with these
// terms would have allowed: those that only the missing grant made an ask.
func (e *Engine) wouldHaveAllowed(t *approval.Terms) (n, of int) {
	a := e.accounts[t.Workspace]
	if a == nil {
		return 0, 0
	}
	alone := newGrantIndex()
	alone.put(grant.Grant{Terms: *t, ExpiresAt: farAway})
	asked := a.Asked[t.ClientID]
	for i := range asked {
		f := asked[i].facts()
		f.ToolSHA256, f.AnyExec = t.ToolSHA256, t.Form == grant.Action
		if h, _ := alone.covering(&request{Facts: &f, links: links{to: map[string]string{f.Target: f.Target}}}, asked[i].Entry.Exact, asked[i].command); h != nil && asked[i].Entry.Soft {
			n++
		}
	}
	return n, len(asked)
}

// Asked lists the client's last requests that asked a person, the newest last.
func (e *Engine) Asked(workspace, client string) (keys []approval.Key) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, r := range e.accountView(workspace).Asked[client] {
		keys = append(keys, approval.Key{Workspace: workspace, ID: r.Entry.RequestID})
	}
	return keys
}

var farAway = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
