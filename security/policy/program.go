package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
)

// byProgram is the rule of a program that calls nothing.
const byProgram = approval.ActionProgram

// JudgeProgram rules on the steps of a program that have not run, in their order. Each is judged as if asked alone, after
// the earlier ones have run: their rates, costs and taints count. run is the ruling on all of them, the strictest. It
// writes nothing.
func (e *Engine) JudgeProgram(steps []approval.Facts) (run approval.Ruling, each []approval.Ruling) {
	return (&View{e: e}).JudgeProgram(steps)
}

// JudgeProgram is Engine.JudgeProgram with this configuration.
func (w *View) JudgeProgram(steps []approval.Facts) (run approval.Ruling, each []approval.Ruling) {
	e := w.e
	steps = slices.Clone(steps)
	requests, found := make([]*request, len(steps)), make([][]approval.Finding, len(steps))
	for i := range steps { // outside the lock, as in Judge
		f := &steps[i]
		f.Autonomy = grant.LowerLevel(f.Autonomy, grant.Full)
		if e.Scan != nil {
			found[i] = e.Scan(f)
		}
		requests[i] = e.request(f)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.init()
	rs := w.rules()
	for i, q := range requests {
		if i > 0 && sameFacts(q.Evidence, requests[i-1].Evidence) {
			q.evidence = requests[i-1].evidence
		} else {
			q.evidence = &evidenceIndex{of: &q.Evidence, resolve: once(e.Resolve)}
		}
		r := e.judge(rs, q, found[i])
		each = append(each, r)
		k := approval.Key{Workspace: q.Workspace, ID: q.RequestID}
		if _, running := e.reservations[k]; running {
			continue
		}
		b := reservationOf(q.Facts, r)
		e.reservations[k] = b
		e.reserve(b, 1)
		defer func() {
			delete(e.reservations, k)
			e.reserve(b, -1)
		}()
	}
	return runOf(requests, each), each
}

// sameFacts says whether two pieces of evidence are the same one. Then it is checked once.
func sameFacts(a, b approval.Evidence) bool {
	return len(a.Host) > 0 && len(a.Host) == len(b.Host) && &a.Host[0] == &b.Host[0] && a.Proof == nil && b.Proof == nil
}

// once returns a function that resolves each path once. Nil stays nil.
func once(resolve func(string) (string, error)) func(string) (string, error) {
	if resolve == nil {
		return nil
	}
	type result struct {
		leads string
		err   error
	}
	known := map[string]result{}
	return func(name string) (string, error) {
		r, ok := known[name]
		if !ok {
			r.leads, r.err = resolve(name)
			known[name] = r
		}
		return r.leads, r.err
	}
}

// runOf is the ruling on a program whose steps have these rulings.
func runOf(steps []*request, each []approval.Ruling) approval.Ruling {
	if len(each) == 0 {
		return approval.Ruling{Outcome: approval.Allow, Rule: byProgram, Reasons: []approval.Reason{approval.Because("program_empty")}}
	}
	first := slices.MinFunc(each, func(a, b approval.Ruling) int { return strictness(a) - strictness(b) })
	run := approval.Ruling{Outcome: first.Outcome, Rule: first.Rule, Soft: first.Soft}
	for i, r := range each {
		if run.Outcome == approval.Allow {
			run.Grant = cmp.Or(run.Grant, steps[i].program)
		}
		run.Cost = run.Cost.Plus(r.Cost)
		run.Secrets = append(run.Secrets, r.Secrets...)
		for _, kind := range r.Taints {
			if !slices.Contains(run.Taints, kind) {
				run.Taints = append(run.Taints, kind)
			}
		}
		if run.Links == nil && r.Links != nil {
			run.Links = map[string]string{}
		}
		maps.Copy(run.Links, r.Links)
		if strictness(r) != strictness(first) {
			continue
		}
		if run.Proven.IsZero() {
			run.Proven = r.Proven
		}
		run.Change, _ = addNew(run.Change, r.Change)
		if all, added := addNew(run.Reasons, r.Reasons); added {
			_, n := approval.CutStep(steps[i].RequestID)
			step := approval.Because("program_step", "step", strconv.Itoa(max(n, i+1)), "tool", steps[i].Tool)
			run.Reasons = slices.Insert(all, len(run.Reasons), step)
		}
	}
	return run
}

// strictness orders rulings, the strictest first: an ask that no grant lifts is stricter than one that a grant lifts.
func strictness(r approval.Ruling) int {
	n := 2 * int(r.Outcome)
	if r.Soft {
		n++
	}
	return n
}

// addNew adds the reasons that are not there.
func addNew(all, reasons []approval.Reason) (_ []approval.Reason, added bool) {
	for _, r := range reasons {
		if !slices.ContainsFunc(all, func(x approval.Reason) bool { return x.Code == r.Code && maps.Equal(x.Args, r.Args) }) {
			all, added = append(all, r), true
		}
	}
	return all, added
}

// isRun says whether a request is a program, and not one of its steps.
func isRun(f *approval.Facts) bool {
	return f.Tool == "" && f.ActionType == approval.ActionProgram && f.Program != nil
}

// stepOf is the number of a step, 0 of a request that is none.
func stepOf(f *approval.Facts) int {
	if f.Program == nil {
		return 0
	}
	_, n := approval.CutStep(f.RequestID)
	return n
}

// isRepeatable says whether a grant may cover a step as it is, digest and all. A command that is not known yet is no
// "same again".
func isRepeatable(f *approval.Facts, exact string) bool {
	return !onlyAgain(f) || exact != "" && !slices.ContainsFunc(f.Opaque, func(name string) bool {
		kind := f.Declared[name].Type
		return kind == facts.TypeCommand || kind == facts.TypeProgram
	})
}

// judgeRun rules on the claim of a program. It consumes nothing but one use of the grant that allows its steps: they are
// judged at their own claims.
func (e *Engine) judgeRun(f *approval.Facts, byGrant string) approval.Ruling {
	r := approval.Ruling{Outcome: approval.Allow, Grant: byGrant}
	if byGrant == "" {
		return r
	}
	h, why := e.grants.covering(&request{Facts: f}, "", command{})
	if h != nil {
		r.Grant = h.ID
		return r
	}
	return approval.Ruling{Outcome: approval.Ask, Rule: byProgram, Reasons: []approval.Reason{approval.Because(cmp.Or(why, "grant_revoked"))}}
}

// OffersProgram says what approvals of a program would remember: exactly this program, with exactly this plan. A plan
// that passes on a result that is not known yet is not the same a second time, so nothing is offered for it. f is the
// program's request, steps are what JudgeProgram was given, and given is what it returned.
func (w *View) OffersProgram(f approval.Facts, steps []approval.Facts, given approval.Ruling) []approval.Offer {
	e := w.e
	e.mu.Lock()
	defer e.mu.Unlock()
	e.init()
	f.Cost = given.Cost
	opaque := slices.ContainsFunc(steps, func(s approval.Facts) bool { return len(s.Opaque) > 0 })
	blocked := slices.ContainsFunc(steps, func(s approval.Facts) bool { return e.blocksItself(&s, given.Taints) })
	var offers []approval.Offer
	for _, s := range []approval.Scope{approval.Session, approval.Always} {
		o := approval.Offer{Scope: s, Hours: hoursOf(s)}
		o.Terms, o.WhyNot = e.termsOf(&f, given, s)
		switch {
		case opaque:
			o.WhyNot = approval.Because("program_opaque")
		case o.WhyNot.IsZero() && blocked:
			o.WhyNot = approval.Because("asked_anyway", "rule", byTrifecta)
		}
		if !o.WhyNot.IsZero() {
			o.Terms, o.Hours = approval.Terms{}, 0
		}
		offers = append(offers, o)
	}
	return offers
}

// OffersProgram is View.OffersProgram with the current configuration.
func (e *Engine) OffersProgram(f approval.Facts, steps []approval.Facts, given approval.Ruling) []approval.Offer {
	return (&View{e: e}).OffersProgram(f, steps, given)
}

// matchProgram compares the program of a step. An allow matches only a plan that reaches the program's end; where the
// tools, or the number of steps or calls, count, nothing else can be told either.
func (x *rule) matchProgram(f *approval.Facts) matchResult {
	switch p := f.Program; {
	case x.Program == "":
		return yes
	case x.Program == isFalse:
		return yesIf(p == nil)
	case p == nil, x.MaxSteps > 0 && p.Steps > x.MaxSteps, x.MaxCalls > 0 && p.Calls[f.Tool] > x.MaxCalls,
		len(x.Tools) > 0 && slices.ContainsFunc(p.Tools, func(name string) bool { return !x.Tools.Include(name) }):
		return no
	case p.Whole, x.Outcome != approval.Allow && !x.boundsProgram():
		return yes
	}
	return unknown
}

// checkProgram refuses keys that contradict each other.
func (r Rule) checkProgram() error {
	switch {
	case r.Program != "" && r.Program != isTrue && r.Program != isFalse:
		return fmt.Errorf("program is true or false, not %q", r.Program)
	case r.Program != isTrue && r.boundsProgram():
		return errors.New("tools, max_steps and max_calls are of a program: add program = true")
	case r.MaxSteps < 0 || r.MaxSteps > approval.MaxSteps:
		return fmt.Errorf("max_steps is a number from 1 to %d", approval.MaxSteps)
	case r.MaxCalls < 0 || r.MaxCalls > approval.MaxSteps:
		return fmt.Errorf("max_calls is a number from 1 to %d", approval.MaxSteps)
	}
	return nil
}

// boundsProgram says whether the rule depends on what the whole plan calls.
func (r Rule) boundsProgram() bool { return len(r.Tools) > 0 || r.MaxSteps != 0 || r.MaxCalls != 0 }

// coversProgram says whether the rule applies to every program that another one applies to.
func (r Rule) coversProgram(other Rule) bool {
	return (r.Program == "" || r.Program == other.Program) && r.Tools.cover(other.Tools) &&
		coversMax(r.MaxSteps, other.MaxSteps) && coversMax(r.MaxCalls, cmp.Or(other.MaxCalls, other.MaxSteps))
}

// coversMax says whether all that is at most other is at most n. 0 is no maximum.
func coversMax(n, other int) bool { return n == 0 || other > 0 && other <= n }
