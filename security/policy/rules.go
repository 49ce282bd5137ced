package policy

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// Rule is one of the operator's rules. The zero Rule denies everything. An empty
// match matches everything.
type Rule struct {
	Name       string // its name in rulings; "": a description of the rule
	Tool       Names
	Capability Names    // of the 13
	Target     []string // patterns, by the kind of target that the capability has
	Workspace  Names
	Approver   Names // the person the request is made for
	Session    Names
	Client     Names
	Subagent   Names // of the agent; none: also the agent itself
	When       Window
	Program    approval.Property // true: steps of programs; false: requests outside of programs; "": both
	Tools      Names             // with Program: each tool that the program's plan calls is one of them
	MaxSteps   int               // with Program: at most so many steps of the program have not run; 0: any
	MaxCalls   int               // with Program: of these, at most so many call the step's own tool; 0: any
	Args       []Condition
	OnlyArgs   bool // a request with other arguments than those of Args does not match
	// An allow applies if all of WhenProven is proven, a deny or an ask unless all
	// of UnlessProven is. Empty: proofs do not matter.
	WhenProven   []Clause
	UnlessProven []Clause
	Outcome      approval.Outcome
	Always       bool // an ask that no grant lifts
	// Despite names what else an allow lifts: trifecta, secrets. It counts only if every
	// destination (host, url, recipients, path, command) has a closed list of values.
	Despite []string
	Trust   approval.Trust // of an allow: what the matched requests read and reach; "" is unstated
	Reason  string         // the operator's text
}

// Names are names of which one must fit. A star is allowed at the end of a name. None: any.
type Names []string

// matchResult says whether a rule or condition matches a request.
type matchResult uint8

const (
	no      matchResult = iota
	unknown             // it cannot be evaluated
	yes
)

// Check refuses an invalid rule.
func (r Rule) Check() error {
	_, err := r.compile()
	return err
}

// rule is a Rule, compiled.
type rule struct {
	Rule
	args     []*condition
	target   []pattern
	windowed bool
}

func (r Rule) compile() (*rule, error) {
	fail := func(format string, args ...any) (*rule, error) {
		return nil, fmt.Errorf("check rule %q: "+format, append([]any{r.label()}, args...)...)
	}
	for _, pattern := range slices.Concat(r.Tool, r.Workspace, r.Session, r.Client, r.Subagent, r.Tools) {
		if badPattern(pattern) {
			return fail("%q: a star is allowed only at the end of a name", pattern)
		}
	}
	for _, name := range r.Capability {
		if _, ok := facts.CapabilityNamed(name); !ok {
			return fail("%q is not one of the 13 capabilities", name)
		}
	}
	x := &rule{Rule: r, windowed: r.When != Window{}}
	for _, t := range r.Target {
		if t == "" || strings.HasPrefix(t, "/") && !doublestar.ValidatePattern(t) {
			return fail("%q is not a valid glob", t)
		}
		x.target = append(x.target, newPattern(t))
	}
	if r.OnlyArgs && r.Outcome != approval.Allow {
		return fail("other_args belongs to an allow: one more argument would evade a deny")
	}
	for _, c := range r.Args {
		compiled, err := c.compile()
		if err != nil {
			return fail("%w", err)
		}
		x.args = append(x.args, compiled)
	}
	if err := r.checkProgram(); err != nil {
		return fail("%w", err)
	}
	if err := r.checkTrust(); err != nil {
		return fail("%w", err)
	}
	if err := r.checkProofs(); err != nil {
		return fail("%w", err)
	}
	return x, nil
}

// CheckTarget says why the target of a capability can never match.
func (r Rule) CheckTarget(capability string) error {
	kind := map[string]string{"path_glob": facts.TypePath, "host": facts.TypeHost}[targetKind(&approval.Facts{Capability: capability})]
	for _, t := range r.Target {
		p := newPattern(t)
		if err := p.fits(kind); kind != "" && err != nil {
			return fmt.Errorf("target: %w", err)
		}
	}
	return nil
}

// checkTrust refuses a trust that a rule cannot state.
func (r Rule) checkTrust() error {
	t := r.Trust
	for _, p := range []approval.Property{t.PublicSource, t.SecretData, t.PublicSink} {
		if p != "" && p != isTrue && p != isFalse {
			return fmt.Errorf("trust of a rule is true or false, not %q", p)
		}
	}
	if t.DangerousWrites != "" {
		return errors.New("trust of a rule has no dangerous_writes: the allow lifts that ask already")
	}
	if t != (approval.Trust{}) && r.Outcome != approval.Allow {
		return errors.New("trust belongs to an allow")
	}
	return nil
}

// resolve adds where the folders of a deny's or an ask's paths lead.
func (x *rule) resolve(resolve func(string) (string, error)) {
	if x.Outcome == approval.Allow || resolve == nil {
		return
	}
	each := slices.Clone(x.target)
	for _, c := range x.args {
		each = append(each, c.is...)
	}
	for _, p := range each {
		if p.path == nil {
			continue
		}
		folder := literalFolder(p.path.glob)
		if leads, err := resolve(path.Clean(folder)); err == nil && leads != path.Clean(folder) {
			led := strings.TrimSuffix(leads, "/") + "/" + strings.TrimPrefix(p.path.glob, folder)
			p.path.wide = append(p.path.wide, strings.ToLower(led))
		}
	}
}

// match says whether the rule applies to a request. Names come first, because they are
// cheap.
func (x *rule) match(q *request) matchResult {
	switch {
	case len(x.Tool) > 0 && x.Tool.match(q.Tool) == no, len(x.Workspace) > 0 && x.Workspace.match(q.Workspace) == no,
		len(x.Session) > 0 && x.Session.match(q.SessionID) == no, len(x.Client) > 0 && x.Client.match(q.ClientID) == no,
		len(x.Subagent) > 0 && (q.Subagent == "" || x.Subagent.match(q.Subagent) == no),
		len(x.Capability) > 0 && !slices.Contains(x.Capability, q.Capability),
		len(x.Approver) > 0 && !slices.Contains(x.Approver, q.Principal),
		x.windowed && !x.When.contains(q.Now):
		return no
	}
	worst := x.matchProgram(q.Facts)
	how := reading(x.Outcome != approval.Allow)
	if len(x.target) > 0 {
		worst = min(worst, x.matchTarget(q, how))
	}
	for i := 0; i < len(x.args) && worst != no; i++ {
		worst = min(worst, x.args[i].match(q, how))
	}
	if x.OnlyArgs && worst != no {
		worst = min(worst, x.matchOnly(q))
	}
	return worst
}

// matchTarget compares the target as the capability says: a path, a host, else a text.
func (x *rule) matchTarget(q *request, how reading) matchResult {
	kind := targetKind(q.Facts)
	switch {
	case q.Target == "" || slices.ContainsFunc(q.Opaque, func(name string) bool { return strings.Contains(q.Target, facts.NoField(name)) }):
		return unknown
	case kind == "path_glob":
		return matchPath(x.target, &q.target, q.links, how)
	case kind == "host":
		return matchPlace(x.target, &q.target, strings.Contains(q.Target, "://"), how)
	}
	best := no
	for _, p := range x.target {
		best = max(best, matchTargetText(p.text, q.Target, how))
	}
	return best
}

// matchOnly says whether a request has no argument besides those of the conditions.
func (x *rule) matchOnly(q *request) matchResult {
	fields, err := q.args.all()
	switch {
	case err != nil:
		return unknown
	case slices.ContainsFunc(fields, func(a codec.Field) bool { return !x.mentions(a.Name) }),
		slices.ContainsFunc(q.Opaque, func(name string) bool { return !x.mentions(name) }):
		return no
	}
	return yes
}

// mentions says whether a condition is on an argument, or on a member of it.
func (x *rule) mentions(argument string) bool {
	return slices.ContainsFunc(x.args, func(c *condition) bool { return c.path[0] == argument })
}

func (r *Rule) hasCondition(argument string) bool {
	return slices.ContainsFunc(r.Args, func(c Condition) bool { return c.Field == argument })
}

// Include says whether a name is one of these. No names include every one.
func (n Names) Include(name string) bool { return n.match(name) == yes }

func (n Names) match(name string) matchResult {
	for _, pattern := range n {
		if pattern == name || strings.HasSuffix(pattern, "*") && strings.HasPrefix(name, pattern[:len(pattern)-1]) {
			return yes
		}
	}
	return yesIf(len(n) == 0)
}

// exactly says whether a name stands among the names, without a star.
func (n Names) exactly(name string) bool { return name != "" && slices.Contains(n, name) }

func badPattern(pattern string) bool {
	star := strings.IndexByte(pattern, '*')
	return star >= 0 && star != len(pattern)-1
}

// matchTargetText compares a target that is no path and no host. * stands for any text
// without /, and ** for any text. An allow matches no target with "..", which may be another
// than it looks like.
func matchTargetText(pattern, target string, how reading) matchResult {
	if how == narrow && (!clean(target) || hasLineBreak(target)) {
		return unknown
	}
	if how == wide {
		pattern, target = fold(pattern), fold(target)
	}
	var e strings.Builder
	for i, part := range strings.Split(pattern, "**") {
		if i > 0 {
			e.WriteString(".*")
		}
		for j, text := range strings.Split(part, "*") {
			if j > 0 {
				e.WriteString("[^/]*")
			}
			e.WriteString(regexp.QuoteMeta(text))
		}
	}
	ok, err := regexp.MatchString(`(?s)\A`+e.String()+`\z`, target)
	if err != nil {
		return unknown
	}
	return yesIf(ok)
}

// arguments are the members of request_data, parsed once, on first use.
type arguments struct {
	data   approval.Raw
	read   bool
	err    error
	fields []codec.Field
}

func (a *arguments) all() ([]codec.Field, error) {
	if !a.read {
		a.read = true
		a.fields, a.err = codec.Fields(a.data)
	}
	return a.fields, a.err
}

func (a *arguments) named(name string) (codec.Field, bool) {
	all, err := a.all()
	if err != nil {
		return codec.Field{}, false
	}
	for _, f := range all {
		if f.Name == name {
			return f, true
		}
	}
	return codec.Field{}, false
}

// compact removes white space from a value. It keeps digits and escapes.
func compact(v approval.Raw) []byte {
	c := v.Clone()
	if c.Compact() != nil {
		return v
	}
	return c
}

// applies says whether a rule with this match takes effect. A condition that cannot
// be evaluated never makes the outcome milder.
func (r *Rule) applies(a matchResult) bool {
	return a == yes || a == unknown && r.Outcome != approval.Allow
}

// coversArguments says whether the rule names the tool and has a condition on every
// argument. Only such a rule lifts a capability with the default "always".
func (x *rule) coversArguments(q *request) bool {
	if !x.names(q.Tool) || len(x.args) == 0 && !x.OnlyArgs {
		return false
	}
	fields, err := q.args.all()
	return err == nil && !slices.ContainsFunc(q.Opaque, func(name string) bool { return !x.hasCondition(name) }) && !slices.ContainsFunc(fields, func(a codec.Field) bool { return !x.hasCondition(a.Name) })
}

// destinations are the types of arguments that say where something goes. A command or
// program can name any destination.
var destinations = []string{
	facts.TypeHost, facts.TypeURL, facts.TypeRecipients, facts.TypePath, facts.TypeCommand, facts.TypeProgram,
}

// closesDestinations says whether the rule names the tool, and allows only listed values
// of every argument that says where something goes.
func (r *Rule) closesDestinations(f *approval.Facts) bool {
	return f.KnownTool && r.Tool.exactly(f.Tool) && len(r.OpenDestinations(f.Declared)) == 0
}

// OpenDestinations lists the arguments that say where something goes and of which the rule
// allows values that it does not list, sorted.
func (r *Rule) OpenDestinations(args map[string]approval.Argument) (open []string) {
	for name, a := range args {
		if slices.Contains(destinations, a.Type) && !r.Closes(name, a.Type) {
			open = append(open, name)
		}
	}
	slices.Sort(open)
	return open
}

// Closes says whether the rule allows only listed values of an argument of a type.
func (r *Rule) Closes(argument, kind string) bool {
	return r.OnlyArgs && !r.hasCondition(argument) || slices.ContainsFunc(r.Args, func(c Condition) bool {
		return c.Field == argument && c.closes(kind)
	})
}

// namesTool says whether the rule may allow this request at all: an unknown tool must
// be named.
func (r *Rule) namesTool(f *approval.Facts) bool {
	return f.KnownTool && f.Tool != "" || r.names(f.Tool)
}

// names says whether the tool stands in the rule, without a star.
func (r *Rule) names(tool string) bool { return r.Tool.exactly(tool) || r.Tools.exactly(tool) }

func (r *Rule) label() string {
	if r.Name != "" {
		return r.Name
	}
	words := r.Outcome.String() + " " + cmp.Or(strings.Join(r.Tool, ", "), strings.Join(r.Tools, ", "), strings.Join(r.Capability, ", "), "*")
	if where := strings.Join(r.Workspace, ", "); where != "" && where != "*" {
		words += " in " + where
	}
	return words
}

var ruleReasons = [...]string{
	approval.Deny: "rule_deny", approval.Ask: "rule_ask", approval.Allow: "rule_allow",
}

func (r *Rule) reason(a matchResult) approval.Reason {
	note := ""
	switch {
	case a == unknown && r.Outcome == approval.Deny:
		return approval.Because("rule_deny_unsure", "rule", r.label(), "words", r.Reason)
	case a == unknown:
		note = "note_unevaluated"
	}
	return approval.Because(ruleReasons[r.Outcome], "rule", r.label(), "words", r.Reason, "note", note)
}

// compileAll compiles rules and sorts them, strict ones first, so that a ruling does not
// depend on their order in the file. An invalid outcome is a deny.
func compileAll(rules []Rule, resolve func(string) (string, error)) (_ []*rule, slots int, _ error) {
	s := slices.Clone(rules)
	for i := range s {
		if s[i].Outcome > approval.Allow {
			s[i].Outcome = approval.Deny
		}
	}
	slices.SortStableFunc(s, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Name, b.Name), cmp.Compare(a.signature(), b.signature()))
	})
	all, slot := make([]*rule, len(s)), map[string]int{}
	for i, r := range s {
		x, err := r.compile()
		if err != nil {
			return nil, 0, err
		}
		x.resolve(resolve)
		for _, c := range x.args {
			if _, known := slot[c.Field]; !known {
				slot[c.Field] = len(slot)
			}
			c.slot = slot[c.Field]
		}
		all[i] = x
	}
	return all, len(slot), nil
}

func (r *Rule) signature() string {
	return fmt.Sprintf("%+v", *r)
}
