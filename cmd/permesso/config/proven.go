package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/policy"
)

const (
	clauseHint = `a list of clauses: [{ domain = "mail", op = "send", only = { recipient = ["ann@example.org"] } }]`
	atMostHint = `at_most = 10, or at_most = 0 with of = { recipient = "boss@example.org" }`
)

// proofs reads when_proven and unless_proven of a rule.
func (s *section) proofs(r *policy.Rule) {
	r.WhenProven, r.UnlessProven = s.clauses("when_proven"), s.clauses("unless_proven")
	reject := func(key, belongs string) {
		if s.has(key) {
			s.fail(s.node.children[key].key, key, "", "%s belongs to %s", key, belongs)
		}
	}
	if r.Outcome == approval.Allow {
		reject("unless_proven", "deny and ask rules; an allow rule takes when_proven")
		r.UnlessProven = nil
	} else {
		reject("when_proven", "allow rules; a deny or ask rule takes unless_proven")
		r.WhenProven = nil
	}
}

func (s *section) clauses(key string) []policy.Clause {
	n := s.get(key, array, clauseHint)
	if n == nil {
		return nil
	}
	if len(n.items) == 0 {
		s.fail(n.val, key, clauseHint, "%s has no clause", key)
	}
	var all []policy.Clause
	for i, item := range n.items {
		path := fmt.Sprintf("%s[%d]", key, i+1)
		if item.kind != table {
			s.fail(item.val, key, clauseHint, "%s must hold tables, not %s", key, item.kind)
			continue
		}
		if c, ok := s.section(item, s.fullKey(path)).clause(); ok {
			all = append(all, c)
		}
	}
	return all
}

// clause reads one clause: a domain, and exactly one condition.
func (s *section) clause() (c policy.Clause, ok bool) {
	before := len(s.issues)
	c.Domain, c.Op = s.line("domain", 100), s.line("op", 100)
	if !s.has("domain") {
		s.fail(s.node.key, "domain", `domain = "mail"`, "clause has no domain")
	}
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
	for _, kind := range []string{"only", "under"} {
		if arg, values := s.argument(kind, kind+` = { recipient = ["ann@example.org"] }`); string(c.Kind) == kind {
			c.Arg, c.Values = arg, values
		}
	}
	if arg := s.line("unique", 100); c.Kind == policy.Unique {
		c.Arg = arg
	}
	c.Max = int(s.number("at_most", 0, 0, 1_000_000, atMostHint))
	arg, values := s.argument("of", atMostHint)
	if c.Kind == policy.AtMost {
		c.Arg, c.Values = arg, values
	} else if s.has("of") {
		s.fail(s.node.children["of"].key, "of", atMostHint, "of belongs to at_most")
	}
	s.rejectUnknown()
	if len(s.issues) > before {
		return c, false
	}
	if err := c.Check(); err != nil {
		s.fail(s.node.key, "", "", "%s", visible(err.Error()))
		return c, false
	}
	return c, true
}

// argument reads { NAME = "value" } or { NAME = ["value", …] }, with one name.
func (s *section) argument(key, hint string) (name string, values []string) {
	sub := s.table(key, hint)
	if sub == nil {
		return "", nil
	}
	if len(sub.node.order) != 1 {
		sub.fail(sub.node.key, "", hint, "%s must have exactly one argument", key)
		return "", nil
	}
	name = sub.node.order[0]
	return name, sub.fields(name, hint)
}

// fields reads a string or a list of strings.
func (s *section) fields(key, hint string) (values []string) {
	if n := s.node.children[key]; n != nil && n.kind == text {
		s.known = append(s.known, key)
		s.recordValue(key, n)
		return []string{n.text}
	}
	for _, n := range s.texts(key, hint) {
		values = append(values, n.text)
	}
	return values
}

// facts reads which arguments of a tool have a known meaning.
func (s *section) facts() map[string][]string {
	const hint = `facts = { recipient = ["to", "cc"], path = "file" }`
	sub := s.table("facts", hint)
	if sub == nil {
		return nil
	}
	facts := map[string][]string{}
	for _, name := range approval.FactNames() {
		if !sub.has(name) {
			sub.known = append(sub.known, name)
			continue
		}
		fields := sub.fields(name, hint)
		if len(fields) == 0 || slices.ContainsFunc(fields, func(f string) bool { return f == "" || len(f) > 200 }) {
			sub.fail(sub.node.children[name].val, name, hint, "%s must name arguments of the tool", name)
			continue
		}
		facts[name] = fields
	}
	sub.rejectUnknown()
	if len(sub.node.order) == 0 {
		sub.fail(sub.node.key, "", hint, "facts is empty: it must name %s", list(approval.FactNames()))
	}
	return facts
}

// program reads the name of the argument that has the program's text.
func (s *section) program() string {
	const hint = `the name of an argument: program = "code"`
	n := s.get("program", text, hint)
	if n == nil {
		return ""
	}
	if n.text == "" || len(n.text) > 200 || strconv.Quote(n.text) != `"`+n.text+`"` {
		s.fail(n.val, "program", hint, "program must name an argument of the tool")
		return ""
	}
	return n.text
}
