package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/agent"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

func (a *app) receiptCmd() *cobra.Command {
	var f console.ReceiptCheck
	redeem := &cobra.Command{
		Use: "redeem FILE", Short: "Verify a receipt and mark it as used, so that it works once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error { return a.redeem(cmd.Context(), pos[0], f) },
	}
	agent.ReceiptFlags(redeem, &f)
	return console.Group(&cobra.Command{Use: "receipt", Short: "Verify or redeem the receipt of an approved request"},
		agent.VerifyReceipt(a.Console, func() console.Receipts { return home.Receipts(a.Console) }), redeem)
}

// redeem marks a receipt as used: the marker is write-once.
func (a *app) redeem(ctx context.Context, file string, f console.ReceiptCheck) error {
	facts, err := a.VerifyReceipt(file, f, home.Receipts(a.Console))
	if err != nil {
		return err
	}
	return a.ask(ctx, func(d *control.Client) error {
		if err := d.Redeem(ctx, approval.Key{Workspace: facts.Workspace, ID: facts.RequestID}); err != nil {
			return err
		}
		return a.Print(facts, "redeemed: "+console.DescribeReceipt(facts)[len("valid: "):])
	})
}
