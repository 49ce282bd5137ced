package chat

import (
	"cmp"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// programMessages are the words of the card of a program.
type programMessages struct {
	// Effects, for the object.
	OneEmail, Emails, To, ToUnknown, OneFile, Files   string
	OneRequest, Requests, Once, Times, Total, NoCalls string
	// The meta line, warnings, and what is known of the plan.
	OneCall, Calls, CannotUndo, NotKnown    string
	Needs, Complete                         string
	NoMail, NoFile, NoCommand, NoMoney      string
	NoHTTP, NoMessage                       string
	Only, OnlyMail, Under, UnderAny, AtMost string
	Sum, AtMostSum, None, Unique            string
	Proved, Refuted                         string
	Unknown, UnknownStep                    string
	// The trace.
	Trace, ByTool, Continues, Step, Steps, Try string
	Differs, InTurn, SameBut                   string
	Result, ResultPart                         string
	OfStep, OfLast, OfEarlier                  string
	HasRun, HasRunIn, Results, Failed          string
	// The source, why, and changes.
	Source, LongSource, StepReasons, OneStep, ManySteps, SameSource, SourceChanged, TraceChanged string
}

// flat is p with the arguments of all calls of its program, and its source, as if they were arguments of p: so the
// Redactor searches them. A value that stands there twice is there once.
func flat(p *approval.Pending) *approval.Pending {
	if p.Plan == nil {
		return p
	}
	q, seen := *p, map[string]bool{}
	q.Runs.Args = map[string]approval.Argument{}
	var fields []codec.Field
	add := func(prefix, name string, a approval.Argument, v approval.Raw) {
		if key := a.Type + " " + name + " " + string(v); !seen[key] {
			seen[key] = true
			q.Runs.Args[prefix+name] = a
			fields = append(fields, codec.Field{Name: prefix + name, Value: v})
		}
	}
	for i, c := range (renderer{p: p}).steps() {
		prefix := strconv.Itoa(i+1) + "."
		all, err := codec.Fields(c.p.RequestData)
		if err != nil {
			add(prefix, "data", approval.Argument{Type: facts.TypeText}, codec.Quote(string(c.p.RequestData)))
		}
		for _, f := range all {
			a := c.argument(f)
			if _, named := c.p.Runs.Args[a.Currency]; named {
				a.Currency = prefix + a.Currency
			}
			add(prefix, f.Name, a, f.Value)
		}
		for _, ref := range p.Plan.Steps[i].Opaque {
			add(prefix, ref.Arg, approval.Argument{Type: facts.TypePath}, codec.Quote(ref.At)) // never masked
		}
	}
	add("", "program", approval.Argument{Type: facts.TypeText}, codec.Quote(p.Plan.Source))
	q.RequestData = codec.Object(fields)
	return &q
}

// steps are the renderers of the steps of a program, each as a request of its own. A file that a step writes is not
// compared with what is there.
func (r renderer) steps() []renderer {
	all := make([]renderer, len(r.p.Plan.Steps))
	for i := range all {
		s := &r.p.Plan.Steps[i]
		args := maps.Clone(s.Declared)
		for name, a := range args {
			a.Writes = ""
			args[name] = a
		}
		all[i] = r
		all[i].step = true
		all[i].opaque = nil
		for _, ref := range s.Opaque {
			all[i].opaque = append(all[i].opaque, ref.Arg)
		}
		all[i].p = &approval.Pending{
			Type: approval.TypeAction, ToolName: s.Tool, ToolSHA256: s.ToolSHA256, SourceGroup: r.p.SourceGroup, RequestData: s.Data,
			Capability: s.Capability, Target: s.Target, Reversibility: s.Reversibility, Ruling: s.Ruling, OwnDomains: r.p.OwnDomains,
			Runs: approval.Runs{Args: args},
		}
	}
	return all
}

// calls are the calls that an approval starts: the request itself, or the steps of its program that have not run.
func (r renderer) calls() (all []renderer) {
	if r.p.Plan == nil {
		return []renderer{r}
	}
	for i, c := range r.steps() {
		if !r.p.Plan.Steps[i].Done() {
			all = append(all, c)
		}
	}
	return all
}

// few are the different lines. None is left out: many harmless warnings would hide one that is not.
func (r renderer) few(lines []string) []string {
	if r.p.Plan == nil {
		return lines
	}
	return distinct(lines)
}

// atMost cuts lines, and counts the rest behind a sign.
func (r renderer) atMost(lines []string, most int, sign string) []string {
	if n := len(lines) - most; n > 0 {
		return append(lines[:most:most], sign+Format(r.Evidence.More, "n", strconv.Itoa(n)))
	}
	return lines
}

func distinct(texts []string) (all []string) {
	seen := map[string]bool{}
	for _, s := range texts {
		if !seen[s] {
			seen[s] = true
			all = append(all, s)
		}
	}
	return all
}

// one is the form for one, or the form for n.
func one(n int, single, several string) string {
	if n == 1 {
		return single
	}
	return Format(several, "n", strconv.Itoa(n))
}

// effects is what a program would do, by tool in the order of the first call.
func (r renderer) effects() string {
	byTool, order := map[string][]renderer{}, []string(nil)
	for _, c := range r.calls() {
		tool := c.p.ToolName
		if byTool[tool] == nil {
			order = append(order, tool)
		}
		byTool[tool] = append(byTool[tool], c)
	}
	var parts []string
	for _, tool := range order {
		parts = append(parts, effect(byTool[tool]))
	}
	if len(parts) == 0 {
		return upperFirst(r.Program.NoCalls)
	}
	return upperFirst(r.list(parts, maxItems, ", "))
}

// effect is what the calls of one tool would do, in the words of its capability.
func effect(calls []renderer) string {
	r, n, w := calls[0], len(calls), &calls[0].Program
	values := func(types ...string) (all []string, known bool) {
		known = true
		for _, c := range calls {
			fields := codec.FirstFields(c.p.RequestData)
			for _, name := range slices.Sorted(maps.Keys(c.p.Runs.Args)) {
				a := c.p.Runs.Args[name]
				i := slices.IndexFunc(fields, func(f codec.Field) bool { return f.Name == name })
				switch {
				case !slices.Contains(types, a.Type):
				case i < 0:
					known = known && a.Optional && !slices.Contains(c.opaque, name)
				default:
					texts, _, ok := textsOf(fields[i].Value)
					all, known = append(all, texts...), known && ok
				}
			}
		}
		return all, known
	}
	switch r.p.Capability {
	case "mail:send":
		texts, known := values(facts.TypeRecipients)
		var people []string
		for _, one := range recipientsIn(texts) {
			people = append(people, cmp.Or(strings.ToLower(one.Address), one.Text))
		}
		people = distinct(people)
		emails := one(n, w.OneEmail, w.Emails)
		switch {
		case !known:
			return emails + w.ToUnknown
		case len(people) == 1:
			return emails + Format(w.To, "who", r.plainOrQuoteShort(people[0]))
		}
		return emails + Format(w.To, "who", (typedValue{renderer: r}).number(len(people)))
	case "fs:write":
		if paths, known := values(facts.TypePath); known && len(paths) > 0 {
			return one(len(distinct(paths)), w.OneFile, w.Files)
		}
	case "network:http":
		texts, known := values(facts.TypeURL, facts.TypeHost)
		for i, s := range texts {
			if place := facts.PlaceOf(s); strings.Contains(s, "://") && !place.Odd {
				texts[i] = place.Host
			}
		}
		if known && len(texts) > 0 {
			return Format(one(n, w.OneRequest, w.Requests), "hosts", r.values(distinct(texts), maxTargets)) + total(calls)
		}
	}
	return Format(one(n, w.Once, w.Times), "tool", r.tool()) + total(calls)
}

// total is the sum of the amounts of calls, "" if there is none in one currency.
func total(calls []renderer) string {
	sum, digits, currency := new(big.Rat), 0, ""
	for _, c := range calls {
		for _, f := range codec.FirstFields(c.p.RequestData) {
			t := typedValue{renderer: c, arg: c.argument(f), name: f.Name}
			if t.arg.Type != facts.TypeAmount {
				continue
			}
			text, isText := f.Text()
			if !isText {
				text = compact(f.Value)
			}
			a, of := facts.AmountOf(text), t.currency()
			if !a.Valid || a.Exponent || !facts.IsCurrency(of) || currency != "" && currency != of {
				return ""
			}
			n, _ := new(big.Rat).SetString(text)
			_, fraction, _ := strings.Cut(text, ".")
			sum, digits, currency = sum.Add(sum, n), max(digits, len(fraction)), of
		}
		for _, name := range c.opaque {
			if c.p.Runs.Args[name].Type == facts.TypeAmount {
				return ""
			}
		}
	}
	if currency == "" {
		return ""
	}
	return Format(calls[0].Program.Total, "sum", sum.FloatString(digits)+" "+currency)
}

// callCount says how many calls an approval of a program starts.
func (r renderer) callCount() string { return one(len(r.calls()), r.Program.OneCall, r.Program.Calls) }

// stepsWhere are the numbers of the steps that have not run and of which f holds.
func (r renderer) stepsWhere(f func(s *approval.Step) bool) (numbers []int) {
	for i := range r.p.Plan.Steps {
		if s := &r.p.Plan.Steps[i]; !s.Done() && f(s) {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// planWarnings say which steps cannot be undone, if others can, and where a place is not known yet.
func (r renderer) planWarnings() (lines []string) {
	if r.p.Plan == nil {
		return nil
	}
	undoable := func(s *approval.Step) bool {
		return s.Reversibility == approval.Reversible || s.Reversibility == approval.Partial
	}
	final := r.stepsWhere(func(s *approval.Step) bool { return !undoable(s) })
	if len(final) > 0 && len(r.stepsWhere(undoable)) > 0 {
		lines = append(lines, Format(r.Program.CannotUndo, "steps", r.stepsText(final)))
	}
	unknown, order := map[string][]int{}, []string(nil)
	for i := range r.p.Plan.Steps {
		if r.p.Plan.Steps[i].Done() {
			continue
		}
		for _, ref := range r.p.Plan.Steps[i].Opaque {
			switch s := &r.p.Plan.Steps[i]; s.Declared[ref.Arg].Type {
			case facts.TypeRecipients, facts.TypePath, facts.TypeHost, facts.TypeURL, facts.TypeAmount, facts.TypeCommand:
				of := Escape(s.Tool) + ": " + r.name(ref.Arg)
				if unknown[of] == nil {
					order = append(order, of)
				}
				unknown[of] = append(unknown[of], i+1)
			}
		}
	}
	for _, of := range order {
		lines = append(lines, Format(r.Program.NotKnown, "what", of, "steps", r.stepsText(unknown[of])))
	}
	return r.few(lines)
}

// planFacts says what a plan guarantees, the worst first, how far it goes, and what a complete one never does.
func (r renderer) planFacts() (all []Known) {
	plan, w := r.p.Plan, &r.Program
	rank := []string{approval.GuaranteeRefuted, approval.GuaranteeUnknown, approval.GuaranteeProved}
	sorted := slices.Clone(plan.Guarantees)
	slices.SortStableFunc(sorted, func(a, b approval.Guarantee) int { return slices.Index(rank, a.State) - slices.Index(rank, b.State) })
	for i := range sorted {
		g := &sorted[i]
		from, form := fromUnknown, w.Unknown
		switch {
		case g.State == approval.GuaranteeProved:
			from, form = FromPlan, w.Proved
		case g.State == approval.GuaranteeRefuted:
			form = w.Refuted
		case g.Step > 0:
			form = w.UnknownStep
		}
		if i == maxClaims {
			all = append(all, Known{fromUnknown, Format(r.Evidence.More, "n", strconv.Itoa(len(sorted)-i))})
			break
		}
		all = append(all, Known{from, Format(form, "what", r.guarantee(g), "step", strconv.Itoa(g.Step))})
	}
	if plan.Needs != nil {
		needs := Format(w.Needs, "step", strconv.Itoa(plan.Needs.Step), "last", strconv.Itoa(len(plan.Steps)))
		return append(all, Known{fromUnknown, needs})
	}
	never := r.never()
	var texts []string
	for _, t := range slices.Sorted(maps.Keys(never)) {
		texts = append(texts, never[t])
	}
	if len(texts) > 0 {
		all = append(all, Known{FromPlan, Format(w.Complete, "facts", strings.Join(texts, ", "))})
	}
	return all
}

// never are the sentences of what no step of a complete plan does, by topic. A command may do anything, and so may a
// tool without a capability.
func (r renderer) never() map[topic]string {
	if r.p.Plan == nil || r.p.Plan.Needs != nil {
		return nil
	}
	all := map[topic]string{
		aboutMail: r.Program.NoMail, aboutFiles: r.Program.NoFile, aboutMoney: r.Program.NoMoney, aboutHosts: r.Program.NoHTTP,
		aboutPeople: r.Program.NoMessage, aboutRun: r.Program.NoCommand,
	}
	topics := map[string]topic{"mail:send": aboutMail, "fs:write": aboutFiles, "network:http": aboutHosts, "channel:out": aboutPeople}
	for i := range r.p.Plan.Steps {
		s := &r.p.Plan.Steps[i]
		if s.Capability == "" || s.Capability == "code:exec" {
			return nil
		}
		delete(all, topics[s.Capability])
		if s.Capability == "network:http" {
			delete(all, aboutMoney) // it may pay without an argument that is an amount
		}
		for _, a := range s.Declared {
			if a.Type == facts.TypeAmount {
				delete(all, aboutMoney)
			}
		}
	}
	return all
}

// neverAbout is the sentence of never that answers questions about a topic, "" if none does.
func (r renderer) neverAbout(t topic) string {
	if r.p.Plan == nil || t == aboutPeople || t == aboutFiles && slices.ContainsFunc(r.p.Plan.Steps, func(s approval.Step) bool { return s.Capability == "fs:read" }) {
		return ""
	}
	return r.never()[t]
}

// guarantee is what a program promises, without whether it holds.
func (r renderer) guarantee(g *approval.Guarantee) string {
	w, form := &r.Program, ""
	switch g.Kind {
	case approval.GuaranteeOnly:
		form = w.Only
		if slices.ContainsFunc(r.p.Plan.Steps, func(s approval.Step) bool { return s.Tool == g.Tool && mailsOnlyTo(&s, g.Arg) }) {
			form = w.OnlyMail
		}
	case approval.GuaranteeOnlyUnder:
		form = w.Under
		if g.Tool == "" {
			form = w.UnderAny
		}
	case approval.GuaranteeAtMost:
		form = w.AtMost
	case approval.GuaranteeSum:
		if form = w.Sum; g.Max > 0 {
			form = w.AtMostSum
		}
	case approval.GuaranteeNone:
		form = w.None
	case approval.GuaranteeUnique:
		form = w.Unique
	default:
		return r.plainOrQuoteShort(g.Kind)
	}
	sum := strings.TrimSuffix(r.text(g.Sum)+" "+r.text(g.Currency), " ")
	return Format(form, "tool", r.plainOrQuoteShort(g.Tool), "arg", r.plainOrQuoteShort(g.Arg), "values", r.values(g.Values, maxValues),
		"n", strconv.FormatInt(g.Max, 10), "sum", sum)
}

// mailsOnlyTo reports whether a step sends mail to what this argument names, and to no other.
func mailsOnlyTo(s *approval.Step, arg string) bool {
	for name, a := range s.Declared {
		if (a.Type == facts.TypeRecipients) != (name == arg) {
			return false
		}
	}
	return s.Capability == "mail:send" && s.Declared[arg].Type == facts.TypeRecipients
}

// stepsText names steps: "step 3", "steps 3-5, 7".
func (r renderer) stepsText(numbers []int) string {
	if len(numbers) == 1 {
		return Format(r.Program.OneStep, "n", ranges(numbers))
	}
	return Format(r.Program.ManySteps, "n", ranges(numbers))
}

// stepReasons says which steps are asked about, and why.
func (r renderer) stepReasons() (lines []string) {
	if r.p.Plan == nil {
		return nil
	}
	steps, order := map[string][]int{}, []string(nil)
	for i := range r.p.Plan.Steps {
		s := &r.p.Plan.Steps[i]
		if s.Ruling.Outcome == approval.Allow || s.Done() {
			continue
		}
		why := Escape(s.Tool) + ": " + r.joinReasons(outcomeReasons(s.Ruling))
		if steps[why] == nil {
			order = append(order, why)
		}
		steps[why] = append(steps[why], i+1)
	}
	for _, why := range order {
		lines = append(lines, Format(r.Program.StepReasons, "steps", r.stepsText(steps[why]), "why", why))
	}
	return r.atMost(lines, maxItems, "")
}

// A longer source of a program is not on the card, but with why it is asked about.
const (
	maxSource      = 8 // lines
	maxSourceBytes = 1500
)

// source is the text of a program, quoted as the agent's. short says that it belongs on the card.
func (r renderer) source() (lines []string, short bool) {
	if r.p.Plan == nil {
		return nil, true
	}
	s := strings.TrimSuffix(r.p.Plan.Source, "\n")
	lines = []string{r.Program.Source + ":"}
	for _, l := range r.blockLines(s, r.secrets(r.p.Plan.Source)) {
		lines = append(lines, withBar(l))
	}
	return lines, len(lines)-1 <= maxSource && len(s) <= maxSourceBytes
}

// shortSource is the source on the card, or where it is.
func (r renderer) shortSource() []string {
	lines, short := r.source()
	if short {
		return lines
	}
	return []string{Format(r.Program.LongSource, "n", strconv.Itoa(len(lines)-1))}
}

// longSource is a source that is not on the card.
func (r renderer) longSource() []string {
	if lines, short := r.source(); !short {
		return lines
	}
	return nil
}

// planEvidence are the facts of the arguments of all steps, as of one request.
func (r renderer) planEvidence() (all []approval.HostFact) {
	for _, c := range r.calls() {
		data := codec.FirstFields(c.p.RequestData)
		for _, name := range c.opaque {
			data = append(data, codec.Field{Name: name, Value: approval.Raw("{}")}) // counted as a value that is not listed
		}
		tool := approval.Tool{Name: c.p.ToolName, Capability: c.p.Capability, Args: c.p.Runs.Args}
		of := facts.Of(tool, &approval.Request{Type: approval.TypeAction, ToolName: tool.Name, RequestData: codec.Object(data)}, nil, r.p.Timestamp).Host
		for _, f := range of {
			i := slices.IndexFunc(all, func(h approval.HostFact) bool {
				return h.Domain == f.Domain && h.Op == f.Op && h.Name == f.Name && h.From == f.From && h.Currency == f.Currency
			})
			if i < 0 {
				all = append(all, f)
				continue
			}
			all[i].Values, all[i].Omitted = append(all[i].Values, f.Values...), all[i].Omitted+f.Omitted
		}
	}
	for i := range all {
		if all[i].Domain != facts.Money {
			all[i].Values = distinct(all[i].Values)
		}
	}
	return all
}
