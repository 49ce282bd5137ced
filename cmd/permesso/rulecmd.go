package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
)

func (a *app) ruleCmd() *cobra.Command {
	var from string
	add := &cobra.Command{
		Use: "add --from ID", Short: "Print a rule that allows a request", Args: cobra.NoArgs,
		RunE: a.asking(func(ctx context.Context, d *control.Client, _ []string) error {
			if from == "" {
				return console.Fail(console.ExitUsage, "permesso pending lists the ids", "rule add needs --from ID")
			}
			p, err := askedRequest(ctx, d, from)
			if err != nil {
				return err
			}
			x, err := d.ProposeRule(ctx, approval.Key{Workspace: p.SourceGroup, ID: p.RequestID})
			if err != nil {
				return err
			}
			return a.printProposal(d.Style(), p, x)
		}),
	}
	add.Flags().StringVar(&from, "from", "", "`ID` of the request that the rule shall allow")
	return group(&cobra.Command{Use: "rule", Short: "Propose rules"}, add)
}

// printedProposal is what rule add --json prints.
type printedProposal struct {
	RequestID string `json:"request_id"`
	chat.Proposal
}

// printProposal prints a rule so that its output is a part of permesso.toml.
func (a *app) printProposal(style chat.Style, p *approval.Pending, x chat.Proposal) error {
	says := style.Proposal(p, x)
	if x.Rule == "" {
		hint := "permesso approve " + p.ShortID + " allows it once"
		return console.Fail(console.ExitRefused, hint, "%s", strings.Join(says, "\n"))
	}
	return a.Print(printedProposal{p.RequestID, x}, "# "+strings.Join(says, "\n# ")+"\n"+x.Rule)
}
