package agent

import (
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// VerifyReceipt is the command that verifies a receipt. Without --key it uses the keys of a home.
func VerifyReceipt(a *console.Console, own func() console.Receipts) *cobra.Command {
	var f console.ReceiptCheck
	c := &cobra.Command{
		Use: "verify FILE", Short: "Verify a receipt or the receipt in a response, offline (- is standard input)", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error {
			facts, err := a.VerifyReceipt(pos[0], f, own())
			if err != nil {
				return err
			}
			return a.Print(facts, console.DescribeReceipt(facts))
		},
	}
	ReceiptFlags(c, &f)
	return c
}

// ReceiptFlags adds the flags that say what a receipt must match.
func ReceiptFlags(c *cobra.Command, f *console.ReceiptCheck) {
	c.Flags().StringVar(&f.Tool, "tool", "", "require this `tool`")
	c.Flags().StringVar(&f.Args, "args", "", "require these arguments, `JSON` or @FILE, byte for byte")
	c.Flags().StringVar(&f.Subset, "args-subset", "", "accept these arguments, `JSON` or @FILE, as a part of --args, if the receipt covers parts")
	c.Flags().StringVar(&f.Key, "key", "", "public key `file` (default: this home's keys/signing.pub)")
	c.Flags().BoolVar(&f.AllowExpired, "allow-expired", false, "accept a receipt that has expired")
}
