// Package policy rules on requests: allow, ask a person, or deny.
//
// # Rules
//
// Every rule that matches a request is heard, whatever its place in the list:
//
//	a deny rule matches             deny
//	a question                      ask
//	an ask rule matches             ask
//	an allow rule matches           allow
//	nothing                         ask
//
// The first line that fits is the ruling. Its reasons name every rule that
// matched, also those that did not decide.
//
// # Patterns
//
// A pattern is a name, or the beginning of names followed by a star: x_* fits
// x_post. The empty pattern and the star alone fit everything, a request without
// a tool too. A star anywhere else is a mistake, which Check finds; an allow
// rule with one fits nothing, any other fits everything.
//
// # What no rule can wave through
//
// An unknown tool and a request without a tool (release-only: what is done with
// the receipt is done elsewhere) are allowed only by a rule that spells the
// tool's name out. A request without a tool has no name to spell.
package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// Rule is one of the operator's rules. The zero Rule denies everything.
type Rule struct {
	Name      string // what rulings call it; "": the rule in words
	Tool      string // pattern
	Workspace string // pattern
	Outcome   approval.Outcome
	Reason    string // the operator's words
}

// Policy is a set of rules. The zero Policy asks about everything.
type Policy struct {
	Rules []Rule
}

// The rulings that no rule made have these names.
const (
	byDefault  = "default"
	byQuestion = "question"
)

// Check finds patterns that are none.
func (p *Policy) Check() error {
	for i, r := range p.Rules {
		for _, pattern := range []string{r.Tool, r.Workspace} {
			if broken(pattern) {
				return fmt.Errorf("check rule %d: %q: a star stands at the end of a pattern or nowhere", i+1, pattern)
			}
		}
	}
	return nil
}

// Judge rules on a request. The ruling depends on which rules there are, not on
// their order.
func (p *Policy) Judge(f approval.Facts) approval.Ruling {
	heard := p.matching(f)
	ruling := approval.Ruling{Outcome: approval.Ask, Rule: byDefault}
	decided := false
	decide := func(o approval.Outcome, rule string) {
		if !decided {
			ruling.Outcome, ruling.Rule, decided = o, rule, true
		}
	}
	for _, r := range heard { // deny rules come first, then ask, then allow
		reason := r.reason()
		switch {
		case r.Outcome != approval.Allow:
			decide(r.Outcome, r.label())
		case f.Question:
			reason += " (but a question is for a person)"
		case !r.names(f):
			reason += " (but it does not name this tool, which is unknown here)"
		default:
			decide(approval.Allow, r.label())
		}
		ruling.Reasons = append(ruling.Reasons, reason)
	}
	switch {
	case f.Question && ruling.Outcome != approval.Deny:
		ruling.Rule = byQuestion
		ruling.Reasons = append(ruling.Reasons, "a question is for a person")
	case !decided:
		ruling.Reasons = append(ruling.Reasons, "no rule allows it")
	}
	return ruling
}

// matching returns the rules that fit, in an order of their own.
func (p *Policy) matching(f approval.Facts) []Rule {
	if p == nil {
		return nil
	}
	var heard []Rule
	for _, r := range p.Rules {
		if r.Outcome > approval.Allow {
			r.Outcome = approval.Deny // no such outcome
		}
		if r.fits(r.Tool, f.Tool) && r.fits(r.Workspace, f.Workspace) {
			heard = append(heard, r)
		}
	}
	slices.SortFunc(heard, func(a, b Rule) int {
		return cmp.Or(
			cmp.Compare(a.Outcome, b.Outcome),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Tool, b.Tool),
			cmp.Compare(a.Workspace, b.Workspace),
			cmp.Compare(a.Reason, b.Reason),
		)
	})
	return heard
}

func (r Rule) fits(pattern, name string) bool {
	if broken(pattern) {
		return r.Outcome != approval.Allow
	}
	if prefix, star := strings.CutSuffix(pattern, "*"); star {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == "" || pattern == name
}

func broken(pattern string) bool {
	star := strings.IndexByte(pattern, '*')
	return star >= 0 && star != len(pattern)-1
}

// names says whether the rule may allow this request: what the operator does
// not know must be spelled out.
func (r Rule) names(f approval.Facts) bool {
	if f.KnownTool && f.Tool != "" {
		return true
	}
	return f.Tool != "" && r.Tool == f.Tool && !strings.Contains(r.Tool, "*")
}

func (r Rule) label() string {
	if r.Name != "" {
		return r.Name
	}
	words := r.Outcome.String() + " " + cmp.Or(r.Tool, "*")
	if r.Workspace != "" && r.Workspace != "*" {
		words += " in " + r.Workspace
	}
	return words
}

func (r Rule) reason() string {
	s := fmt.Sprintf("%s by rule %q", r.Outcome, r.label())
	if r.Reason != "" {
		s += ": " + r.Reason
	}
	return s
}
