package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
)

// witnesses are what somebody kept.
type witnesses struct {
	checkpoints, feet, receipts []string
	key                         string
}

func (a *app) auditVerifyCmd() *cobra.Command {
	var w witnesses
	c := &cobra.Command{
		Use: "verify", Short: "Verify the audit log: that nothing was changed, added or removed", Args: cobra.NoArgs,
		Long: "Verify the audit log: that nothing was changed, added or removed.\n\n" +
			"It reads every entry, computes the tree anew and holds it against every signed checkpoint and every receipt in\n" +
			"this home. Somebody who can write here can cut the end off, with its checkpoints and records; that shows only\n" +
			"against something kept elsewhere: the foot of a message, a checkpoint, a receipt. It works while the gate runs.\n" +
			"The exit code is 6 where the log is not what it was.",
		RunE: func(*cobra.Command, []string) error { return a.auditVerify(w) },
	}
	c.Flags().StringArrayVar(&w.checkpoints, "checkpoint", nil, "also against a kept checkpoint, a `file` (again for more)")
	c.Flags().StringArrayVar(&w.feet, "foot", nil, "also against the `foot` of a message, \"1042 9f3c\" (again for more)")
	c.Flags().StringArrayVar(&w.receipts, "receipt", nil, "also against a kept receipt or response, a `file` (again for more)")
	c.Flags().StringVar(&w.key, "key", "", "believe this public key `file` and those that follow from it (default: the keys of this home)")
	return c
}

func (a *app) auditVerify(w witnesses) error {
	h, err := a.house()
	if err != nil {
		return err
	}
	c := &audit.Check{FS: h.fs, Dir: h.layout.Audit(), Progress: a.percent("verifying")}
	if c.Keys, err = h.believed(w.key); err != nil {
		return a.noLog(h, err)
	}
	if err := a.takeWitnesses(c, w); err != nil {
		return err
	}
	note := h.heldReceipts(c.Receipts)
	report, err := c.Run()
	if err != nil {
		a.endProgress()
		return a.noLog(h, refusedIfTampered(err))
	}
	if note != "" {
		report.Notes = append(report.Notes, note)
	}
	return a.print(report, describeReport(report))
}

func describeReport(r *audit.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "in order: %d entries, %d of them signed; %d checkpoints, %d other witnesses", r.Entries, r.Signed, r.Checkpoints, r.Witnesses)
	for _, n := range r.Notes {
		b.WriteString("\nnote: " + n)
	}
	return b.String()
}

func (a *app) takeWitnesses(c *audit.Check, w witnesses) error {
	for _, text := range w.feet {
		f, err := audit.ParseFoot(text)
		if err != nil {
			return &exit{code: codeUsage, err: err}
		}
		c.Feet = append(c.Feet, f)
	}
	for _, name := range w.checkpoints {
		b, err := a.readFile(name)
		if err != nil {
			return err
		}
		c.Checkpoints = append(c.Checkpoints, string(b))
	}
	c.Receipts = map[string]string{}
	for _, name := range w.receipts {
		text, err := a.readReceipt(name)
		if err != nil {
			return err
		}
		c.Receipts[receipt.Hash(text)] = name
	}
	return nil
}

// heldReceipts adds the receipts of all records in this home, and says why not
// where it cannot.
func (h *house) heldReceipts(into map[string]string) (note string) {
	k, err := h.loadKeys()
	if err != nil {
		return "records not compared: " + firstLine(err)
	}
	names, err := h.store.Workspaces()
	if err != nil {
		return "records not compared: " + firstLine(err)
	}
	v := h.viewer(k)
	bad := 0
	for _, ws := range names {
		err := h.eachRecord(v, ws, time.Time{}, func(rec *approval.Record) {
			if rec.Receipt != "" {
				into[receipt.Hash(rec.Receipt)] = ws + "/" + rec.RequestID
			}
		}, func(approval.Key, error) { bad++ })
		if err != nil {
			return "records not compared: " + firstLine(err)
		}
	}
	if bad > 0 {
		return fmt.Sprintf("%d records cannot be read and were not compared", bad)
	}
	return ""
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// percent draws a line on a terminal, and nothing elsewhere.
func (a *app) percent(what string) func(done, total int64) {
	if !terminal(a.Err) {
		return nil
	}
	var drawn time.Time
	return func(done, total int64) {
		if done >= total {
			a.endProgress()
			return
		}
		if now := time.Now(); now.Sub(drawn) > 100*time.Millisecond {
			drawn = now
			fmt.Fprintf(a.Err, "\r%s %d %%", what, 100*done/total)
		}
	}
}

func (a *app) endProgress() {
	if terminal(a.Err) {
		fmt.Fprint(a.Err, "\r\x1b[K")
	}
}
