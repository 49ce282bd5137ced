package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/security/policy"
)

// adviseRules warns of rules that are valid, and do nothing or more than one would think.
func (s *section) adviseRules() {
	all := s.list("rules")
	for i, sub := range all {
		m := sub.table("match")
		if m == nil || sub.isRefused() {
			continue
		}
		r := s.cfg.Rules[i]
		tools := m.toolsOf(r)
		m.adviseMatch(r, tools)
		m.adviseConditions(r, tools)
		if r.Outcome == approval.Allow {
			m.adviseAlways(r, tools)
		}
		for j, by := range s.cfg.Rules {
			if j != i && shadowed(r, by, tools) {
				sub.warn(sub.position("outcome"), "outcome", "remove one of them, or narrow the other",
					"rule has no effect: %s (line %d) is stricter and applies to all that it matches", quote(by.Name), all[j].node.key.line)
				break
			}
		}
	}
}

// toolsOf are the configured tools that a rule matches, by name. An unknown name has been
// reported.
func (s *section) toolsOf(r policy.Rule) (tools []approval.Tool) {
	for _, name := range sortedKeys(s.cfg.Tools) {
		if t := s.cfg.Tools[name]; r.Tool.Include(name) && r.Tools.Include(name) && (len(r.Capability) == 0 || slices.Contains(r.Capability, t.Capability)) {
			tools = append(tools, t)
		}
	}
	return tools
}

// shadowed also knows the capabilities of the rule's tools. What an allow states of trust
// counts also where another rule asks.
func shadowed(r, by policy.Rule, tools []approval.Tool) bool {
	if by.Outcome == approval.Ask && r.Trust != (approval.Trust{}) {
		return false
	}
	if len(r.Tool) > 0 && len(r.Capability) == 0 {
		for _, t := range tools {
			r.Capability = append(r.Capability, t.Capability)
		}
	}
	return r.IsShadowedBy(by)
}

// adviseMatch warns of a match that no request of the named tools has.
func (s *section) adviseMatch(r policy.Rule, tools []approval.Tool) {
	known := slices.ContainsFunc(r.Tool, func(name string) bool { _, ok := s.cfg.Tools[name]; return ok })
	switch {
	case known && len(tools) == 0:
		s.warn(s.position("capability"), "capability", "remove it: the tool's name is enough", "rule never matches: its tools have another capability")
	case len(r.Tool) > 0 && len(tools) > 0 && len(r.Target) > 0 && !slices.ContainsFunc(tools, func(t approval.Tool) bool { return t.Target != "" }):
		effect := "rule always asks"
		if r.Outcome == approval.Allow {
			effect = "rule never matches"
		}
		s.warn(s.position("target"), "target", "a condition on an argument: args = { path = … }; or a target of the tool", "%s: its tools have no target", effect)
	}
}

// adviseConditions warns of conditions that nothing, or too much, meets.
func (s *section) adviseConditions(r policy.Rule, tools []approval.Tool) {
	args := s.table("args")
	if args == nil || len(r.Tool) == 0 {
		return
	}
	for _, c := range r.Args {
		kinds := map[string]bool{}
		for _, t := range tools {
			if a, declared := facts.Arguments(t)[c.Field]; declared {
				kinds[a.Type] = true
			}
		}
		for kind := range kinds {
			if len(kinds) > 1 {
				break // each tool may mean another thing
			}
			if kind == facts.TypeCommand {
				args.adviseArgv(c)
			}
			if r.Outcome == approval.Allow {
				args.adviseCondition(c, kind)
			}
		}
	}
}

func (s *section) adviseArgv(c policy.Condition) {
	if policy.IsOneArgv(c.Is) {
		s.warn(s.node.children[c.Field].val, c.Field, c.Field+" = "+quote(strings.Join(c.Is, " ")),
			"a list has one pattern for each command: this is %s, or %s", quote(c.Is[0]), quote(c.Is[1]))
	}
}

func (s *section) adviseCondition(c policy.Condition, kind string) {
	at := s.node.children[c.Field].val
	if why := c.NeverAllows(kind); why != "" {
		s.warn(at, c.Field, "", "rule never matches: %s", visible(why))
	}
	if pattern, open := c.IsOpenPlace(kind); open {
		s.warn(at, c.Field, "name the folders or hosts", "%s matches everything", quote(pattern))
	}
	switch kind {
	case facts.TypeCommand:
		s.adviseCommands(c, at)
	case facts.TypePath:
		s.adviseFolders(c, at)
	}
}

func (s *section) adviseCommands(c policy.Condition, at pos) {
	for _, p := range c.Is {
		if open := policy.OpenProgram(p); open != "" {
			s.warn(at, c.Field, fmt.Sprintf("name the words that you mean, as in %q", "python3 tools/check.py ..."),
				"%s lets the agent choose what runs: the words behind %s say it", quote(p), quote(open))
		}
	}
}

func (s *section) adviseFolders(c policy.Condition, at pos) {
	if s.resolve == nil {
		return
	}
	for _, p := range c.Is {
		if folder, leads := policy.LinkedFolder(p, s.resolve); folder != "" {
			s.warn(at, c.Field, "write "+quote(leads+strings.TrimPrefix(p, folder)),
				"%s never matches: %s leads to %s, and a path must match with its links resolved", quote(p), visible(folder), visible(leads))
		}
	}
}

// adviseAlways warns of an allow that leaves the ask of a capability which asks each time.
func (s *section) adviseAlways(r policy.Rule, tools []approval.Tool) {
	always := func(t approval.Tool) bool { return policy.AlwaysAsks(t.Capability) }
	named := slices.Concat(r.Tool, r.Tools)
	liftsSome := slices.ContainsFunc(tools, func(t approval.Tool) bool { return !always(t) || slices.Contains(named, t.Name) })
	if len(tools) > 0 && !liftsSome && r.Trust == (approval.Trust{}) {
		s.warn(s.node.key, "", `match = { tool = "NAME", args = { … } }`,
			"rule lifts nothing: %s asks each time, unless a rule names the tool", tools[0].Capability)
		return
	}
	for _, t := range tools {
		if !slices.Contains(named, t.Name) {
			continue
		}
		missing := r.Unconditioned(facts.Arguments(t), r.OnlyArgs)
		hint := "args = { " + strings.Join(missing, ` = "…", `) + ` = "…" }`
		switch {
		case r.OnlyArgs && len(missing) > 0:
			s.warn(s.position("other_args"), "other_args", hint, "rule never matches: with other_args = false, each request of %s needs a condition on %s", quote(t.Name), visible(list(missing)))
		case !always(t) || len(r.Args) == 0 && r.Trust != (approval.Trust{}):
		case len(r.WhenProven) > 0:
			s.warn(s.node.key, "", "a tool that states its four properties instead of a capability", "rule lifts no ask of %s: %s asks each time, whatever is proven", quote(t.Name), t.Capability)
		case len(missing) > 0:
			s.warn(s.node.key, "", hint, "rule lifts no ask of %s: %s asks each time, unless a rule has a condition on every argument; missing: %s", quote(t.Name), t.Capability, visible(strings.Join(missing, ", ")))
		case len(r.Args) == 0 && !r.OnlyArgs:
			s.warn(s.node.key, "", "other_args = false", "rule lifts no ask of %s: %s asks each time, unless a rule has a condition on every argument", quote(t.Name), t.Capability)
		}
	}
}

// adviseTools warns of tools that never run.
func (s *section) adviseTools() {
	e := &policy.Engine{}
	for name, sub := range s.toolAt {
		t, denied := s.cfg.Tools[name], 0
		for _, ws := range s.cfg.Workspaces {
			ruling := e.Judge(approval.Facts{Workspace: ws.Name, Autonomy: ws.Autonomy, Tool: name, KnownTool: true, Capability: t.Capability, Trust: t.Trust})
			if ruling.Outcome == approval.Deny {
				denied++
			}
		}
		if levels := slices.Sorted(maps.Keys(s.levels())); denied > 0 && denied == len(s.cfg.Workspaces) && !sub.isRefused() {
			sub.warn(sub.node.key, "", "permesso policy table shows what each level of autonomy denies; no rule lifts that",
				"tool %s never runs: at autonomy %s, what it does is denied", quote(name), list(levels))
		}
		sub.adviseHarmless(t)
		if s.ready == nil || sub.isRefused() {
			continue
		}
		if err := s.ready(t.Handler); err != nil {
			h := sub.table("handler")
			h.warn(h.node.key, "", "", "tool %s cannot run on this machine: %s", quote(name), visible(err.Error()))
		}
	}
}

// adviseHarmless warns of a tool without a capability that runs unasked although its effect
// cannot be undone: what it states contradicts, and one of the two is a mistake.
func (s *section) adviseHarmless(t approval.Tool) {
	but := map[approval.Reversibility]string{approval.Irreversible: "irreversible", approval.Partial: "only partly reversible"}[t.Reversibility]
	if but == "" || t.Capability != "" || t.Trust.DangerousWrites != "false" || s.isRefused() {
		return
	}
	for ws := range s.cfg.Workspaces {
		all := policy.Rule{Outcome: approval.Allow, Tool: policy.Names{t.Name}, Workspace: policy.Names{ws}}
		if !slices.ContainsFunc(s.cfg.Rules, func(by policy.Rule) bool {
			by.Outcome = approval.Deny // an allow of all its requests is meant, too
			return len(by.WhenProven) == 0 && !by.OnlyArgs && all.IsShadowedBy(by)
		}) {
			s.warnHarmless(t.Name, but)
			return
		}
	}
}

func (s *section) warnHarmless(name, but string) {
	key := "trust"
	if !s.has(key) {
		key = "dangerous_writes"
	}
	s.warn(s.position(key), key, `state a capability, or add a rule with outcome "ask"`,
		"tool %s: `%s = false` says that it can do no harm, so it runs without approval, but it is %s", quote(name), key, but)
}

// levels are those of the workspaces.
func (s *section) levels() map[string]bool {
	all := map[string]bool{}
	for _, ws := range s.cfg.Workspaces {
		all[ws.Autonomy] = true
	}
	return all
}
