package control

import (
	"fmt"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// Change is a change after which the ruling on a request is milder.
type Change struct {
	What    string           `json:"what"` // autonomy, rule, despite, grant, taints
	How     string           `json:"how"`  // what to write, answer or run
	Outcome approval.Outcome `json:"outcome"`
}

// explainer tries changes with the engine.
type explainer struct {
	cfg    *config.Config
	memory *home.Memory
	facts  approval.Facts
	now    approval.Ruling
	found  []Change
}

// Changes lists the single changes after which the engine rules milder on a request, each
// tried. name is what the proposed rule calls the request. The memory is the caller's own:
// afterwards it has no taints of the workspace.
func Changes(h *home.Home, m *home.Memory, f approval.Facts, now approval.Ruling, name string) []Change {
	if now.Outcome == approval.Allow || now.Rule == gate.NotEvaluated {
		return nil
	}
	x := &explainer{cfg: h.Config, memory: m, facts: f, now: now}
	x.autonomy()
	x.rule(name)
	x.grants()
	x.taints()
	return x.found
}

// add keeps a change if the outcome is milder than without it.
func (x *explainer) add(what, how string, then approval.Outcome) {
	if then > x.now.Outcome {
		x.found = append(x.found, Change{what, how, then})
	}
}

// autonomy tries each higher level. One that does no more than a lower one is not listed.
func (x *explainer) autonomy() {
	best := x.now.Outcome
	for _, level := range grant.Levels() {
		f := x.facts
		if f.Autonomy = level; grant.LowerLevel(level, x.facts.Autonomy) == level {
			continue
		}
		if then := x.memory.Judge(f).Outcome; then > best {
			best = then
			x.add("autonomy", fmt.Sprintf("autonomy = %q in %s", level, strings.Join(x.limits(level), " and ")), then)
		}
	}
}

// limits are the settings that keep the request below a level of autonomy.
func (x *explainer) limits(level string) (keys []string) {
	below := func(own string) bool { return own != "" && grant.LowerLevel(own, level) != level }
	ws := x.cfg.Workspaces[x.facts.Workspace]
	if below(ws.Sessions[x.facts.SessionID]) {
		keys = append(keys, fmt.Sprintf("[workspaces.%s] sessions of %q", ws.Name, x.facts.SessionID))
	}
	if below(x.cfg.Approvers[ws.Principal].Autonomy) {
		keys = append(keys, "[approvers."+ws.Principal+"]")
	}
	if below(x.written("workspaces." + ws.Name + ".autonomy")) {
		keys = append(keys, "[workspaces."+ws.Name+"]")
	}
	return keys
}

// written is the value of a setting, which other settings may lower.
func (x *explainer) written(key string) string {
	for _, s := range x.cfg.Settings {
		if v, ok := s.Value.(string); ok && s.Key == key {
			return v
		}
	}
	return ""
}

// rule tries the rule for exactly this request, then with what it must lift besides. Its
// lines are not shown if they hold a secret.
func (x *explainer) rule(name string) {
	p := &approval.Pending{
		ShortID: name, ToolName: x.facts.Tool, SourceGroup: x.facts.Workspace, RequestData: x.facts.Args,
		Runs: approval.Runs{Args: x.facts.Declared}, Agent: x.facts.Agent,
	}
	why := noRule(p)
	if x.facts.Question || why != "" && why != ruleMasked {
		return
	}
	for _, despite := range [][]string{nil, {"trifecta"}, {"secrets"}, {"trifecta", "secrets"}} {
		lines, err := config.Propose(p, despite...)
		if err != nil {
			return
		}
		judge, err := (&trial{cfg: x.cfg, memory: x.memory}).with(lines)
		if err != nil {
			continue // a destination without a condition
		}
		switch then := ofClient(x.facts.ClientID, judge)(x.facts).Outcome; {
		case then <= x.now.Outcome:
		case why == ruleMasked:
			x.add("despite", fmt.Sprintf(`a rule for %s with despite = ["%s"] and a condition on every argument`, x.facts.Tool, strings.Join(despite, `", "`)), then)
			return
		default:
			x.add("rule", lines, then)
			return
		}
	}
}

// grants tries what approvals would remember.
func (x *explainer) grants() {
	p := &approval.Pending{RequestID: strings.Repeat("0", 32), Offers: x.memory.Offers(x.facts, x.now)}
	for _, o := range []struct {
		scope approval.Scope
		flag  string
	}{{approval.Session, "--session"}, {approval.Always, "--always"}} {
		g := grant.From(p, &approval.Decision{
			Verdict: approval.Approved, Scope: o.scope, DecidedAt: x.facts.Now, DecidedBy: "operator", Via: "local",
		})
		if g == nil || x.memory.AddGrant(*g) != nil {
			continue
		}
		x.add("grant", "permesso approve ID "+o.flag, x.memory.Judge(x.facts).Outcome)
		x.memory.RemoveGrant(g.ID)
	}
}

// taints comes last: it clears them.
func (x *explainer) taints() {
	x.memory.Learn(event.Entry{Event: event.TaintsCleared, Workspace: x.facts.Workspace, Time: x.facts.Now})
	x.add("taints", "permesso session clear "+x.facts.Workspace, x.memory.Judge(x.facts).Outcome)
}
