package control

import (
	"context"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/policy"
)

var opRule = get("rule", "/requests/{workspace}/{id}/rule", "Propose a rule that allows a request", (*Service).rule)

func (s *Service) rule(ctx context.Context, c *httpapi.Caller, in *OneQuery) (chat.Proposal, error) {
	return s.ProposeRule(ctx, c, in.key())
}

// ProposeRule returns the rule that would allow a request, pending or ended, and what it
// would have allowed of the client's last requests. It changes nothing.
func (s *Service) ProposeRule(ctx context.Context, c *httpapi.Caller, k approval.Key) (x chat.Proposal, err error) {
	unknown := &decide.Refusal{Reason: decide.ErrUnknown, Hint: "no request with this ID needed an approver"}
	if !s.visible(c, k) {
		return x, unknown
	}
	st, err := s.Viewer.Story(ctx, k)
	if err != nil {
		return x, err
	}
	if st.Pending == nil {
		return x, unknown
	}
	if why := noRule(st.Pending); why != "" {
		return chat.Proposal{WhyNot: []approval.Reason{approval.Because(why)}}, nil
	}
	m, err := s.Memory()
	if err != nil {
		return x, err
	}
	t := &trial{s.Viewer, s.Home.Current(), m}
	if st.Pending.Plan != nil {
		return t.proposeProgram(st.Pending)
	}
	return t.propose(ctx, st.Pending, st.Client(k.Workspace))
}

// proposeProgram returns the rules that allow programs with calls like those of this one, or why its steps would still
// ask with them.
func (t *trial) proposeProgram(p *approval.Pending) (chat.Proposal, error) {
	lines := config.ProposeProgram(p.Plan.Steps, p.SourceGroup, p.ClientID)
	view, err := t.view(lines)
	if err != nil {
		return chat.Proposal{}, err
	}
	steps := gate.StepsOf(home.SettingsOf(t.cfg), p, time.Now())
	run, each := view.JudgeProgram(steps)
	if run.Outcome == approval.Allow {
		if rules, err := t.cfg.RulesOf(lines); err != nil || len(rules) == 0 {
			return chat.Proposal{WhyNot: []approval.Reason{approval.Because("rule_needless")}}, err
		}
		return chat.Proposal{Rule: lines}, nil
	}
	x := chat.Proposal{WhyNot: run.Reasons}
	for i, r := range each {
		if r.Outcome == approval.Ask && len(steps[i].Opaque) > 0 {
			x.WhyNot = append(x.WhyNot, approval.Because("program_opaque"))
			break
		}
	}
	return x, nil
}

// ruleMasked says that a rule would hold a secret.
const ruleMasked = "rule_masked"

// noRule is the code of why no rule shall be made from a request, "" if one may be.
func noRule(p *approval.Pending) string {
	redaction := home.NewRedaction()
	switch {
	case p.Type == approval.TypeQuestion:
		return "answer_once"
	case p.ToolName == "" && p.Plan == nil:
		return "rule_no_tool"
	case len(chat.Style{Redact: redaction}.Masked(p)) > 0, len(redaction.For(p).Unmaskable()) > 0:
		return ruleMasked
	}
	return ""
}

// trial judges stored requests by a configuration with one more rule.
type trial struct {
	viewer *read.Viewer
	cfg    *config.Config
	memory *home.Memory
}

// propose returns the rule that allows p. If the trifecta asked, or is all that stands in
// the way now, the rule names it in despite.
func (t *trial) propose(ctx context.Context, p *approval.Pending, client string) (chat.Proposal, error) {
	k := approval.Key{Workspace: p.SourceGroup, ID: p.RequestID}
	var despite []string
	if p.Ruling.Rule == "trifecta" {
		despite = []string{p.Ruling.Rule}
	}
	for {
		lines, err := config.Propose(p, despite...)
		if err != nil {
			return chat.Proposal{}, err
		}
		with, err := t.with(lines)
		if err != nil {
			return chat.Proposal{}, err
		}
		judge := ofClient(client, with)
		_, _, now := Rejudge(ctx, t.viewer, home.SettingsOf(t.cfg), k, judge)
		switch {
		case now.Outcome == approval.Allow:
			x := chat.Proposal{Rule: lines, Despite: despite}
			x.Would, x.Of = t.count(ctx, k, client, despite, judge)
			return x, nil
		case now.Rule == "trifecta" && len(despite) == 0:
			despite = []string{now.Rule}
		default:
			return chat.Proposal{WhyNot: slices.DeleteFunc(now.Reasons, func(x approval.Reason) bool {
				return x.Args["note"] == "note_other_rule" // that one is said
			})}, nil
		}
	}
}

// with returns a function that judges requests by the configuration and the rule of these
// lines. The operator's loader reads them.
func (t *trial) with(lines string) (func(approval.Facts) approval.Ruling, error) {
	view, err := t.view(lines)
	if err != nil {
		return nil, err
	}
	return view.Judge, nil
}

// view is the policy of the configuration with the rules of these lines.
func (t *trial) view(lines string) (*policy.View, error) {
	rules, err := t.cfg.RulesOf(lines)
	if err != nil {
		return nil, err
	}
	changed := t.cfg.PolicyConfig()
	changed.Rules = slices.Clone(changed.Rules)
	for _, rule := range rules {
		rule.Name, rule.Reason = "proposed", "" // for the reasons of why it does not help
		changed.Rules = append(changed.Rules, rule)
	}
	return t.memory.Try(changed)
}

// lastRuled is how many requests TryRule judges.
const lastRuled = 20

// TryRules says of how many of a workspace's last requests the rules of these lines would have
// made what the outcome of one of them says, and of how many nothing else does. Without a
// workspace it judges those of all.
func TryRules(ctx context.Context, h *home.Home, m *home.Memory, workspace, lines string) (n, of int, err error) {
	rules, err := h.Config.RulesOf(lines)
	if err != nil || m.Keys == nil {
		return 0, 0, err
	}
	t := &trial{h.Viewer(m.Keys), h.Config, m}
	with, err := t.with(lines)
	if err != nil {
		return 0, 0, err
	}
	q := read.Query{Limit: lastRuled}
	if workspace != "" {
		q.Workspaces = []string{workspace}
	}
	found, _, err := t.viewer.Requests(q)
	for _, x := range found {
		_, then, after := Rejudge(ctx, t.viewer, home.SettingsOf(t.cfg), x.Key, with)
		if then == nil {
			continue
		}
		_, _, before := Rejudge(ctx, t.viewer, home.SettingsOf(t.cfg), x.Key, m.Judge)
		does := slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.Outcome == after.Outcome })
		if of++; does && before.Outcome != after.Outcome {
			n++
		}
	}
	return n, of, err
}

func ofClient(id string, judge func(approval.Facts) approval.Ruling) func(approval.Facts) approval.Ruling {
	return func(f approval.Facts) approval.Ruling {
		f.ClientID = id
		return judge(f)
	}
}

// count says how many of the client's last asked requests but k judge would have allowed:
// it does now, the policy as it is does not, and then nothing asked that the rule leaves.
// One that is not stored any more is not allowed.
func (t *trial) count(
	ctx context.Context, k approval.Key, client string, despite []string, judge func(approval.Facts) approval.Ruling,
) (n, of int) {
	settings, before := home.SettingsOf(t.cfg), ofClient(client, t.memory.Judge)
	allows := func(k approval.Key, judge func(approval.Facts) approval.Ruling) bool {
		_, then, now := Rejudge(ctx, t.viewer, settings, k, judge)
		lifted := then != nil && (then.Soft || slices.Contains(despite, then.Rule))
		return lifted && now.Outcome == approval.Allow
	}
	for _, earlier := range t.memory.Asked(k.Workspace, client) {
		if earlier == k {
			continue
		}
		if of++; allows(earlier, judge) && !allows(earlier, before) {
			n++
		}
	}
	return n, of
}

// Rejudge judges a stored request as if it came now, and returns its original ruling: nil
// if policy did not evaluate it, or if it is not stored.
func Rejudge(
	ctx context.Context, v *read.Viewer, settings gate.Settings, k approval.Key,
	judge func(approval.Facts) approval.Ruling,
) (f approval.Facts, then *approval.Ruling, now approval.Ruling) {
	r, then, err := v.RequestAndRuling(ctx, k)
	if err != nil || r == nil || then == nil || then.Rule == gate.NotEvaluated {
		return f, nil, now
	}
	f, now = gate.Judge(settings, k.Workspace, r, time.Now(), judge, nil)
	return f, then, now
}
