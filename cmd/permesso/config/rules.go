package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/policy"
)

func (s *section) rules() {
	n := s.get("rules", array, "write [[rules]]")
	if n == nil {
		return
	}
	names := map[string]bool{}
	for i, item := range n.items {
		if item.kind != table {
			s.fail(item.val, "rules", "write [[rules]]", "rules must hold tables, not %s", item.kind)
			continue
		}
		sub := s.section(item, fmt.Sprintf("rules[%d]", i+1))
		rule := sub.rule(fmt.Sprintf("rule %d", i+1))
		if names[rule.Name] {
			at := item.key
			if n := item.children["name"]; n != nil {
				at = n.val
			}
			sub.fail(at, "name", "", "another rule has the name %s", quote(rule.Name))
		}
		names[rule.Name] = true
		s.cfg.Rules = append(s.cfg.Rules, rule)
	}
}

func (s *section) rule(name string) policy.Rule {
	r := policy.Rule{Name: name, Reason: s.line("reason", 300)}
	if v := s.line("name", 63); v != "" {
		r.Name = v
	}
	outcomes := []string{"allow", "ask", "deny"}
	word := s.oneOf("outcome", "deny", outcomes)
	if !s.has("outcome") {
		s.fail(s.node.key, "outcome", `outcome = "ask"`, "rule has no outcome: %s", list(outcomes))
	}
	_ = r.Outcome.UnmarshalText([]byte(word)) // oneOf has checked it
	s.proofs(&r)
	s.match(&r)
	s.rejectUnknown()
	return r
}

// match reads what a rule applies to. It must not match everything: autonomy is for
// that, and such an allow rule would switch the gate off.
func (s *section) match(r *policy.Rule) {
	const hint = `match = { tool = "x_post", workspace = "personal" }`
	m := s.table("match", hint)
	if m == nil {
		if !s.has("match") {
			s.fail(s.node.key, "match", hint, "rule has no match")
		}
		return
	}
	if len(m.node.order) == 0 {
		m.fail(m.node.key, "", hint, "match must name a tool or a workspace")
	}
	before := len(s.issues)
	r.Tool = m.matchName("tool", approval.ValidToolName, sortedKeys(s.cfg.Tools))
	r.Workspace = m.matchName("workspace", namePattern().MatchString, sortedKeys(s.cfg.Workspaces))
	r.Approver = m.matchName("approver", namePattern().MatchString, sortedKeys(s.cfg.Approvers))
	r.Capability = m.oneOf("capability", "", capabilities())
	r.Target = m.line("target", 1000)
	r.Session = m.line("session", 128)
	r.Client = m.line("client", 128)
	r.Args = m.conditions()
	m.rejectUnknown()
	if len(s.issues) == before {
		if err := r.Check(); err != nil {
			m.fail(m.node.key, "", "", "%s", visible(strings.TrimPrefix(err.Error(), "check rule "+strconv.Quote(r.Name)+": ")))
		}
	}
}

func (s *section) matchName(key string, valid func(string) bool, known []string) string {
	n := s.get(key, text, "")
	switch {
	case n == nil:
		return ""
	case !valid(n.text):
		s.fail(n.val, key, "write one name, or remove it to match every "+key, "%s is not a name", key)
	case !slices.Contains(known, n.text):
		s.warn(n.val, key, didYouMean(n.text, known, ""), "rule never matches: there is no %s %s", key, quote(n.text))
	}
	return n.text
}

// conditions reads args: a string is a glob for a text argument, any other value
// must be equal.
func (s *section) conditions() []policy.Condition {
	const hint = `args = { path = "/data/**", argv = ["git", "status"] }`
	sub := s.table("args", hint)
	if sub == nil {
		return nil
	}
	if len(sub.node.order) == 0 {
		sub.fail(sub.node.key, "", hint, "args names no argument")
	}
	var all []policy.Condition
	for _, name := range sub.node.order {
		n := sub.node.children[name]
		if n.kind == text {
			all = append(all, policy.Condition{Field: name, Glob: n.text})
			continue
		}
		v, ok := jsonOf(n)
		if !ok {
			sub.fail(n.val, name, hint, "%s must be a glob, a whole number, true or false, or a list of strings", name)
			continue
		}
		all = append(all, policy.Condition{Field: name, Equals: v})
	}
	return all
}

// jsonOf returns a TOML value as JSON.
func jsonOf(n *node) (approval.Raw, bool) {
	switch n.kind {
	case integer:
		v, err := strconv.ParseInt(n.text, 0, 64)
		return approval.Raw(strconv.FormatInt(v, 10)), err == nil
	case boolean:
		return approval.Raw(n.text), true
	case array:
		words := make([]string, 0, len(n.items))
		for _, item := range n.items {
			if item.kind != text {
				return nil, false
			}
			words = append(words, item.text)
		}
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if enc.Encode(words) != nil {
			return nil, false
		}
		return approval.Raw(strings.TrimSpace(b.String())), true
	}
	return nil, false
}

// policySettings reads the settings of a workspace that policy uses.
func (s *section) policySettings(w *approval.Workspace) {
	w.Secrets = s.flag("contains_secrets", false)
	w.Admin = s.flag("admin", false)
	w.BindsSessions = s.flag("binds_sessions", false)
	if sub := s.table("sessions", `sessions = { "sess_1" = "readonly" }`); sub != nil {
		w.Sessions = map[string]string{}
		for _, id := range sub.node.order {
			w.Sessions[id] = sub.oneOf(id, approval.ReadOnly, autonomies())
		}
		sub.rejectUnknown()
	}
	l := policy.Limits{
		Ask: s.rates("ask_above"), Deny: s.rates("deny_above"),
		Session: s.budget("budget_session"), Day: s.budget("budget_day"),
	}
	if len(l.Ask)+len(l.Deny) > 0 || l.Session != l.Day || l.Day != (policy.Budget{}) {
		s.cfg.Limits[w.Name] = l
	}
}

// rates reads token buckets by capability: "10/1h".
func (s *section) rates(key string) map[string]policy.Rate {
	const hint = `number per duration: { "mail:send" = "10/1h" }; "none" stands for tools without a capability`
	sub := s.table(key, hint)
	if sub == nil {
		return nil
	}
	rates := map[string]policy.Rate{}
	for _, name := range sub.node.order {
		capability := name
		if name == "none" {
			capability = ""
		} else if _, ok := approval.CapabilityNamed(name); !ok {
			sub.known = append(sub.known, name)
			sub.fail(sub.node.children[name].key, name, didYouMean(name, capabilities(), ""), "%s is not a capability", quote(name))
			continue
		}
		n := sub.get(name, text, hint)
		if n == nil {
			continue
		}
		r, ok := parseRate(n.text)
		if !ok {
			sub.fail(n.val, name, hint, "%s is not a rate", name)
			continue
		}
		rates[capability] = r
	}
	sub.rejectUnknown()
	return rates
}

func parseRate(s string) (policy.Rate, bool) {
	count, per, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(count)
	if !ok || err != nil || n < 0 || n > 1_000_000 {
		return policy.Rate{}, false
	}
	d, err := time.ParseDuration(per)
	if err != nil || d < time.Second || d > maxWait {
		return policy.Rate{}, false
	}
	return policy.Rate{Burst: n, Per: d}, true
}

func (s *section) budget(key string) policy.Budget {
	const hint = "above soft, approval is needed; above hard, nothing runs; in the units of a tool's cost"
	sub := s.table(key, hint)
	if sub == nil {
		return policy.Budget{}
	}
	b := policy.Budget{Soft: sub.number("soft", 0, 1, 1<<53, hint), Hard: sub.number("hard", 0, 1, 1<<53, hint)}
	if b.Soft > 0 && b.Hard > 0 && b.Soft > b.Hard {
		sub.fail(sub.node.children["soft"].val, "soft", hint, "soft is above hard")
	}
	if b == (policy.Budget{}) {
		sub.fail(sub.node.key, "", hint, "%s has neither soft nor hard", key)
	}
	sub.rejectUnknown()
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
				at := s.node.children["tools"].children[tool].key
				s.fail(at, "tools."+tool, `set public_source = false (or "forbidden") if it reads no public source, or add a deny rule for it there`,
					"tool %s may read public sources, which admin workspace %s must not", quote(tool), quote(name))
			}
		}
	}
}

// denied reports whether a rule without other conditions denies the tool in ws.
func (s *section) denied(tool, ws string) bool {
	return slices.ContainsFunc(s.cfg.Rules, func(r policy.Rule) bool {
		return r.Outcome == approval.Deny && (r.Workspace == "" || r.Workspace == ws) &&
			r.Tool == tool && r.Capability == "" && r.Target == "" && r.Session == "" && r.Client == "" && r.Approver == "" &&
			len(r.Args) == 0 && len(r.UnlessProven) == 0
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
