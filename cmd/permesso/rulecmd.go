package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

// ruleOptions are the flags of rule add.
type ruleOptions struct {
	from       string
	rule       config.NewRule
	write, yes bool
}

var ruleOutcomes = []string{"allow", "ask", "always_ask", "deny"}

func (a *app) ruleCmd() *cobra.Command {
	var o ruleOptions
	add := &cobra.Command{
		Use: "add", Short: "Print or write a rule: one that allows a request, or one from flags", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.addRule(cmd.Context(), o) },
	}
	f := add.Flags()
	f.StringVar(&o.from, "from", "", "`ID` of the request that the rule shall allow")
	f.StringVar(&o.rule.Tool, "tool", "", "`name` of the tool that the rule is for (default: every tool)")
	f.StringVar(&o.rule.Workspace, "workspace", "", "`workspace` that the rule is for (default: all)")
	f.StringVar(&o.rule.Outcome, "outcome", "", "`word`: "+strings.Join(ruleOutcomes, ", "))
	f.StringVar(&o.rule.Reason, "reason", "", "`text` for the approver and the audit log")
	f.BoolVar(&o.write, "write", false, "write the rule into the configuration, after a question")
	f.BoolVarP(&o.yes, "yes", "y", false, "with --write: ask no question")
	completeFlags(add, map[string][]string{"outcome": ruleOutcomes})
	return console.Group(&cobra.Command{Use: "rule", Short: "Propose, add and list rules"}, add, a.ruleListCmd())
}

// listedRule is an item of rule list --json.
type listedRule struct {
	Number  int            `json:"number"` // from 1, in the order of the file
	Match   map[string]any `json:"match"`
	Outcome string         `json:"outcome"`
	Reason  string         `json:"reason"`
}

func (a *app) ruleListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List configured rules", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			h, err := home.Load(a.Console)
			if err != nil {
				return err
			}
			all, t := []listedRule{}, a.Table("RULE", "OUTCOME", "MATCH", "REASON")
			for i, r := range h.Config.Rules {
				x := listedRule{Number: i + 1, Match: map[string]any{}, Outcome: r.Outcome.String(), Reason: r.Reason}
				if r.Always {
					x.Outcome = "always_" + x.Outcome
				}
				var match []string
				for _, s := range h.Config.Settings {
					if key, ok := strings.CutPrefix(s.Key, fmt.Sprintf("rules[%d].match.", x.Number)); ok && s.Line > 0 {
						x.Match[key], match = s.Value, append(match, key+" = "+s.Text())
					}
				}
				all = append(all, x)
				t.Row(strconv.Itoa(x.Number), x.Outcome, strings.Join(match, ", "), chat.Escape(r.Reason))
			}
			if len(all) > 0 && !a.JSON {
				t.Print()
				return nil
			}
			return a.Print(all, "no rules: permesso policy table shows what each level of autonomy asks")
		},
	}
}

// printedProposal is what rule add --json prints.
type printedProposal struct {
	RequestID string `json:"request_id,omitempty"` // of a rule from a request
	chat.Proposal
	Config string `json:"config,omitempty"` // the file that it was written into
	Daemon string `json:"daemon,omitempty"`
}

func (a *app) addRule(ctx context.Context, o ruleOptions) (err error) {
	var x printedProposal
	var says []string
	switch made := o.rule != (config.NewRule{}); {
	case o.from == "" && !made:
		return console.Fail(console.ExitUsage, "permesso pending lists the ids", "rule add needs --from ID, or --tool and --outcome")
	case o.from != "" && made:
		return console.Fail(console.ExitUsage, "leave out --tool, --workspace, --outcome and --reason", "with --from the rule is that of the request")
	case made:
		x, says, err = a.makeRule(ctx, o.rule)
	default:
		err = a.ask(ctx, func(d *control.Client) error {
			x, says, err = proposeRule(ctx, d, o.from)
			return err
		})
	}
	if err != nil {
		return err
	}
	lines := "# " + strings.Join(says, "\n# ") + "\n" + x.Rule
	if !o.write {
		return a.PrintToCopy(x, lines)
	}
	return a.writeRule(ctx, x, lines, o.yes)
}

// proposeRule returns the rule that allows a request, with what it would have allowed.
func proposeRule(ctx context.Context, d *control.Client, typed string) (x printedProposal, says []string, err error) {
	p, err := askedRequest(ctx, d, typed)
	if err != nil {
		return x, nil, err
	}
	x.RequestID = p.RequestID
	k := approval.Key{Workspace: p.SourceGroup, ID: p.RequestID}
	if x.Proposal, err = d.ProposeRule(ctx, k); err != nil {
		return x, nil, err
	}
	says = d.Style().Proposal(p, x.Proposal)
	if x.Rule != "" {
		return x, says, nil
	}
	s, err := d.Story(ctx, k, false)
	if err != nil {
		return x, nil, err
	}
	hint := ""
	if s.Waiting != nil && s.Decision == nil {
		hint = "permesso approve " + p.ShortID + " allows it once"
	}
	return x, nil, console.Fail(console.ExitRefused, hint, "%s", strings.Join(says, "\n"))
}

// makeRule returns the rule of the flags, with what it would have changed.
func (a *app) makeRule(ctx context.Context, r config.NewRule) (x printedProposal, says []string, err error) {
	h, m, err := home.ReadMemory(a.Console)
	if err != nil {
		return x, nil, err
	}
	if _, ok := h.Config.Workspaces[r.Workspace]; r.Workspace != "" && !ok {
		_, err := control.ChooseWorkspace(h, r.Workspace)
		return x, nil, err
	}
	switch _, known := h.Config.Tools[r.Tool]; {
	case r.Outcome == "":
		return x, nil, console.Fail(console.ExitUsage, "--outcome "+strings.Join(ruleOutcomes, ", "), "rule add needs --outcome")
	case r.Tool == "" && r.Workspace == "":
		return x, nil, console.Fail(console.ExitUsage, "a rule for everything is written with permesso config edit", "rule add needs --tool or --workspace")
	case r.Tool != "" && !known && !strings.HasSuffix(r.Tool, "*"):
		return x, nil, console.Fail(console.ExitError, "permesso tool add, or permesso config show", "no tool '%s' in the configuration", r.Tool)
	}
	x.Rule = r.Lines()
	x.Would, x.Of, err = control.TryRules(ctx, h, m, r.Workspace, x.Rule)
	if bad, ok := errors.AsType[*config.Error](err); ok && len(bad.Errors) > 0 {
		return x, nil, console.Fail(console.ExitUsage, bad.Errors[0].Hint, "%s", bad.Errors[0].Message)
	}
	did := map[string]string{"allow": "allowed", "deny": "denied"}[r.Outcome]
	if did == "" {
		did = "asked about"
	}
	return x, []string{fmt.Sprintf("It would also have %s %d of the last %d requests.", did, x.Would, x.Of)}, err
}

// writeRule writes a rule into the configuration, if the person agrees.
func (a *app) writeRule(ctx context.Context, x printedProposal, lines string, yes bool) error {
	h, err := home.Load(a.Console)
	if err != nil {
		return err
	}
	if h.Config.File == "" {
		return console.Fail(console.ExitError, "run permesso init", "no configuration file")
	}
	these := "this rule"
	if strings.Count(x.Rule, "[[rules]]\n") > 1 {
		these = "these rules"
	}
	if h.Config.HasRules(x.Rule) {
		return console.Fail(console.ExitError, "permesso rule list shows the rules", "%s already has %s", h.Config.File, these)
	}
	if !yes {
		if _, _, ok := a.Terminal(); !ok || a.JSON {
			return console.Fail(console.ExitUsage, "add --yes", "rule add --write asks a question, and needs a terminal")
		}
		agreed, err := a.Confirm(ctx, lines, "Write "+these+" into "+h.Config.File+"?")
		if err == nil && !agreed {
			err = console.Fail(console.ExitError, "", "cancelled; nothing was written")
		}
		if err != nil {
			return err
		}
	}
	x.Daemon, err = setup.EditConfig(a.Console, h, func(data []byte) ([]byte, error) {
		return home.Reader(a.Console).AddRules(h.Config.File, data, x.Rule)
	})
	if errors.Is(err, fs.ErrPermission) {
		return console.Wrap(console.ExitError, err, "permesso config edit, as the owner of the file; permesso rule add without --write prints the lines")
	}
	if err != nil {
		return err
	}
	x.Config = h.Config.File
	return a.PrintToCopy(x, lines+"\n# written into "+x.Config+"; "+x.Daemon)
}
