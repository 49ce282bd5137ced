package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// # What is proven
//
// A rule's clauses are checked against verified effects and against arguments that
// the gate read, never against the agent's claims. If a request has a program or a
// command line, only a verified proof says what it does. Otherwise the tool's
// arguments do, as the operator declared them. What is unknown is not proven: a
// domain without evidence, a value that is not plain text, a value left out, a path
// that may be another one.

// ClauseKind is a kind of clause.
type ClauseKind string

// The closed set of clauses.
const (
	Only   ClauseKind = "only"    // every value of Arg is one of Values
	Under  ClauseKind = "under"   // every value of Arg is, also with links resolved, a path in or equal to one of the folders in Values
	Unique ClauseKind = "unique"  // no value of Arg occurs twice
	AtMost ClauseKind = "at_most" // at most Max effects or, with Arg, the one value of Values at most Max times
	// The amounts of all effects, each as often as it occurs, are in Currency, and their sum is at most Sum.
	SumAtMost ClauseKind = "sum_at_most"
)

// ClauseKinds lists the closed set.
func ClauseKinds() []ClauseKind { return []ClauseKind{Only, Under, Unique, AtMost, SumAtMost} }

// Clause is a condition that a rule requires a proof of.
type Clause struct {
	Domain string // of effects: mail, file, …; synonyms are accepted
	Op     string // "": any operation
	Kind   ClauseKind
	Arg    string // recipient, path, …, singular or plural; "" with AtMost counts effects
	Values []string
	Max    int
	// Of SumAtMost: a decimal number, and a currency as amounts have it.
	Sum, Currency string
}

const maxValues = 1000 // of one clause

// Check refuses an invalid clause.
func (c Clause) Check() error {
	domain := facts.CanonicalDomain(c.Domain)
	switch {
	case domain == "":
		return errors.New("a clause names no domain")
	case domain == facts.Command || domain == facts.Program || domain == facts.Digest:
		return fmt.Errorf("nothing can be proven of the domain %q: name what it touches, such as file or mail", c.Domain)
	case !slices.Contains(ClauseKinds(), c.Kind):
		return fmt.Errorf("%q is not a clause: use only, under, unique, at_most or sum_at_most", string(c.Kind))
	case c.Arg == "" && c.Kind != AtMost && c.Kind != SumAtMost:
		return fmt.Errorf("%s needs an argument", c.Kind)
	case len(c.Values) > maxValues:
		return fmt.Errorf("%s has more than %d values", c.Kind, maxValues)
	}
	return c.checkValues()
}

func (c Clause) checkValues() error {
	switch c.Kind {
	case Only, Under:
		if len(c.Values) == 0 {
			return fmt.Errorf("%s needs a value", c.Kind)
		}
	case Unique:
		if len(c.Values) > 0 {
			return errors.New("unique takes no values")
		}
	case AtMost:
		if c.Max < 0 || (c.Arg == "") != (len(c.Values) == 0) || len(c.Values) > 1 {
			return errors.New("at_most limits all effects, or one value of one argument")
		}
		if facts.CanonicalArg(c.Arg) == amountArg {
			return fmt.Errorf("at_most = %d counts how often the amount %s occurs: sum_at_most limits the sum of all amounts", c.Max, c.Values[0])
		}
	case SumAtMost:
		if _, ok := decimal(c.Sum); !ok || c.Arg != "" || len(c.Values) > 0 {
			return errors.New("sum_at_most limits the sum of all amounts to a number such as 20.00")
		}
		if len(c.Currency) < 2 || len(c.Currency) > 10 || strings.ContainsFunc(c.Currency, notAlphanumeric) {
			return errors.New("sum_at_most needs the currency of the amounts, such as EUR")
		}
	}
	if c.Kind != SumAtMost && c.Sum+c.Currency != "" {
		return fmt.Errorf("%s takes no sum and no currency", c.Kind)
	}
	if c.Kind != AtMost && c.Max != 0 {
		return fmt.Errorf("%s takes no number", c.Kind)
	}
	for _, v := range c.Values {
		if c.Kind == Under {
			if _, ok := components(v); !ok {
				return fmt.Errorf("%q is not a valid folder: it must not leave itself with .., or have a pattern, a backslash or invisible characters", v)
			}
			continue
		}
		if _, ok := normalize(c.Arg, v, true); !ok {
			return fmt.Errorf("%q is not a valid value of %s", v, c.Arg)
		}
	}
	return nil
}

// words is the clause as text for a reason. All of it comes from the operator.
func (c *Clause) words() string {
	where := c.Domain
	if c.Op != "" {
		where += " " + c.Op
	}
	switch c.Kind {
	case Only:
		return fmt.Sprintf("%s: every %s is %s", where, facts.CanonicalArg(c.Arg), oneOf(c.Values))
	case Under:
		return fmt.Sprintf("%s: every %s is under %s", where, facts.CanonicalArg(c.Arg), oneOf(c.Values))
	case Unique:
		return fmt.Sprintf("%s: no %s twice", where, facts.CanonicalArg(c.Arg))
	case SumAtMost:
		return fmt.Sprintf("%s: all amounts together at most %s %s", where, c.Sum, c.Currency)
	}
	switch arg := facts.CanonicalArg(c.Arg); arg {
	case "":
		return fmt.Sprintf("%s: at most %d", where, c.Max)
	case recipientArg:
		return fmt.Sprintf("%s: at most %d to %s", where, c.Max, c.Values[0])
	default:
		return fmt.Sprintf("%s: the %s %s at most %d times", where, arg, c.Values[0], c.Max)
	}
}

// oneOf names up to three values.
func oneOf(values []string) string {
	const most = 3
	if len(values) == 1 {
		return values[0]
	}
	if len(values) > most {
		return fmt.Sprintf("one of %s and %d more", strings.Join(values[:most], ", "), len(values)-most)
	}
	return "one of " + strings.Join(values, ", ")
}

// evidenceIndex is the evidence of one request by domain, built on first use.
type evidenceIndex struct {
	of      *approval.Evidence
	resolve func(path string) (string, error) // see Engine.Resolve
	step    int                               // of a program, whose facts must be among those of all steps; 0: of none
	read    bool
	domains map[string]*facts.Domain
	gaps    map[*Clause]approval.Reason // known ones, of all steps
}

func (s *evidenceIndex) domain(name string) *facts.Domain {
	if !s.read {
		s.read, s.domains = true, map[string]*facts.Domain{}
		for _, d := range facts.ByDomain(*s.of) {
			s.domains[d.Domain] = &d
		}
	}
	return s.domains[facts.CanonicalDomain(name)]
}

// proven is a reason that names proven clauses and where the evidence comes from.
func (s *evidenceIndex) proven(code, rule string, clauses []Clause) approval.Reason {
	if p := s.of.Verified(); p != nil && facts.RunsProgram(*s.of) {
		return approval.Because(code, "rule", rule, "clauses", proofs(clauses), "source", "source_proof", "prover", p.Prover)
	}
	return approval.Because(code, "rule", rule, "clauses", proofs(clauses), "source", "source_arguments")
}

// open is a clause that is not proven, and the gap: a code with its args.
type open struct {
	clause string
	gap    approval.Reason
}

// of adds the open clause to the args of a rule's reason. The zero open adds nothing.
func (o open) of(r approval.Reason) approval.Reason {
	args := maps.Clone(o.gap.Args)
	if args == nil {
		args = map[string]string{}
	}
	maps.Copy(args, r.Args)
	r.Args = args
	if o.clause != "" {
		r.Args["clause"] = o.clause
	}
	if !o.gap.IsZero() {
		r.Args["gap"] = o.gap.Code
	}
	return r
}

// missing names the first clause that is not proven. Its gap is zero if all are.
func (s *evidenceIndex) missing(clauses []Clause) open {
	for i := range clauses {
		if gap := s.missingFor(&clauses[i]); !gap.IsZero() {
			return open{clauses[i].words(), gap}
		}
	}
	return open{}
}

// missingFor says why a clause is not proven; none if it is. Of a program's step, the clause must be proven for the whole
// program, and be about the step, too.
func (s *evidenceIndex) missingFor(c *Clause) approval.Reason {
	gap, known := s.gaps[c]
	if !known {
		if s.gaps == nil {
			s.gaps = map[*Clause]approval.Reason{}
		}
		gap = s.missingInAll(c)
		s.gaps[c] = gap
	}
	if gap.IsZero() && s.step > 0 && !slices.ContainsFunc(s.domain(c.Domain).Host, func(h approval.HostFact) bool {
		return (h.Step == 0 || h.Step == s.step) && c.isAbout(&h)
	}) {
		return approval.Because("gap_unknown")
	}
	return gap
}

func (s *evidenceIndex) missingInAll(c *Clause) approval.Reason {
	d := s.domain(c.Domain)
	if facts.RunsProgram(*s.of) {
		if s.of.Verified() == nil {
			return s.whyUnverified()
		}
		if d == nil || !d.Known() {
			return approval.Because("gap_unknown")
		}
		return s.checkEffects(c, d)
	}
	if d == nil {
		return approval.Because("gap_unknown")
	}
	return s.checkFacts(c, d.Host)
}

func (s *evidenceIndex) whyUnverified() approval.Reason {
	if s.of.Proof == nil {
		return approval.Because("gap_no_proof")
	}
	why := s.of.Proof.Why
	gap := approval.Because("gap_claim", "why", why.Code)
	maps.Copy(gap.Args, why.Args)
	return gap
}

// checkEffects checks the clause against a verified proof. An effect without an op
// may be any op.
func (s *evidenceIndex) checkEffects(c *Clause, d *facts.Domain) approval.Reason {
	var values []string
	n, found, sum := 0, false, amounts{currency: c.Currency}
	for _, x := range d.Verified {
		if !c.appliesTo(x.Op) {
			continue
		}
		found = true
		times, each, ok := effectCount(x)
		if !ok {
			return approval.Because("gap_times")
		}
		if c.Kind == SumAtMost {
			if why := sum.addEffect(x, times*max(1, each)); !why.IsZero() {
				return why
			}
		}
		if c.Arg != "" {
			list, whole := facts.ValuesOf(x, c.Arg)
			if !whole {
				return approval.Because("gap_value")
			}
			for range min(times, c.Max+2) {
				values = append(values, list...)
			}
		}
		n += times * max(1, each)
	}
	if !found && !d.Covered {
		return approval.Because("gap_unknown")
	}
	if c.Kind == SumAtMost {
		return sum.atMost(c.Sum)
	}
	return s.check(c, values, n)
}

// recipientArg is the name of recipients, in facts and in effects.
const recipientArg = "recipient"

// recipients counts the recipients in texts that may list several. It also counts the
// commas in names: a clause that finds too many is not proven.
func recipients(texts []string) (n int) {
	for _, s := range texts {
		n += 1 + strings.Count(s, ",") + strings.Count(s, ";") + strings.Count(s, "\n")
	}
	return n
}

// maxTimes bounds how often one effect can happen and be counted.
const maxTimes = 1 << 20

// effectCount says how often an effect happens, from its argument times, and with how
// many recipients each time.
func effectCount(x approval.ProvenEffect) (times, each int, ok bool) {
	fields, err := codec.Fields(x.Args)
	if err != nil {
		return 1, 0, true // no arguments at all
	}
	times = 1
	for _, f := range fields {
		if strings.EqualFold(f.Name, "times") {
			v, err := strconv.Atoi(string(f.Value))
			if err != nil || v < 0 || v > maxTimes {
				return 0, 0, false
			}
			times = max(times, v)
		}
		if facts.CanonicalArg(f.Name) == recipientArg {
			list, whole := facts.ValuesOf(x, f.Name)
			if !whole {
				return 0, 0, false
			}
			each = recipients(list)
		}
	}
	return times, each, true
}

// isAbout says whether the clause is about a fact.
func (c *Clause) isAbout(h *approval.HostFact) bool {
	if h.From != facts.FromTemplate && h.From != facts.FromArgument || !c.appliesTo(h.Op) {
		return false
	}
	arg := c.arg()
	return arg == "" || facts.CanonicalArg(h.Name) == arg
}

// checkFacts checks the clause against the arguments that the gate read. Each step of a program is a call of its own.
func (s *evidenceIndex) checkFacts(c *Clause, known []approval.HostFact) approval.Reason {
	var values []string
	calls, ofStep := map[int]int{}, map[int][]string{} // effects and values, by step
	for i := range known {
		h := &known[i]
		if !c.isAbout(h) {
			continue
		}
		if h.Omitted > 0 {
			return approval.Because("gap_value")
		}
		n := len(h.Values)
		if facts.CanonicalArg(h.Name) == recipientArg {
			n = max(n, recipients(h.Values))
		}
		calls[h.Step] = max(calls[h.Step], n)
		values, ofStep[h.Step] = append(values, h.Values...), append(ofStep[h.Step], h.Values...)
		if c.Kind == SumAtMost && h.Currency != c.Currency {
			return approval.Because("gap_currency")
		}
	}
	switch {
	case len(calls) == 0:
		return approval.Because("gap_unknown")
	case c.Kind == SumAtMost:
		return s.checkSum(c, ofStep)
	}
	n := 0
	for _, each := range calls {
		n += each
	}
	return s.check(c, values, n)
}

// arg is the argument that the clause is about; "": none.
func (c *Clause) arg() string {
	if c.Kind == SumAtMost {
		return amountArg
	}
	return facts.CanonicalArg(c.Arg)
}

func (c *Clause) appliesTo(op string) bool {
	return c.Op == "" || op == "" || strings.EqualFold(c.Op, op)
}

// check checks the clause against all values and n effects.
func (s *evidenceIndex) check(c *Clause, values []string, n int) approval.Reason {
	if c.Kind == AtMost && c.Arg == "" {
		if n > c.Max {
			return approval.Because("gap_count", "n", strconv.Itoa(n))
		}
		return approval.Reason{}
	}
	seen, permitted := map[string]int{}, map[string]bool{}
	for _, v := range c.Values {
		if exact, ok := normalize(c.Arg, v, false); ok {
			permitted[exact] = true
		}
	}
	all := slices.Concat(c.Values, values)
	for _, v := range values {
		wide, why := s.wide(c, v, all[0])
		if !why.IsZero() {
			return why
		}
		seen[wide]++
		if why := s.checkValue(c, v, seen[wide], permitted); !why.IsZero() {
			return why
		}
	}
	if c.Kind == AtMost {
		switch wide, why := s.wide(c, c.Values[0], c.Values[0]); {
		case !why.IsZero():
			return why
		case seen[wide] > c.Max:
			return approval.Because("gap_more")
		}
	}
	return approval.Reason{}
}

// wide returns the form of a value that is the same for all values that may mean the same
// thing. A path has its links resolved. If one of two paths is relative, they may be the
// same.
func (s *evidenceIndex) wide(c *Clause, v, other string) (string, approval.Reason) {
	if c.Kind == Under {
		return "", approval.Reason{}
	}
	form, ok := normalize(c.Arg, v, true)
	switch {
	case !ok:
		return "", approval.Because("gap_not_plain")
	case c.Kind == Only || facts.CanonicalArg(c.Arg) != facts.CanonicalArg("path"):
		return form, approval.Reason{}
	case path.IsAbs(v) != path.IsAbs(other):
		return "", approval.Because("gap_other_path")
	}
	real, ok := s.resolved(v)
	if form, plain := normalize(c.Arg, real, true); ok && plain {
		return form, approval.Reason{}
	}
	return "", approval.Because("gap_link")
}

// resolved returns a path with every link resolved, those before a .. too, as the system
// reads it. A relative path stays: nothing says where it begins.
func (s *evidenceIndex) resolved(p string) (string, bool) {
	switch {
	case !path.IsAbs(p):
		return p, true
	case s.resolve == nil:
		return "", false
	}
	at, err := "/", error(nil)
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			if at, err = s.resolve(at); err != nil {
				return "", false
			}
		}
		at = path.Join(at, part)
	}
	at, err = s.resolve(at)
	return at, err == nil
}

// isUnder says whether a path is in a folder or equal to it, as it is spelled and with
// all links resolved.
func (s *evidenceIndex) isUnder(folder, p string) bool {
	if !isUnder(folder, p) || !path.IsAbs(folder) {
		return isUnder(folder, p)
	}
	realFolder, ok := s.resolved(folder)
	realPath, also := s.resolved(p)
	return ok && also && isUnder(realFolder, realPath)
}

// checkValue checks one value. times is how often it has occurred.
func (s *evidenceIndex) checkValue(c *Clause, v string, times int, permitted map[string]bool) approval.Reason {
	switch c.Kind {
	case Only:
		if exact, ok := normalize(c.Arg, v, false); !ok || !permitted[exact] {
			return approval.Because("gap_other")
		}
	case Under:
		spelled := func(folder string) bool { return isUnder(folder, v) }
		switch {
		case !slices.ContainsFunc(c.Values, spelled):
			return approval.Because("gap_other_path")
		case !slices.ContainsFunc(c.Values, func(folder string) bool { return s.isUnder(folder, v) }):
			return approval.Because("gap_link")
		}
	case Unique:
		if times > 1 {
			return approval.Because("gap_twice")
		}
	}
	return approval.Reason{}
}

// normalize returns the form of a value for comparison. The wide form proves that a
// value is absent: it is the same for all values that may reach the same recipient.
// ok is false for a value that another program could read differently.
func normalize(arg, v string, wide bool) (string, bool) {
	if v == "" || strings.ContainsFunc(v, func(r rune) bool { return r > unicode.MaxASCII || r < ' ' || r == 0x7f }) {
		return "", false
	}
	switch facts.CanonicalArg(arg) {
	case recipientArg:
		return recipient(v, wide)
	case "host":
		return facts.HostIn(v)
	case "path":
		parts, ok := components(v)
		return strings.Join(parts, "/"), ok
	}
	if wide {
		return strings.ToLower(strings.TrimSpace(v)), true
	}
	return v, true
}

// recipient normalizes one address without a name or pattern. Its domain is
// case-insensitive. The server decides about the case of the local part and about
// the part after a +, so the wide form ignores both.
func recipient(v string, wide bool) (string, bool) {
	if strings.ContainsAny(v, " ,;<>()[]{}\\\"'%!`:*?$|&") || strings.Count(v, "@") > 1 {
		return "", false
	}
	local, domain, mail := strings.Cut(v, "@")
	if !mail {
		if wide {
			v = strings.ToLower(v)
		}
		return v, true
	}
	if domain = strings.TrimSuffix(strings.ToLower(domain), "."); local == "" || domain == "" {
		return "", false
	}
	if wide {
		local, _, _ = strings.Cut(strings.ToLower(local), "+")
	}
	return local + "@" + domain, true
}

// components returns the components of a cleaned path. The first is "" if the path
// is absolute, "." if it is relative. It refuses a path that leaves its first
// folder, or that a shell, a template or another system would read differently.
func components(p string) ([]string, bool) {
	if p == "" || strings.HasPrefix(p, "~") || strings.ContainsFunc(p, func(r rune) bool { return strings.ContainsRune("\\$`*?{}", r) || !unicode.IsPrint(r) }) {
		return nil, false
	}
	cleaned := path.Clean(p)
	first := "."
	if path.IsAbs(cleaned) {
		first, cleaned = "", strings.TrimPrefix(cleaned, "/")
	}
	if cleaned == "" || cleaned == "." {
		return []string{first}, true
	}
	parts := strings.Split(cleaned, "/")
	if parts[0] == ".." {
		return nil, false
	}
	return append([]string{first}, parts...), true
}

// isUnder says whether a path is spelled as the folder or as one in it, component by
// component.
func isUnder(folder, p string) bool {
	f, ok := components(folder)
	parts, also := components(p)
	return ok && also && len(parts) >= len(f) && slices.Equal(f, parts[:len(f)])
}

// notCovered says what a verified proof has that no clause of the rule covers: an
// effect of another kind, or a missing required contract; none if there is
// nothing. An effect that is not proven makes its domain unknown, and so every
// clause about it.
func (s *evidenceIndex) notCovered(clauses []Clause) approval.Reason {
	p := s.of.Verified()
	if p == nil || !facts.RunsProgram(*s.of) {
		return approval.Reason{}
	}
	for _, x := range p.Effects {
		domain := facts.CanonicalDomain(x.Domain)
		if !slices.ContainsFunc(clauses, func(c Clause) bool {
			return facts.CanonicalDomain(c.Domain) == domain && (c.Op == "" || strings.EqualFold(c.Op, x.Op))
		}) {
			return approval.Because("gap_effect")
		}
	}
	for _, c := range p.Coverage {
		if c.Status == facts.RequiredGap {
			return approval.Because("gap_contract")
		}
	}
	return approval.Reason{}
}

// unproven is the reason why the rule's clauses are not proven; none if they are or if
// there are no clauses.
func (r *Rule) unproven(s *evidenceIndex) approval.Reason {
	if missing := s.missing(r.WhenProven); !missing.gap.IsZero() {
		return missing.of(approval.Because("rule_unproven", "rule", r.label()))
	}
	if len(r.WhenProven) > 0 {
		if gap := s.notCovered(r.WhenProven); !gap.IsZero() {
			return approval.Because("rule_uncovered", "rule", r.label(), "gap", gap.Code)
		}
	}
	return approval.Reason{}
}

// checkProofs checks that the clauses fit the outcome.
func (r Rule) checkProofs() error {
	switch {
	case len(r.WhenProven) > 0 && r.Outcome != approval.Allow:
		return errors.New("when_proven belongs to an allow: a deny or an ask takes unless_proven")
	case len(r.UnlessProven) > 0 && r.Outcome == approval.Allow:
		return errors.New("unless_proven belongs to a deny or an ask: an allow takes when_proven")
	}
	for _, c := range slices.Concat(r.WhenProven, r.UnlessProven) {
		if err := c.Check(); err != nil {
			return err
		}
	}
	return nil
}

// proofs describes the clauses in words.
func proofs(clauses []Clause) string {
	var words []string
	for i := range clauses {
		words = append(words, clauses[i].words())
	}
	return cmp.Or(strings.Join(words, "; "), "nothing")
}
