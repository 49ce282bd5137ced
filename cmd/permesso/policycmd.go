package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/security/policy"
)

func (a *app) policyCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "policy", Short: "Show, explain and test what may run", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return fail(codeUsage, "permesso policy registry, table, check, explain, test or simulate", "policy: say what to do with it")
		},
	}
	c.AddCommand(a.policyRegistryCmd(), a.policyTableCmd(), a.policyCheckCmd(), a.policyExplainCmd(), a.policyTestCmd(), a.policySimulateCmd())
	return c
}

// long are the words of other programs for the three outcomes.
func long(o approval.Outcome) string {
	return map[approval.Outcome]string{approval.Allow: "allowed", approval.Ask: "approval_required", approval.Deny: "denied"}[o]
}

// eachLine prints JSON lines where they are asked for or nobody looks, and a
// table on a terminal.
func (a *app) eachLine(head []string, rows [][]string, objects []any) error {
	if !a.json && terminal(a.Out) {
		t := a.table(head...)
		for _, r := range rows {
			t.row(r...)
		}
		t.print()
		return nil
	}
	for _, o := range objects {
		b, err := json.Marshal(o, json.Deterministic(true))
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "%s\n", b)
	}
	return nil
}

func (a *app) policyRegistryCmd() *cobra.Command {
	return &cobra.Command{
		Use: "registry", Short: "List the 13 capabilities: a closed set", Args: cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			var rows [][]string
			var objects []any
			for _, c := range approval.Capabilities() {
				rows = append(rows, []string{c.Name, yesNo(c.Critical), string(c.Default), c.TargetKind})
				objects = append(objects, map[string]any{
					"capability": c.Name, "critical": c.Critical, "default_approval": c.Default, "target_kind": c.TargetKind,
				})
			}
			return a.eachLine([]string{"CAPABILITY", "CRITICAL", "DEFAULT", "TARGET"}, rows, objects)
		},
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (a *app) policyTableCmd() *cobra.Command {
	return &cobra.Command{
		Use: "table", Short: "Show what each level of autonomy says to each capability", Args: cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			var rows [][]string
			var objects []any
			for _, c := range approval.Capabilities() {
				row := []string{c.Name}
				for _, level := range approval.Levels() {
					o := policy.Table(level, c.Name)
					row = append(row, o.String())
					objects = append(objects, map[string]any{"level": level, "capability": c.Name, "outcome": long(o)})
				}
				rows = append(rows, row)
			}
			return a.eachLine([]string{"CAPABILITY", "READONLY", "SUPERVISED", "FULL"}, rows, objects)
		},
	}
}

// checkAnswer is what policy check --json prints.
type checkAnswer struct {
	Outcome    string            `json:"outcome"`
	Level      string            `json:"level"`
	Capability string            `json:"capability"`
	Rule       string            `json:"rule"`
	Reasons    []approval.Reason `json:"reasons"`
	Change     []approval.Reason `json:"change"`
	Consent    string            `json:"consent,omitzero"`
}

func (a *app) policyCheckCmd() *cobra.Command {
	var channel, sender, target, workspace string
	c := &cobra.Command{
		Use: "check LEVEL CAPABILITY", Short: "Say what the table and the grants make of a capability: allow, ask or deny", Args: cobra.ExactArgs(2),
		Long: "Say what the table and the grants make of a capability: allow, ask or deny.\n\n" +
			"LEVEL is readonly, supervised or full, however it is written. With --channel and --sender the grants of that\n" +
			"person count, --target says on what. Rules, trust and limits are not looked at: policy explain does that.",
		ValidArgsFunction: completeCheck,
		RunE: func(_ *cobra.Command, pos []string) error {
			level := strings.ToLower(pos[0])
			if !slices.Contains(approval.Levels(), level) {
				return fail(codeUsage, "readonly, supervised or full", "%q is no level of autonomy", pos[0])
			}
			c, ok := approval.CapabilityNamed(pos[1])
			if !ok {
				return fail(codeUsage, "permesso policy registry lists the 13", "%q is no capability", pos[1])
			}
			f := approval.Facts{
				Workspace: workspace, Autonomy: level, Tool: "check", KnownTool: true, Capability: c.Name, Target: target,
				Channel: channel, Sender: sender, Now: time.Now(),
				Trust: approval.Trust{PublicSource: "false", SecretData: "false", PublicSink: "false", DangerousWrites: "false"},
			}
			r, err := a.checkRuling(f)
			if err != nil {
				return err
			}
			return a.print(checkAnswer{long(r.Outcome), level, c.Name, r.Rule, r.Reasons, r.Change, r.Grant}, r.Outcome.String())
		},
	}
	c.Flags().StringVar(&channel, "channel", "", "the person's `channel`: telegram, email, local or workspace")
	c.Flags().StringVar(&sender, "sender", "", "and `id` there")
	c.Flags().StringVar(&target, "target", "", "on what: a `path`, host or name")
	c.Flags().StringVar(&workspace, "workspace", "", "the grants of this `workspace` (default: of every one)")
	return c
}

// checkRuling judges by the table, with every grant there is where a person is
// named.
func (a *app) checkRuling(f approval.Facts) (approval.Ruling, error) {
	e := &policy.Engine{}
	if err := e.Load(policy.Config{}); err != nil {
		return approval.Ruling{}, err
	}
	if f.Channel == "" || f.Sender == "" {
		return e.Judge(f), nil
	}
	_, m, err := a.memory()
	if err != nil {
		return approval.Ruling{}, err
	}
	for _, g := range m.Grants() {
		if f.Workspace != "" && g.Workspace != f.Workspace {
			continue
		}
		g.Workspace = "any"
		if err := e.AddGrant(g.Grant); err != nil {
			return approval.Ruling{}, err
		}
	}
	f.Workspace = "any"
	return e.Judge(f), nil
}

func completeCheck(_ *cobra.Command, pos []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch len(pos) {
	case 0:
		return approval.Levels(), cobra.ShellCompDirectiveNoFileComp
	case 1:
		var names []string
		for _, c := range approval.Capabilities() {
			names = append(names, c.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// memory is policy as it stands, for commands that only look. Without a home
// nothing is remembered.
func (a *app) memory() (*house, *memory, error) {
	h, err := a.house()
	if err != nil {
		return nil, nil, err
	}
	k, err := h.loadKeys()
	if err != nil {
		if _, statErr := os.Stat(h.layout.Keys()); !errors.Is(statErr, os.ErrNotExist) {
			return nil, nil, err
		}
		m, err := h.emptyMemory()
		return h, m, err
	}
	m, err := h.newMemory(k, zerolog.Nop())
	return h, m, err
}

func (a *app) policyExplainCmd() *cobra.Command {
	var workspace string
	c := &cobra.Command{
		Use: "explain REQUEST.json|ID", Short: "Say what policy makes of a request, why, and what would change it", Args: cobra.ExactArgs(1),
		Long: "Say what policy makes of a request, why, and what would change it.\n\n" +
			"The argument is a request file as an agent would write it (- is standard input), judged as if it came now; or\n" +
			"the id of one that waits or has ended, for which the ruling of that time is shown beside today's.",
		RunE: func(cmd *cobra.Command, pos []string) error { return a.explain(cmd.Context(), pos[0], workspace) },
	}
	c.Flags().StringVar(&workspace, "workspace", "", "the `workspace` that a request file is judged in (default: the first)")
	_ = c.RegisterFlagCompletionFunc("workspace", a.completeWorkspaces) // fails only for flags that are not there
	return c
}

// explained is what policy explain --json prints.
type explained struct {
	Workspace string           `json:"workspace"`
	Tool      string           `json:"tool_name"`
	Then      *approval.Ruling `json:"then,omitempty"` // of a request that came before
	Now       approval.Ruling  `json:"now"`
	Autonomy  string           `json:"autonomy"`
}

func (a *app) explain(ctx context.Context, what, workspace string) error {
	h, m, err := a.memory()
	if err != nil {
		return err
	}
	if b, err := a.readFile(what); err == nil {
		ws, err := a.chooseWorkspace(h, workspace)
		if err != nil {
			return err
		}
		f, err := h.factsOf(ws, b)
		if err != nil {
			return err
		}
		return a.printExplained(explained{ws, f.Tool, nil, m.Judge(f), f.Autonomy})
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return a.explainKnown(ctx, h, m, what)
}

func (a *app) chooseWorkspace(h *house, name string) (string, error) {
	if name == "" {
		return firstWorkspace(h.cfg), nil
	}
	if _, ok := h.cfg.Workspaces[name]; !ok {
		return "", fail(codeError, "the workspaces are: "+strings.Join(sortedNames(h.cfg), ", "), "no workspace '%s' in the configuration", name)
	}
	return name, nil
}

// factsOf are a request's facts as the gate would see them.
func (h *house) factsOf(ws string, b []byte) (approval.Facts, error) {
	r, err := approval.ParseDraft(b)
	if err != nil {
		return approval.Facts{}, fail(codeError, "ipc/FORMAT.md says what a request looks like", "%w", err)
	}
	return gate.FactsOf(settingsOf(h.cfg), ws, r, time.Now()), nil
}

func (a *app) explainKnown(ctx context.Context, h *house, m *memory, typed string) error {
	if m.keys == nil {
		return fail(codeError, "permesso policy explain FILE, or an id of a home that has been served", "%s: no such file", typed)
	}
	v := h.viewer(m.keys)
	k, err := find(ctx, v, typed)
	if err != nil {
		return err
	}
	r, then, err := h.requestOf(ctx, v, k)
	if err != nil {
		return err
	}
	if r == nil {
		return fail(codeError, "permesso show "+k.ID, "of %s no request is kept that could be judged", k)
	}
	f := gate.FactsOf(settingsOf(h.cfg), k.Workspace, r, time.Now())
	return a.printExplained(explained{k.Workspace, f.Tool, then, m.Judge(f), f.Autonomy})
}

// requestOf rebuilds the request of what waits or has ended, with the ruling of
// that time; nil where nothing that could be judged is kept.
func (h *house) requestOf(ctx context.Context, v *gate.Viewer, k approval.Key) (*approval.Request, *approval.Ruling, error) {
	rec, err := v.Record(ctx, k)
	if err != nil {
		return nil, nil, err
	}
	var p *approval.Pending
	var then *approval.Ruling
	if rec != nil {
		then = rec.Ruling
		if len(rec.Request) > 0 && rec.Request.Kind() == '{' {
			r, err := approval.ParseRequest(rec.Request, k.ID)
			return r, then, err
		}
		p = v.Asked(k, rec.Pending) // of what was malformed nothing is kept
	} else {
		w, err := v.Pending(k)
		if err != nil || w == nil {
			return nil, nil, err
		}
		p = w.Pending
		then = &p.Ruling
	}
	if p == nil {
		return nil, then, nil
	}
	return &approval.Request{
		RequestID: p.RequestID, Type: p.Type, ToolName: p.ToolName, ActionType: p.ActionType, RequestData: p.RequestData,
		SessionID: p.SessionID, Title: p.Agent.Title, Preview: p.Agent.Preview, Rationale: p.Agent.Rationale, Options: p.Options,
		Proof: p.Proof, Resubmits: p.Resubmits,
	}, then, nil
}

func (a *app) printExplained(x explained) error {
	var b strings.Builder
	name := x.Tool
	if name == "" {
		name = "release-only"
	}
	fmt.Fprintf(&b, "%s in %s (%s)", chat.Escape(name), x.Workspace, x.Autonomy)
	if x.Then != nil {
		b.WriteString("\nthen: " + rulingText(*x.Then))
		b.WriteString("\nnow:  " + rulingText(x.Now))
	} else {
		b.WriteString("\n" + rulingText(x.Now))
	}
	return a.print(x, b.String())
}

// reasonTexts are reasons as the commands print them, escaped.
func reasonTexts(reasons []approval.Reason) []string {
	return chat.Style{}.Reasons(&approval.Pending{}, reasons)
}

func rulingText(r approval.Ruling) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s by %s", r.Outcome, chat.Escape(r.Rule))
	for _, s := range reasonTexts(r.Reasons) {
		b.WriteString("\n      " + s)
	}
	for _, s := range reasonTexts(r.Change) {
		b.WriteString("\n      to change it: " + s)
	}
	return b.String()
}
