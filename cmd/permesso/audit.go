package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/watcher"
)

func (a *app) auditCmd() *cobra.Command {
	return console.Group(&cobra.Command{
		Use: "audit", Short: "Show, verify and prove the audit log",
	}, a.auditVerifyCmd(), a.auditTailCmd(), a.auditProveCmd(), a.auditVerifyProofCmd(), a.auditCheckpointCmd(),
		a.auditWitnessCmd(), a.auditAcknowledgeCmd(), a.auditKeysCmd(), a.auditRotateCmd())
}

func (a *app) auditTailCmd() *cobra.Command {
	var n int
	var follow, lines bool
	c := &cobra.Command{
		Use: "tail", Short: "Print the newest entries", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case n < 0:
				return console.Fail(console.ExitUsage, "permesso audit tail --help", "--lines %d: must not be negative", n)
			case follow && a.JSON && !lines:
				return console.Fail(console.ExitUsage, "permesso audit tail --follow --jsonl", "--follow has no end, so it cannot print one JSON value")
			case follow:
				return a.followAudit(cmd.Context(), n, lines)
			}
			return a.auditTail(cmd.Context(), n, lines)
		},
	}
	c.Flags().IntVarP(&n, "lines", "n", 10, "number of entries, `N`")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "print new entries as they are added, until Ctrl-C")
	c.Flags().BoolVar(&lines, "jsonl", false, "print JSON, a line for each entry")
	return c
}

func (a *app) auditTail(ctx context.Context, n int, jsonl bool) error {
	return a.ask(ctx, func(d *control.Client) error {
		entries, err := d.Tail(ctx, n)
		if !a.JSON && !jsonl {
			for _, l := range entries {
				a.Say("%s", home.EntryLine(l.Entry))
			}
			return err
		}
		if err != nil && len(entries) == 0 {
			return err
		}
		p := a.itemPrinter(jsonl)
		for _, l := range entries {
			err = errors.Join(err, p.print(l.Raw))
		}
		return errors.Join(err, p.end())
	})
}

// followAudit prints entries until ctx ends.
func (a *app) followAudit(ctx context.Context, n int, jsonl bool) error {
	print := func(l audit.Line) error {
		text := string(l.Raw)
		if !jsonl {
			text = home.EntryLine(l.Entry)
		}
		_, err := fmt.Fprintln(a.Out, text)
		return err
	}
	h, err := home.Locate(a.Console)
	if err != nil {
		return err
	}
	t := &audit.Tail{FS: h.FS, Dir: h.Layout.Audit()}
	lines, err := t.Last(n)
	if err != nil {
		return control.ExplainNoLog(h, err)
	}
	for _, l := range lines {
		if err := print(l); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		path := t.Path()
		err := watcher.Await(ctx, path, func() (bool, error) {
			err := t.Next(print)
			return t.Path() != path, err
		})
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (a *app) auditProveCmd() *cobra.Command {
	var event string
	c := &cobra.Command{
		Use: "prove ID", Short: "Print a proof that the log holds an entry",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeIDs(waitingIDs),
		RunE: func(_ *cobra.Command, pos []string) error { return a.auditProve(pos[0], event) },
	}
	c.Flags().StringVar(&event, "event", "", "`event` of the entry, such as executed")
	return c
}

func (a *app) auditProve(typed, kind string) error {
	h, err := home.Existing(a.Console)
	if err != nil {
		return err
	}
	known, err := h.AuditKeys()
	if err != nil {
		return err
	}
	ws, id := splitID(typed)
	if len(id) < 4 {
		return console.Fail(console.ExitUsage, "permesso audit tail lists the entries", "ID %q is too short: give at least 4 digits", typed)
	}
	requests := map[approval.Key]bool{}
	proofs, err := audit.Prove(h.FS, h.Layout.Audit(), known, func(e event.Entry) bool {
		if !approval.BeginsID(e.RequestID, id) || ws != "" && e.Workspace != ws || kind != "" && string(e.Event) != kind {
			return false
		}
		requests[approval.Key{Workspace: e.Workspace, ID: e.RequestID}] = true
		return true
	})
	switch {
	case err != nil:
		return refusedIfTampered(console.VerifyFirst(err))
	case len(proofs) == 0:
		return console.Fail(console.ExitRefused, "permesso audit tail lists the entries, and a running daemon signs them within seconds; if it ran, permesso audit verify says whether the entry is lost",
			"no signed entry for %s", typed)
	case len(requests) > 1:
		return console.Fail(console.ExitRefused, "give more digits, or WORKSPACE/ID", "%q matches %d requests", typed, len(requests))
	}
	b, err := pickProof(proofs).Encode()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", b)
	return err
}

// pickProof prefers the entry that was written before the execution.
func pickProof(proofs []*audit.Proof) *audit.Proof {
	for _, p := range slices.Backward(proofs) {
		for _, kind := range []event.Kind{event.Approved, event.AutoApproved} {
			if strings.Contains(p.Entry, `,"event":"`+string(kind)+`",`) {
				return p
			}
		}
	}
	return proofs[len(proofs)-1]
}

// proofResult is what verify-proof --json prints.
type proofResult struct {
	Entry  event.Entry `json:"entry"`
	Origin string      `json:"origin"`
	Size   int64       `json:"size"`
	Root   string      `json:"root"`
}

func (a *app) auditVerifyProofCmd() *cobra.Command {
	var key string
	c := &cobra.Command{
		Use: "verify-proof FILE", Short: "Verify a proof with the public key alone (- is standard input)", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error {
			b, err := a.ReadFile(pos[0])
			if err != nil {
				return err
			}
			v, err := home.Receipts(a.Console).Verifier(key)
			if err != nil {
				return err
			}
			p, err := audit.ParseProof(b)
			if err != nil {
				return console.Fail(console.ExitRefused, "", "%w", err)
			}
			e, c, err := p.Verify(v.Known())
			if err != nil {
				return console.Fail(console.ExitRefused, "", "%w", err)
			}
			return a.Print(proofResult{e, c.Origin, c.Size, c.Root.String()},
				fmt.Sprintf("OK: entry %d is among the %d entries that %s signed\n%s", e.Seq, c.Size, c.Origin, home.EntryLine(e)))
		},
	}
	c.Flags().StringVar(&key, "key", "", "public key `file` (default: the keys of this home)")
	return c
}

func (a *app) auditCheckpointCmd() *cobra.Command {
	return &cobra.Command{
		Use: "checkpoint", Short: "Print the newest signed checkpoint, to keep on another host", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.newestCheckpoint()
			if err != nil {
				return err
			}
			return a.Print(map[string]any{
				"origin": c.Origin, "size": c.Size, "root": c.Root.String(), "foot": c.Foot(), "checkpoint": c.Note,
			}, strings.TrimSuffix(c.Note, "\n"))
		},
	}
}

func (a *app) auditKeysCmd() *cobra.Command {
	return &cobra.Command{
		Use: "keys", Short: "List the public keys that sign receipts and the log, newest first", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			h, err := home.Existing(a.Console)
			if err != nil {
				return err
			}
			keys, err := receipt.PublicKeys(h.FS, h.Layout.Keys())
			if err != nil {
				return err
			}
			var lines []string
			for _, k := range keys {
				life := "current"
				if !k.Current {
					life = "until " + k.Until.Local().Format(time.DateTime)
				}
				if !k.Since.IsZero() {
					life += ", since " + k.Since.Local().Format(time.DateTime)
				}
				lines = append(lines, k.Key+"  "+life)
			}
			return a.Print(keys, strings.Join(lines, "\n"))
		},
	}
}

func (a *app) auditRotateCmd() *cobra.Command {
	return &cobra.Command{
		Use: "rotate-key", Short: "Replace the signing key", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			h, _, err := home.Open(a.Console)
			if err != nil {
				return err
			}
			public, err := h.RotateKey()
			if err != nil {
				return err
			}
			return a.Print(map[string]string{"key": public}, "new key  "+public+
				"\ngive it to every verifier of receipts or proofs; permesso audit keys lists all keys")
		},
	}
}

// refusedIfTampered adds the exit code to an error of a log that does not verify.
func refusedIfTampered(err error) error {
	for _, bad := range []error{audit.ErrTampered, audit.ErrDamaged, audit.ErrNotSigned, audit.ErrNotProven} {
		if errors.Is(err, bad) {
			return &console.Error{Code: console.ExitRefused, Err: err}
		}
	}
	return err
}

// keptProofs are proofs that were kept outside this home.
type keptProofs struct {
	checkpoints, witnesses, feet, receipts []string
	key                                    string
}

func (a *app) auditVerifyCmd() *cobra.Command {
	var w keptProofs
	c := &cobra.Command{
		Use: "verify", Short: "Verify that the audit log is unchanged", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.auditVerify(cmd.Context(), w) },
	}
	c.Flags().StringArrayVar(&w.checkpoints, "checkpoint", nil, "compare with a kept checkpoint `file`; may be repeated")
	c.Flags().StringArrayVar(&w.witnesses, "witness", nil, "compare with all checkpoints in a `file` of permesso audit witness; may be repeated")
	c.Flags().StringArrayVar(&w.feet, "foot", nil, "compare with the `foot` of a message, \"1042 9f3c\"; may be repeated")
	c.Flags().StringArrayVar(&w.receipts, "receipt", nil, "compare with a kept receipt or response `file`; may be repeated")
	c.Flags().StringVar(&w.key, "key", "", "trust this public key `file` and its successors (default: the keys of this home)")
	return c
}

func (a *app) auditVerify(ctx context.Context, w keptProofs) error {
	h, err := home.Locate(a.Console)
	if err == nil {
		err = h.Recover(ctx)
	}
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
	note, err := h.AddRecords(c)
	if err != nil {
		return refusedIfTampered(err)
	}
	report, err := c.Run()
	a.Status("")
	if err != nil {
		return control.ExplainNoLog(h, refusedIfTampered(err))
	}
	if note != "" {
		report.Notes = append(report.Notes, note)
	}
	return a.Print(report, describeReport(report))
}

func describeReport(r *audit.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "OK: %s unchanged, %d signed, %s, %s", hints.Plural(int(r.Entries), "entry"), r.Signed,
		hints.Plural(r.Checkpoints, "checkpoint"), hints.Plural(r.Witnesses, "other proof"))
	for _, n := range r.Notes {
		b.WriteString("\nnote: " + console.OneLine(n))
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
	for _, name := range slices.Concat(w.checkpoints, w.witnesses) {
		b, err := a.ReadFile(name)
		if err != nil {
			return err
		}
		kept := audit.SplitCheckpoints(string(b))
		if len(kept) == 0 {
			return console.Fail(console.ExitRefused, "name a file to which permesso audit witness, or audit checkpoint, has written", "%s holds no checkpoint", name)
		}
		c.Checkpoints = append(c.Checkpoints, kept...)
	}
	c.Facts.Receipts = map[string]string{}
	for _, name := range w.receipts {
		text, err := a.ReadReceipt(name, home.Receipts(a.Console))
		if err != nil {
			return err
		}
		c.Facts.Receipts[receipt.Hash(text)] = name
	}
	return nil
}
