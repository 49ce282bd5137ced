package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

func (a *app) receiptCmd() *cobra.Command {
	var f home.ReceiptCheck
	verify := &cobra.Command{
		Use: "verify FILE", Short: "Verify a receipt or the receipt in a response, offline (- is standard input)", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error {
			facts, err := home.VerifyReceipt(a.Console, pos[0], f)
			if err != nil {
				return err
			}
			return a.Print(facts, home.DescribeReceipt(facts))
		},
	}
	redeem := &cobra.Command{
		Use: "redeem FILE", Short: "Verify a receipt and mark it as used, so that it works once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error { return a.redeem(cmd.Context(), pos[0], f) },
	}
	for _, sub := range []*cobra.Command{verify, redeem} {
		sub.Flags().StringVar(&f.Tool, "tool", "", "require this `tool`")
		sub.Flags().StringVar(&f.Args, "args", "", "require these arguments, `JSON` or @FILE, byte for byte")
		sub.Flags().StringVar(&f.Subset, "args-subset", "", "accept these arguments, `JSON` or @FILE, as a part of --args, if the receipt covers parts")
		sub.Flags().StringVar(&f.Key, "key", "", "public key `file` (default: this home's keys/signing.pub)")
		sub.Flags().BoolVar(&f.AllowExpired, "allow-expired", false, "accept a receipt older than five minutes")
	}
	return group(&cobra.Command{Use: "receipt", Short: "Verify or redeem the receipt of an approved request"},
		verify, redeem)
}

// redeem marks a receipt as used: the marker is write-once.
func (a *app) redeem(ctx context.Context, file string, f home.ReceiptCheck) error {
	facts, err := home.VerifyReceipt(a.Console, file, f)
	if err != nil {
		return err
	}
	return a.ask(ctx, func(d *control.Client) error {
		if err := d.Redeem(ctx, approval.Key{Workspace: facts.Workspace, ID: facts.RequestID}); err != nil {
			return err
		}
		return a.Print(facts, "redeemed: "+home.DescribeReceipt(facts)[len("valid: "):])
	})
}
