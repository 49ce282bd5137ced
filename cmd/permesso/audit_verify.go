package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
)

// keptProofs are proofs that were kept outside this home.
type keptProofs struct {
	checkpoints, feet, receipts []string
	key                         string
}

func (a *app) auditVerifyCmd() *cobra.Command {
	var w keptProofs
	c := &cobra.Command{
		Use: "verify", Short: "Verify that the audit log is unchanged", Args: cobra.NoArgs,
		Long: "Verify that no entry of the audit log was changed, added or removed.\n\n" +
			"It reads every entry, recomputes the tree and compares it with every signed checkpoint and receipt in this home.\n" +
			"A process that can write here can cut off the end of the log together with its checkpoints and records. Only\n" +
			"a proof kept elsewhere shows that: a message's last line, a checkpoint, a receipt. The daemon may be running.\n" +
			"The exit code is 6 if the log does not verify.",
		RunE: func(*cobra.Command, []string) error { return a.auditVerify(w) },
	}
	c.Flags().StringArrayVar(&w.checkpoints, "checkpoint", nil, "compare with a kept checkpoint `file`; may be repeated")
	c.Flags().StringArrayVar(&w.feet, "foot", nil, "compare with the `foot` of a message, \"1042 9f3c\"; may be repeated")
	c.Flags().StringArrayVar(&w.receipts, "receipt", nil, "compare with a kept receipt or response `file`; may be repeated")
	c.Flags().StringVar(&w.key, "key", "", "trust this public key `file` and its successors (default: the keys of this home)")
	return c
}

func (a *app) auditVerify(w keptProofs) error {
	h, err := home.Locate(a.Console)
	if err != nil {
		return err
	}
	c := &audit.Check{FS: h.FS, Dir: h.Layout.Audit(), Progress: a.Percent("verifying")}
	if c.Keys, err = h.TrustedKeys(w.key); err != nil {
		return control.ExplainNoLog(h, err)
	}
	if err := a.addKeptProofs(c, w); err != nil {
		return err
	}
	note := h.AddReceipts(c.Receipts)
	report, err := c.Run()
	if err != nil {
		a.EndProgress()
		return control.ExplainNoLog(h, refusedIfTampered(err))
	}
	if note != "" {
		report.Notes = append(report.Notes, note)
	}
	return a.Print(report, describeReport(report))
}

func describeReport(r *audit.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "OK: %d entries unchanged, %d signed, %d checkpoints, %d other proofs", r.Entries, r.Signed, r.Checkpoints, r.Witnesses)
	for _, n := range r.Notes {
		b.WriteString("\nnote: " + n)
	}
	return b.String()
}

func (a *app) addKeptProofs(c *audit.Check, w keptProofs) error {
	for _, text := range w.feet {
		f, err := audit.ParseFoot(text)
		if err != nil {
			return &console.Error{Code: console.ExitUsage, Err: err}
		}
		c.Feet = append(c.Feet, f)
	}
	for _, name := range w.checkpoints {
		b, err := a.ReadFile(name)
		if err != nil {
			return err
		}
		c.Checkpoints = append(c.Checkpoints, string(b))
	}
	c.Receipts = map[string]string{}
	for _, name := range w.receipts {
		text, err := home.ReadReceipt(a.Console, name)
		if err != nil {
			return err
		}
		c.Receipts[receipt.Hash(text)] = name
	}
	return nil
}
