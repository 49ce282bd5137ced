package policy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
)

// Engine judges requests and keeps policy's memory. Set its fields and call Load.
// The zero Engine asks about everything that it does not deny. Its methods are safe
// for concurrent use.
type Engine struct {
	// Scan finds secrets in a request; nil finds none.
	Scan func(f *approval.Facts) []approval.Finding
	// Resolve returns a path with every link resolved, as far as it exists; nil: no path can
	// be resolved, and no path condition of an allow is met.
	Resolve func(path string) (string, error)
	// Own are the gate's folder and configuration: an agent that touches them is always asked about.
	Own []string

	mu              sync.RWMutex
	seq             int64    // of the last learned entry
	now             *ruleset // the current configuration, also used by Learn
	grants          *grantIndex
	accounts        map[string]*account
	approvalsByKind map[string]int                // number of human approvals
	reservations    map[approval.Key]*reservation // what claims in progress will consume
	// uses of grants that are not loaded yet
	pendingUses map[string]grantUses
	asking      map[approval.Key]command // commands of requests that are not learned yet
}

// Config is the operator's configuration. Load replaces it as one.
type Config struct {
	Rules   []Rule
	Limits  map[string]Limits // by workspace
	Secrets []string          // workspaces that are secret-tainted from the start
	Bound   []string          // workspaces whose sessions the host binds
}

// ruleset is one configuration. It is immutable.
type ruleset struct {
	rules   []*rule
	slots   int // of the conditions
	limits  map[string]Limits
	secrets map[string]bool // workspaces that are secret-tainted from the start
	bound   map[string]bool // workspaces whose session ids the host assigns

	ungranted bool // without what people have granted
}

var noRules = &ruleset{}

// View judges by one configuration, even if another is loaded later. So a request
// is judged and run by the same configuration.
type View struct {
	e  *Engine
	rs *ruleset // nil: the current one
}

func (w *View) rules() *ruleset { return cmp.Or(w.rs, w.e.current()) }

// Load sets the configuration. It keeps the engine's memory.
func (e *Engine) Load(c Config) error {
	_, err := e.View(c)
	return err
}

// View is Load, and returns a View of this configuration.
func (e *Engine) View(c Config) (*View, error) {
	w, err := e.Try(c)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.init()
	w.rs.ungranted = false
	e.now = w.rs
	return w, nil
}

// Try returns a View of a configuration that is not loaded, without what people have
// granted.
func (e *Engine) Try(c Config) (*View, error) {
	rules, slots, err := compileAll(c.Rules, e.Resolve)
	if err != nil {
		return nil, err
	}
	return &View{e, &ruleset{rules, slots, c.Limits, set(c.Secrets), set(c.Bound), true}}, nil
}

func (e *Engine) current() *ruleset { return cmp.Or(e.now, noRules) }

func set(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

func (e *Engine) init() {
	if e.accounts != nil {
		return
	}
	e.grants, e.accounts = newGrantIndex(), map[string]*account{}
	e.approvalsByKind = map[string]int{}
	e.reservations = map[approval.Key]*reservation{}
}

func (e *Engine) account(ws string) *account {
	a := e.accounts[ws]
	if a == nil {
		a = newAccount()
		e.accounts[ws] = a
	}
	return a
}

// accountView is for reading only: it creates no account.
func (e *Engine) accountView(ws string) *account {
	if a := e.accounts[ws]; a != nil {
		return a
	}
	return &emptyAccount
}

var emptyAccount account

// evaluation collects the results of the five questions.
type evaluation struct {
	f       *approval.Facts
	q       *request
	rs      *ruleset
	base    approval.Outcome // from table and rules
	rule    string
	proven  approval.Reason // the proof that the rule depends on
	reasons []approval.Reason
	change  []approval.Reason
	deny    string          // rule of a hard deny, "" if there is none
	hardAsk string          // rule of an ask that no grant lifts
	softAsk string          // rule of an ask that a grant lifts
	always  bool            // the capability is asked every time
	noGrant bool            // no grant lifts this ask
	despite map[string]bool // hard asks that the allowing rule lifts
	trust   approval.Trust  // what the matching allow rules state
	command command
}

func (v *evaluation) addReason(code string, args ...string) {
	v.reasons = append(v.reasons, approval.Because(code, args...))
}

func (v *evaluation) setDeny(rule string) { v.deny = cmp.Or(v.deny, rule) }

func (v *evaluation) setHardAsk(rule string) { v.hardAsk = cmp.Or(v.hardAsk, rule) }

// Judge rules on a request. It writes nothing, and the ruling depends on which
// rules there are, not on their order.
func (e *Engine) Judge(f approval.Facts) approval.Ruling { return (&View{e: e}).Judge(f) }

// Judge is Engine.Judge with this configuration.
func (w *View) Judge(f approval.Facts) approval.Ruling {
	e := w.e
	f.Autonomy = grant.LowerLevel(f.Autonomy, grant.Full)
	var found []approval.Finding
	if e.Scan != nil {
		found = e.Scan(&f) // outside the lock, because it is slow
	}
	q := e.request(&f) // it reads the disk
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.judge(w.rules(), q, found)
}

// judge changes q's facts.
func (e *Engine) judge(rs *ruleset, q *request, found []approval.Finding) approval.Ruling {
	f := q.Facts
	if f.Tool != "" && !f.KnownTool {
		f.Capability, f.Trust = "", approval.Trust{} // the operator has not stated them
	}
	q.values = make([]*value, rs.slots)
	if q.evidence == nil {
		q.evidence = &evidenceIndex{of: &f.Evidence, resolve: q.links.or(e.Resolve)}
	}
	q.evidence.step = stepOf(f)
	v := &evaluation{f: f, q: q, rs: rs}
	lifted := e.judgeBase(v)
	t := traitsOf(f, v.trust)
	e.judgeTrust(v, t, lifted)
	v.judgeSecrets(found)
	e.judgeLimits(v)
	r := v.ruling()
	if r.Soft = r.Outcome == approval.Ask && v.hardAsk == "" && !v.noGrant && !f.Question && f.Subagent == ""; r.Soft {
		v.command, r.Exact, _ = commandOf(f)
		r.Exact = cmp.Or(r.Exact, exactProse(f))
		if r.Soft = f.Program == nil || !isRun(f) && isRepeatable(f, r.Exact); len(f.Opaque) > 0 {
			v.command, r.Exact = command{}, ""
		}
		if r.Soft {
			e.applyGrants(v, &r)
		}
	}
	r.Secrets, r.Taints, r.Cost, r.Links = found, t.taints(), f.Cost, q.links.elsewhere()
	return r
}

// ruling combines the results, before grants.
func (v *evaluation) ruling() approval.Ruling {
	r := approval.Ruling{Outcome: v.base, Rule: v.rule}
	switch {
	case v.deny != "":
		r.Outcome, r.Rule = approval.Deny, v.deny
	case v.f.Question:
		r.Outcome, r.Rule = approval.Ask, byQuestion
		v.addReason("question")
	case v.hardAsk != "" && r.Outcome != approval.Deny:
		r.Outcome, r.Rule = approval.Ask, v.hardAsk
	case v.softAsk != "" && r.Outcome == approval.Allow:
		r.Outcome, r.Rule = approval.Ask, v.softAsk
	}
	r.Reasons, r.Change = v.reasons, v.change
	if r.Rule != byTable { // a milder table would not help
		r.Change = slices.DeleteFunc(r.Change, func(x approval.Reason) bool { return x.Code == "raise_autonomy" })
	}
	if r.Outcome == approval.Allow {
		r.Change, r.Proven = nil, v.proven
	}
	return r
}

// Names of rulings that come from no rule.
const (
	byTable    = "table"
	byTrust    = "trust"
	byTrifecta = "trifecta"
	bySecrets  = "secrets"
	byLimits   = "limits"
	byQuestion = "question"
	byGrant    = "consent"
	byUnlisted = "unlisted"
	byRewiring = "changes who is asked"
	byLinks    = "links" // a path leads elsewhere than when a person was asked
)

var tableReasons = [...]string{
	approval.Deny: "table_deny", approval.Ask: "table_ask", approval.Allow: "table_allow",
}

// judgeBase applies the table, if there is a capability, then the operator's rules.
// It reports whether an allow rule lifted the asks that rules can lift.
func (e *Engine) judgeBase(v *evaluation) (lifted bool) {
	f := v.f
	cp, has := facts.CapabilityNamed(f.Capability)
	switch {
	case has:
		v.base, v.rule = Table(f.Autonomy, cp.Name), byTable
		v.addReason(tableReasons[v.base], "level", f.Autonomy, "capability", cp.Name)
		if level := nextMilderLevel(f.Autonomy, cp.Name); level != "" {
			v.change = append(v.change, approval.Because("raise_autonomy", "capability", cp.Name, "level", level))
		}
	case f.Capability != "":
		v.base, v.rule = approval.Deny, byTable
		v.addReason("unknown_capability", "capability", f.Capability)
	default:
		v.base, v.rule = approval.Allow, byTrust
	}
	v.always = has && cp.Default == facts.AskAlways
	v.noGrant = f.Tool != "" && !f.KnownTool
	if f.Unlisted {
		v.setHardAsk(byUnlisted)
		reason := "call_unlisted"
		if facts.DefinitionChanged(f.Args) {
			reason = "definition_changed"
		}
		v.addReason(reason, "tool", f.Tool)
	}
	if f.ByAgent {
		reads := f.Capability == "fs:read"
		what := facts.Rewires(f.Declared, f.Args, reads, e.Own)
		for _, leads := range slices.Sorted(maps.Values(v.q.links.to)) {
			what = cmp.Or(what, facts.RewiresFile(leads, reads, e.Own))
		}
		if what != "" {
			v.setHardAsk(byRewiring)
			v.addReason("changes_asking", "what", what)
		}
	}
	return e.applyRules(v)
}

func (e *Engine) applyRules(v *evaluation) (lifted bool) {
	q, evidence := v.q, v.q.evidence
	for _, r := range v.rs.rules { // deny rules come first, then ask, then allow
		a := r.match(q)
		if a == no {
			continue
		}
		if !r.applies(a) {
			v.addReason("rule_unevaluated", "rule", r.label())
			continue
		}
		missing, applies := v.proofOf(&r.Rule, evidence)
		if !applies {
			continue
		}
		switch r.Outcome {
		case approval.Deny:
			v.reasons = append(v.reasons, missing.of(r.reason(a)))
			if a == yes {
				v.setDeny(r.label())
			} else { // a person sees whether it applies
				v.setHardAsk(r.label())
			}
		case approval.Ask:
			v.reasons = append(v.reasons, missing.of(r.reason(a)))
			if v.base != approval.Deny {
				if v.base = approval.Ask; r.Always || !v.noGrant { // the one that no grant lifts has its name in the ruling
					v.rule = r.label()
				}
				v.noGrant = v.noGrant || r.Always
			}
		case approval.Allow:
			v.stateTrust(r.Trust)
			lifted = e.lift(v, r, q, evidence) || lifted
		}
	}
	if !lifted {
		v.trust = approval.Trust{} // what another rule asks about is not what this one describes
	}
	return lifted
}

// stateTrust adds what an allow rule says that its requests read and reach. If rules differ,
// true wins.
func (v *evaluation) stateTrust(t approval.Trust) {
	add := func(to *approval.Property, p approval.Property) {
		if p != "" && *to != isTrue {
			*to = p
		}
	}
	add(&v.trust.PublicSource, t.PublicSource)
	add(&v.trust.SecretData, t.SecretData)
	add(&v.trust.PublicSink, t.PublicSink)
}

// proofOf says whether a rule applies by what is proven. If it applies because
// something is not proven, missing names that.
func (v *evaluation) proofOf(r *Rule, evidence *evidenceIndex) (missing open, applies bool) {
	if len(r.UnlessProven) > 0 {
		if missing = evidence.missing(r.UnlessProven); missing.gap.IsZero() {
			v.reasons = append(v.reasons, evidence.proven("rule_proven", r.label(), r.UnlessProven))
			return open{}, false
		}
		return missing, true
	}
	if why := r.unproven(evidence); !why.IsZero() {
		v.reasons = append(v.reasons, why)
		return open{}, false
	}
	return open{}, true
}

// lift lets an allow rule lift an ask. A deny of the table and the ask of another
// rule stay.
func (e *Engine) lift(v *evaluation, r *rule, q *request, evidence *evidenceIndex) bool {
	but := func(note string, args ...string) bool {
		v.addReason("rule_allow", append(args, "rule", r.label(), "words", r.Reason, "note", note)...)
		return false
	}
	switch {
	case v.f.Question:
		return but("note_question")
	case !r.namesTool(v.f):
		return but("note_unknown_tool")
	case v.base == approval.Deny:
		return but("note_table_deny")
	case v.base == approval.Ask && v.rule != byTable:
		return but("note_other_rule")
	case (v.always || v.noGrant) && len(r.WhenProven) > 0:
		return but("note_no_proof")
	case (v.always || v.noGrant) && !r.coversArguments(q):
		return but("note_always_asks", "capability", v.f.Capability)
	}
	v.reasons = append(v.reasons, r.reason(yes))
	v.base, v.rule, v.proven = approval.Allow, r.label(), approval.Reason{}
	if len(r.Despite) > 0 && r.closesDestinations(v.f) {
		v.despite = set(r.Despite)
	}
	if len(r.WhenProven) > 0 {
		v.proven = evidence.proven("proven", "", r.WhenProven)
		v.reasons = append(v.reasons, v.proven)
	}
	return true
}

// judgeTrust answers the third question.
func (e *Engine) judgeTrust(v *evaluation, t traits, lifted bool) {
	name := cmp.Or(v.f.Tool, v.f.ActionType)
	if property, reason := t.forbids(); property != "" {
		v.setDeny(byTrust)
		v.addReason(reason, "tool", name, "property", property)
	}
	tainted := e.taintsOf(v.rs, v.f)
	dangerous, trifecta := t.asks(tainted)
	if v.f.Capability == "" && !dangerous && v.base == approval.Allow {
		v.addReason("not_dangerous", "tool", name)
	}
	if dangerous && !lifted {
		v.softAsk = byTrust
		v.addReason("dangerous_writes", "tool", name)
	}
	if trifecta && v.despite[byTrifecta] {
		v.addReason("despite", "rule", v.rule, "what", byTrifecta)
	} else if trifecta {
		v.setHardAsk(byTrifecta)
		v.addReason("trifecta", append(e.readBy(v.f), "tool", name, "target", v.f.Target)...)
		v.change = append(v.change, approval.Because("clear_taints", "workspace", v.f.Workspace))
		v.suggestDespite(byTrifecta)
	}
}

func (e *Engine) taintsOf(rs *ruleset, f *approval.Facts) map[string]bool {
	s := e.accountView(f.Workspace).taintSet(f.SessionID, rs.bound[f.Workspace])
	if rs.secrets[f.Workspace] {
		s[grant.TaintSecret] = true
	}
	for k, b := range e.reservations { // reads in progress
		if k.Workspace == f.Workspace && k.ID != f.RequestID && (!rs.bound[k.Workspace] || b.session == f.SessionID) {
			for _, t := range b.taints {
				s[t] = true
			}
		}
	}
	return s
}

// readBy names what the client has read that taints it: the capability or tool, and where.
func (e *Engine) readBy(f *approval.Facts) (args []string) {
	a := e.accountView(f.Workspace)
	for _, x := range []struct{ kind, what string }{{grant.TaintCorruption, "strangers"}, {grant.TaintSecret, "secrets"}} {
		r, n := a.taintRead(f.SessionID, x.kind)
		if n > 0 {
			args = append(args, x.what, r.by(), x.what+"_in", r.Target)
		}
		if n > 1 {
			args = append(args, x.what+"_n", strconv.Itoa(n))
		}
	}
	return args
}

// judgeSecrets applies what the tool says of secrets: ask, unless it says otherwise.
func (v *evaluation) judgeSecrets(found []approval.Finding) {
	byTool := v.f.Secrets
	switch {
	case len(found) == 0:
		return
	case byTool == approval.Allow.String():
		v.addReason("secret_allow", "tool", v.f.Tool, "kind", found[0].Kind)
		return
	case byTool == approval.Deny.String():
		v.setDeny(bySecrets)
	case v.despite[bySecrets]:
		v.addReason("despite", "rule", v.rule, "what", bySecrets)
		return
	default:
		v.setHardAsk(bySecrets)
		v.suggestDespite(bySecrets)
	}
	for _, s := range found {
		code := "secret"
		if byTool == approval.Deny.String() {
			code = "secret_deny"
		}
		v.addReason(code, "where", s.Where, "kind", s.Kind, "n", strconv.Itoa(s.Length))
	}
}

// suggestDespite says that a rule could lift what asks, of a configured tool.
func (v *evaluation) suggestDespite(what string) {
	if v.f.Tool != "" && v.f.KnownTool && !v.f.Question {
		v.change = append(v.change, approval.Because("rule_despite", "tool", v.f.Tool, "what", what))
	}
}

// applyGrants answers the fifth question.
func (e *Engine) applyGrants(v *evaluation, r *approval.Ruling) {
	if e.grants == nil || v.rs.ungranted {
		return
	}
	h, why := e.grants.covering(v.q, r.Exact, v.command)
	if h == nil {
		if why != "" {
			r.Reasons = append(r.Reasons, approval.Because(why))
		}
		return
	}
	r.Outcome, r.Rule, r.Grant, r.Change, r.Soft = approval.Allow, byGrant, h.ID, nil, false
	if h.Form == grant.Program { // the program uses it, once
		r.Grant, v.q.program = "", h.ID
	}
	r.Reasons = append(r.Reasons, approval.Because("grant",
		"kind", h.Form, "grant", h.ID, "by", h.By, "date", h.CreatedAt.UTC().Format(time.DateOnly)))
}

// Taints lists the taints of a workspace by session. "" is the complete workspace.
func (e *Engine) Taints(ws string) map[string][]string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	all := map[string][]string{}
	if a := e.accounts[ws]; a != nil {
		for session, s := range a.Taints {
			for _, kind := range slices.Sorted(maps.Keys(s)) {
				if s[kind].N > 0 {
					all[session] = append(all[session], kind)
				}
			}
		}
	}
	if e.current().secrets[ws] && !slices.Contains(all[""], grant.TaintSecret) {
		all[""] = append(all[""], grant.TaintSecret)
	}
	return all
}
