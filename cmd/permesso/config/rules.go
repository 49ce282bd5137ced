package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval/codec"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/security/policy"
)

func (s *section) rules() {
	names := map[string]bool{}
	for _, sub := range s.list("rules") {
		rule := sub.rule()
		if names[rule.Name] {
			sub.fail(sub.position("name"), "name", "", "another rule has the name %s", quote(rule.Name))
		}
		names[rule.Name] = true
		s.cfg.Rules = append(s.cfg.Rules, rule)
	}
}

func (s *section) rule() policy.Rule {
	number := strings.Trim(strings.TrimPrefix(s.path, "rules"), "[]")
	r := policy.Rule{Name: cmp.Or(s.text("name"), "rule "+number), Reason: s.text("reason"), Outcome: approval.Deny}
	s.require(s.node.key, `outcome = "ask"`, "rule has no %s: allow, ask, always_ask or deny", "outcome")
	if v := s.text("outcome"); v != "" {
		r.Always = v == "always_ask"
		_ = r.Outcome.UnmarshalText([]byte(strings.TrimPrefix(v, "always_"))) // one of the allowed words
	}
	s.proofs(&r)
	s.match(&r)
	r.Trust = s.properties("trust")
	s.despite(&r)
	return r
}

// despite reads what an allow lifts besides the table. Then every argument that says where
// something goes needs an exact condition.
func (s *section) despite(r *policy.Rule) {
	r.Despite = s.texts("despite")
	if len(r.Despite) == 0 {
		return
	}
	tool, known := approval.Tool{}, false
	if len(r.Tool) == 1 {
		tool, known = s.cfg.Tools[r.Tool[0]]
	}
	open := r.OpenDestinations(facts.Arguments(tool))
	for _, template := range facts.Templates(tool) {
		if template.Key == "target" || template.Key == "handler.url" {
			open = append(open, slices.DeleteFunc(slices.Clone(template.Names), func(name string) bool { return r.Closes(name, facts.Arguments(tool)[name].Type) })...)
		}
	}
	slices.Sort(open)
	at := s.position("despite")
	switch open = slices.Compact(open); {
	case r.Outcome != approval.Allow:
		s.fail(at, "despite", "", "despite belongs to allow rules")
	case !known:
		s.fail(at, "despite", `match = { tool = "x_post" }`, "despite needs a rule that names one tool")
	case len(open) > 0:
		s.fail(at, "despite", "match = { args = { "+strings.Join(open, ` = "…", `)+` = "…" } }, each one value or a list, without patterns`,
			"despite needs listed values of every destination; missing: %s", visible(strings.Join(open, ", ")))
	}
}

// match reads what a rule applies to. It must not match everything: autonomy is for
// that, and such an allow rule would switch the gate off.
func (s *section) match(r *policy.Rule) {
	m := s.table("match")
	if m == nil {
		row, _ := s.row("match")
		s.require(s.node.key, row.Hint, "rule has no %s", "match")
		return
	}
	if len(m.node.order) == 0 {
		m.fail(m.node.key, "", m.self.Hint, "match must name a tool or a workspace")
	}
	for _, key := range m.node.order {
		if n := m.node.children[key]; n.kind == array && len(n.items) == 0 {
			m.fail(n.val, key, "remove it", "%s is an empty list: it would match nothing", key)
		}
	}
	r.Tool = m.matchNames("tool", sortedKeys(s.cfg.Tools))
	r.Workspace = m.matchNames("workspace", sortedKeys(s.cfg.Workspaces))
	r.Approver = m.matchNames("approver", sortedKeys(s.cfg.Approvers))
	r.Capability, r.Target, r.Session, r.Client = m.texts("capability"), m.texts("target"), m.texts("session"), m.texts("client")
	r.Subagent = m.texts("subagent")
	r.When = m.window()
	r.Tools, r.MaxSteps, r.MaxCalls = m.matchNames("tools", sortedKeys(s.cfg.Tools)), int(m.number("max_steps")), int(m.number("max_calls"))
	if m.has("program") {
		r.Program = approval.Property(strconv.FormatBool(m.flag("program")))
	}
	r.Args, r.OnlyArgs = m.conditions(s.declared(r)), !m.flag("other_args")
	if !m.failed {
		err := r.Check()
		if tool, known := s.cfg.Tools[strings.Join(r.Tool, "")]; err == nil && known {
			err = r.CheckTarget(tool.Capability)
		}
		if err != nil {
			m.fail(m.node.key, "", "", "%s", visible(strings.TrimPrefix(err.Error(), "check rule "+strconv.Quote(r.Name)+": ")))
		}
	}
}

// matchNames reads names, and warns of those that name nothing.
func (s *section) matchNames(key string, known []string) policy.Names {
	for _, n := range s.items(key) {
		prefix, star := strings.CutSuffix(n.text, "*")
		if !slices.ContainsFunc(known, func(name string) bool { return name == n.text || star && strings.HasPrefix(name, prefix) }) {
			effect := "rule never matches: "
			if key == "tools" { // a plan may call the others
				effect = ""
			}
			s.warn(n.val, key, didYouMean(n.text, known, ""), "%sthere is no %s %s", effect, strings.TrimSuffix(key, "s"), quote(n.text))
		}
	}
	return s.texts(key)
}

// declared are the arguments of the tool that the rule names, nil if it names several.
func (s *section) declared(r *policy.Rule) map[string]approval.Argument {
	names := r.Tool
	if len(names) == 0 {
		names = r.Tools
	}
	tool, known := s.cfg.Tools[strings.Join(names, "")]
	if len(names) != 1 || !known {
		return nil
	}
	return facts.Arguments(tool)
}

// jsonOf returns a TOML value as JSON.
func jsonOf(n *node) (approval.Raw, bool) {
	valid := n.kind == integer || n.kind == boolean || n.kind == array && !slices.ContainsFunc(n.items, func(item *node) bool { return item.kind != text })
	if _, err := strconv.ParseInt(n.text, 0, 64); !valid || n.kind == integer && err != nil {
		return nil, false
	}
	b, err := json.Marshal(n.value())
	return b, err == nil
}

const programHint = `match = { program = true, tools = ["send_email"], max_steps = 5 }`

const (
	rateHint   = `number per duration: { "mail:send" = "10/1h" }; "none" stands for tools without a capability`
	budgetHint = "above soft, approval is needed; above hard, nothing runs; in the units of a tool's cost"
)

// policyLimits reads the rates and budgets of a workspace.
func (s *section) policyLimits(ws string) {
	l := policy.Limits{
		Ask: s.rates("ask_above"), Deny: s.rates("deny_above"),
		Session: s.budget("budget_session"), Day: s.budget("budget_day"),
	}
	if len(l.Ask)+len(l.Deny) > 0 || l.Session != l.Day || l.Day != (policy.Budget{}) {
		s.cfg.Limits[ws] = l
	}
}

// rates reads token buckets by capability: "10/1h".
func (s *section) rates(key string) map[string]policy.Rate {
	rates := values[policy.Rate](s, key)
	if without, ok := rates["none"]; ok {
		delete(rates, "none")
		rates[""] = without
	}
	return rates
}

func rateType() valueType {
	t := matching("number per duration", `^[0-9]{1,7}/.+$`, "")
	t.read = func(s *section, k Key, n *node) any {
		r, ok := parseRate(n.text)
		if !ok {
			s.fail(n.val, k.Name, k.Hint, "%s is not a rate", k.Name)
			return nil
		}
		return r
	}
	return t
}

func parseRate(s string) (policy.Rate, bool) {
	count, per, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(count)
	if !ok || err != nil || n < 0 || n > 1_000_000 {
		return policy.Rate{}, false
	}
	d, err := parseDuration(per)
	return policy.Rate{Burst: n, Per: d}, err == nil && d >= time.Second && d <= maxWait
}

func (s *section) budget(key string) policy.Budget {
	sub := s.table(key)
	if sub == nil {
		return policy.Budget{}
	}
	b := policy.Budget{Soft: get[codec.Cost](sub, "soft"), Hard: get[codec.Cost](sub, "hard")}
	if b.Soft > 0 && b.Hard > 0 && b.Soft > b.Hard {
		sub.fail(sub.position("soft"), "soft", budgetHint, "soft is above hard")
	}
	if b == (policy.Budget{}) {
		sub.fail(sub.node.key, "", budgetHint, "%s has neither soft nor hard", key)
	}
	return b
}

// checkAdminWorkspaces reports tools that can read public sources in an admin
// workspace.
func (s *section) checkAdminWorkspaces() {
	for _, name := range sortedKeys(s.cfg.Workspaces) {
		if !s.cfg.Workspaces[name].Admin {
			continue
		}
		for _, tool := range sortedKeys(s.cfg.Tools) {
			if policy.ReadsPublicSource(s.cfg.Tools[tool]) && !s.denied(tool, name) {
				at := s.toolAt[tool]
				at.fail(at.node.key, "", `set public_source = false (or "forbidden") if it reads no public source, or add a deny rule for it there`,
					"tool %s may read public sources, which admin workspace %s must not", quote(tool), quote(name))
			}
		}
	}
}

// denied reports whether a rule without other conditions denies the tool in ws.
func (s *section) denied(tool, ws string) bool {
	return slices.ContainsFunc(s.cfg.Rules, func(r policy.Rule) bool {
		return r.Outcome == approval.Deny && (len(r.Workspace) == 0 || slices.Contains(r.Workspace, ws)) && slices.Contains(r.Tool, tool) &&
			len(r.Capability)+len(r.Target)+len(r.Session)+len(r.Client)+len(r.Subagent)+len(r.Approver)+len(r.Args)+len(r.UnlessProven) == 0 &&
			!r.OnlyArgs && r.Program == "" && r.When == (policy.Window{})
	})
}

// PolicyConfig returns the configuration of the policy engine.
func (c *Config) PolicyConfig() policy.Config {
	p := policy.Config{Rules: c.Rules, Limits: c.Limits}
	for _, name := range sortedKeys(c.Workspaces) {
		if c.Workspaces[name].Secrets {
			p.Secrets = append(p.Secrets, name)
		}
		if c.Workspaces[name].BindsSessions {
			p.Bound = append(p.Bound, name)
		}
	}
	return p
}

const (
	clauseHint = `a list of clauses: [{ domain = "mail", op = "send", only = { recipient = ["ann@example.org"] } }]`
	sumHint    = `sum_at_most = "20.00", currency = "EUR"`
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
	c.Sum, c.Currency = s.text("sum_at_most"), s.text("currency")
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
		s.fail(s.node.key, "", clauseHint, "clause has no condition: only, under, unique, at_most or sum_at_most")
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
	if s.has("currency") && c.Kind != policy.SumAtMost {
		s.fail(s.node.children["currency"].key, "currency", sumHint, "currency belongs to sum_at_most")
	}
	if s.failed {
		return c, false
	}
	if err := c.Check(); err != nil {
		hint := ""
		if c.Kind == policy.SumAtMost || facts.CanonicalArg(c.Arg) == "amount" {
			hint = sumHint
		}
		s.fail(s.node.key, "", hint, "%s", visible(err.Error()))
		return c, false
	}
	return c, true
}

// decimalType is an exact number: a float would be rounded.
func decimalType(signed bool) valueType {
	expression, whole := `^[0-9]+(\.[0-9]+)?$`, schema{"type": "integer", "minimum": 0}
	if signed {
		expression, whole = `^-?[0-9]+(\.[0-9]+)?$`, schema{"type": "integer"}
	}
	return valueType{
		kinds: []kind{text, integer}, text: "decimal number, as text or whole",
		schema: schema{"anyOf": []schema{{"type": "string", "pattern": expression}, whole}},
		read:   func(_ *section, _ Key, n *node) any { return n.text },
	}
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
