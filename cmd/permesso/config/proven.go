package config

import (
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/security/policy"
)

const (
	clauseHint = `a list of clauses: [{ domain = "mail", op = "send", only = { recipient = ["ann@example.org"] } }]`
	atMostHint = `at_most = 10, or at_most = 0 with of = { recipient = "boss@example.org" }`
)

// proofs reads when_proven and unless_proven of a rule.
func (s *section) proofs(r *policy.Rule) {
	own, other, belongs := "unless_proven", "when_proven", "allow rules; a deny or ask rule takes unless_proven"
	if r.Outcome == approval.Allow {
		own, other, belongs = other, own, "deny and ask rules; an allow rule takes when_proven"
	}
	if s.has(other) {
		s.fail(s.node.children[other].key, other, "", "%s belongs to %s", other, belongs)
	}
	if n := s.node.children[own]; n != nil && n.kind == array && len(n.items) == 0 {
		s.fail(n.val, own, clauseHint, "%s has no clause", own)
	}
	var all []policy.Clause
	for _, sub := range s.list(own) {
		if c, ok := sub.clause(); ok {
			all = append(all, c)
		}
	}
	if r.Outcome == approval.Allow {
		r.WhenProven = all
	} else {
		r.UnlessProven = all
	}
}

// clause reads one clause: a domain, and exactly one condition.
func (s *section) clause() (c policy.Clause, ok bool) {
	c.Domain, c.Op, c.Max = s.text("domain"), s.text("op"), int(s.number("at_most"))
	s.require(s.node.key, `domain = "mail"`, "clause has no %s", "domain")
	var kinds []string
	for _, kind := range policy.ClauseKinds() {
		if s.has(string(kind)) {
			kinds = append(kinds, string(kind))
			c.Kind = kind
		}
	}
	switch {
	case len(kinds) == 0:
		s.fail(s.node.key, "", clauseHint, "clause has no condition: only, under, unique or at_most")
	case len(kinds) > 1:
		s.fail(s.node.children[kinds[1]].key, kinds[1], "write two clauses", "a clause has one condition, not %s", strings.Join(kinds, " and "))
	}
	switch c.Kind {
	case policy.Only, policy.Under:
		c.Arg, c.Values = s.argument(string(c.Kind))
	case policy.Unique:
		c.Arg = s.text("unique")
	case policy.AtMost:
		c.Arg, c.Values = s.argument("of")
	}
	if s.has("of") && c.Kind != policy.AtMost {
		s.fail(s.node.children["of"].key, "of", atMostHint, "of belongs to at_most")
	}
	if s.failed {
		return c, false
	}
	if err := c.Check(); err != nil {
		s.fail(s.node.key, "", "", "%s", visible(err.Error()))
		return c, false
	}
	return c, true
}

// argument reads { NAME = "value" } or { NAME = ["value", …] }, with one name.
func (s *section) argument(key string) (name string, values []string) {
	sub := s.table(key)
	if sub == nil {
		return "", nil
	}
	if len(sub.node.order) != 1 {
		s.fail(sub.node.key, key, sub.self.Hint, "%s must have exactly one argument", key)
		return "", nil
	}
	name = sub.node.order[0]
	s.failed = s.failed || sub.failed
	return name, sub.texts(name)
}

const factsHint = `facts = { recipient = ["to", "cc"], path = "file" }`

// facts reads which arguments of a tool have a known meaning.
func (s *section) facts() map[string][]string {
	sub := s.table("facts")
	if sub == nil {
		return nil
	}
	declared := map[string][]string{}
	for _, name := range sub.node.order {
		if _, known := sub.row(name); !known {
			continue
		}
		declared[name] = sub.texts(name)
		if len(declared[name]) == 0 || slices.ContainsFunc(declared[name], func(f string) bool { return f == "" || len(f) > 200 }) {
			sub.fail(sub.position(name), name, factsHint, "%s must name arguments of the tool", name)
		}
	}
	if len(sub.node.order) == 0 {
		sub.fail(sub.node.key, "", factsHint, "facts is empty: it must name %s", list(facts.Names()))
	}
	return declared
}
