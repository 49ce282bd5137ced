package policy

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

// Rule is one of the operator's rules. The zero Rule denies everything. An empty
// pattern matches everything. Tool, Workspace, Session and Client take a name, or a
// prefix of names followed by a star.
type Rule struct {
	Name       string // its name in rulings; "": a description of the rule
	Tool       string
	Capability string // one of the 13
	Target     string // glob on the components of the target
	Workspace  string
	Approver   string // the person the request is made for
	Session    string
	Client     string
	Args       []Condition
	OnlyArgs   bool // a request with other arguments than those of Args does not match
	// An allow applies if all of WhenProven is proven, a deny or an ask unless all
	// of UnlessProven is. Empty: proofs do not matter.
	WhenProven   []Clause
	UnlessProven []Clause
	Outcome      approval.Outcome
	Always       bool // an ask that no grant lifts
	// Despite names what else an allow lifts: trifecta, secrets. It counts only if every
	// destination (host, url, recipients, path) has a condition without a pattern.
	Despite []string
	Reason  string // the operator's text
}

// Condition is a rule's condition on one argument. Exactly one of Glob and Equals is
// set.
type Condition struct {
	Field  string       // a member of request_data
	Glob   string       // matches a string, component by component
	Equals approval.Raw // the member is exactly this JSON value; of a string, however it is escaped
}

// matchResult says whether a rule or condition matches a request.
type matchResult uint8

const (
	no      matchResult = iota
	unknown             // it cannot be evaluated
	yes
)

// Check refuses an invalid rule.
func (r Rule) Check() error {
	for _, pattern := range []string{r.Tool, r.Workspace, r.Session, r.Client} {
		if badPattern(pattern) {
			return fmt.Errorf("check rule %q: %q: a star is allowed only at the end of a name", r.label(), pattern)
		}
	}
	if r.Capability != "" {
		if _, ok := facts.CapabilityNamed(r.Capability); !ok {
			return fmt.Errorf("check rule %q: %q is not one of the 13 capabilities", r.label(), r.Capability)
		}
	}
	if !doublestar.ValidatePattern(r.Target) {
		return fmt.Errorf("check rule %q: %q is not a valid glob", r.label(), r.Target)
	}
	for _, c := range r.Args {
		if err := c.check(); err != nil {
			return fmt.Errorf("check rule %q: %w", r.label(), err)
		}
	}
	if err := r.checkProofs(); err != nil {
		return fmt.Errorf("check rule %q: %w", r.label(), err)
	}
	return nil
}

func (c Condition) check() error {
	switch {
	case c.Field == "":
		return fmt.Errorf("a condition needs the name of an argument")
	case c.Equals == nil && c.Glob == "":
		return fmt.Errorf("the condition on %q needs a glob or a value", c.Field)
	case c.Equals == nil && !doublestar.ValidatePattern(c.Glob):
		return fmt.Errorf("the condition on %q: %q is not a valid glob", c.Field, c.Glob)
	}
	return nil
}

// match says whether the rule applies to a request. Patterns come first, because
// they are cheap.
func (r *Rule) match(f *approval.Facts, args *arguments) matchResult {
	worst := yes
	for _, p := range [...]struct{ pattern, name string }{
		{r.Tool, f.Tool},
		{r.Workspace, f.Workspace},
		{r.Session, f.SessionID},
		{r.Client, f.ClientID},
	} {
		if worst = min(worst, matchName(p.pattern, p.name)); worst == no {
			return no
		}
	}
	if r.Capability != "" && r.Capability != f.Capability || r.Approver != "" && r.Approver != f.Principal {
		return no
	}
	if r.Target != "" {
		worst = min(worst, matchGlob(r.Target, f.Target))
	}
	for i := 0; i < len(r.Args) && worst != no; i++ {
		worst = min(worst, r.Args[i].match(args))
	}
	if r.OnlyArgs && worst != no {
		worst = min(worst, r.matchOnly(args))
	}
	return worst
}

// matchOnly says whether a request has no argument besides those of the conditions.
func (r *Rule) matchOnly(args *arguments) matchResult {
	fields, err := args.all()
	switch {
	case err != nil:
		return unknown
	case slices.ContainsFunc(fields, func(a argument) bool { return !r.hasCondition(a.Name) }):
		return no
	}
	return yes
}

func (r *Rule) hasCondition(argument string) bool {
	return slices.ContainsFunc(r.Args, func(c Condition) bool { return c.Field == argument })
}

func matchName(pattern, name string) matchResult {
	switch prefix, star := strings.CutSuffix(pattern, "*"); {
	case pattern == "":
		return yes
	case badPattern(pattern):
		return unknown
	case star && strings.HasPrefix(name, prefix), pattern == name:
		return yes
	}
	return no
}

func badPattern(pattern string) bool {
	star := strings.IndexByte(pattern, '*')
	return star >= 0 && star != len(pattern)-1
}

// matchGlob matches a target by components. A path with ".." or an empty component may
// be another path than it looks like, so the result is unknown.
func matchGlob(pattern, target string) matchResult {
	if target == "" || !clean(target) {
		return unknown
	}
	ok, err := doublestar.Match(pattern, target)
	switch {
	case err != nil:
		return unknown
	case ok:
		return yes
	}
	return no
}

func (c *Condition) match(args *arguments) matchResult {
	a, ok := args.named(c.Field)
	switch {
	case !ok:
		return unknown
	case c.Equals != nil && c.Equals.Kind() == '"' && a.isText:
		if want, ok := (codec.Field{Value: c.Equals}).Text(); ok && want == a.text {
			return yes
		}
		return no
	case c.Equals != nil:
		if bytes.Equal(compact(a.Value), compact(c.Equals)) {
			return yes
		}
		return no
	case !a.isText:
		return unknown
	}
	return matchGlob(c.Glob, a.text)
}

// arguments are the members of request_data, parsed once, on first use.
type arguments struct {
	data   approval.Raw
	read   bool
	err    error
	fields []argument
}

type argument struct {
	codec.Field
	text   string
	isText bool
}

func (a *arguments) all() ([]argument, error) {
	if a.read {
		return a.fields, a.err
	}
	a.read = true
	fields, err := codec.Fields(a.data)
	a.err = err
	for _, f := range fields {
		text, ok := f.Text()
		a.fields = append(a.fields, argument{f, text, ok})
	}
	return a.fields, a.err
}

func (a *arguments) named(name string) (argument, bool) {
	all, err := a.all()
	if err != nil {
		return argument{}, false
	}
	for i := range all {
		if all[i].Name == name {
			return all[i], true
		}
	}
	return argument{}, false
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
func (r *Rule) coversArguments(f *approval.Facts, args *arguments) bool {
	if f.Tool == "" || r.Tool != f.Tool || len(r.Args) == 0 && !r.OnlyArgs {
		return false
	}
	fields, err := args.all()
	if err != nil {
		return false
	}
	for _, field := range fields {
		if !r.hasCondition(field.Name) {
			return false
		}
	}
	return true
}

// destinations are the types of arguments that say where something goes. A command or
// program can name any destination.
var destinations = []string{
	facts.TypeHost, facts.TypeURL, facts.TypeRecipients, facts.TypePath, facts.TypeCommand, facts.TypeProgram,
}

// closesDestinations says whether the rule names the tool, and allows only listed values
// of every argument that says where something goes.
func (r *Rule) closesDestinations(f *approval.Facts) bool {
	return f.KnownTool && f.Tool != "" && r.Tool == f.Tool && len(r.OpenDestinations(f.Declared)) == 0
}

// OpenDestinations lists the arguments that say where something goes and of which the rule
// allows more than one value, sorted.
func (r *Rule) OpenDestinations(args map[string]approval.Argument) (open []string) {
	for name, a := range args {
		if slices.Contains(destinations, a.Type) && !r.Closes(name) {
			open = append(open, name)
		}
	}
	slices.Sort(open)
	return open
}

// Closes says whether the rule allows at most one value of an argument.
func (r *Rule) Closes(argument string) bool {
	return r.OnlyArgs && !r.hasCondition(argument) || slices.ContainsFunc(r.Args, func(c Condition) bool {
		return c.Field == argument && (c.Equals != nil || !strings.ContainsAny(c.Glob, meta))
	})
}

// namesTool says whether the rule may allow this request at all: an unknown tool must
// be named.
func (r *Rule) namesTool(f *approval.Facts) bool {
	if f.KnownTool && f.Tool != "" {
		return true
	}
	return f.Tool != "" && r.Tool == f.Tool
}

func (r *Rule) label() string {
	if r.Name != "" {
		return r.Name
	}
	words := r.Outcome.String() + " " + cmp.Or(r.Tool, r.Capability, "*")
	if r.Workspace != "" && r.Workspace != "*" {
		words += " in " + r.Workspace
	}
	return words
}

var ruleReasons = [...]string{
	approval.Deny: "rule_deny", approval.Ask: "rule_ask", approval.Allow: "rule_allow",
}

func (r *Rule) reason(a matchResult) approval.Reason {
	note := ""
	if a == unknown {
		note = "note_unevaluated"
	}
	return approval.Because(ruleReasons[r.Outcome], "rule", r.label(), "words", r.Reason, "note", note)
}

// sorted sorts rules, strict ones first, so that a ruling does not depend on their
// order in the file. An invalid outcome is a deny.
func sorted(rules []Rule) []Rule {
	s := slices.Clone(rules)
	for i := range s {
		if s[i].Outcome > approval.Allow {
			s[i].Outcome = approval.Deny
		}
	}
	slices.SortStableFunc(s, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Name, b.Name), cmp.Compare(a.signature(), b.signature()))
	})
	return s
}

func (r *Rule) signature() string {
	return fmt.Sprintf("%q %q %q %q %q %q %q %q %t %q %v %t %+v %+v", r.Tool, r.Capability, r.Target, r.Workspace, r.Approver, r.Session, r.Client, r.Reason, r.Always, append([]string{}, r.Despite...), r.Args, r.OnlyArgs, r.WhenProven, r.UnlessProven)
}
