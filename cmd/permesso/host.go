package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/security/receipt"
)

func (h *instance) prepare() error {
	if err := h.layout.PrepareHome(h.fs); err != nil {
		return err
	}
	for name := range h.cfg.Workspaces {
		if err := h.layout.Prepare(h.fs, name); err != nil {
			return err
		}
	}
	return nil
}

func firstWorkspace(c *config.Config) string {
	names := make([]string, 0, len(c.Workspaces))
	for name := range c.Workspaces {
		names = append(names, name)
	}
	slices.Sort(names)
	return names[0]
}

func (a *app) sweepCmd() *cobra.Command {
	return &cobra.Command{
		Use: "sweep", Short: "Process due work once and exit", Args: cobra.NoArgs,
		Long: "Process due work once and exit, as serve does continuously: read new requests, run what was approved, expire what\n" +
			"is overdue, and finish what a crash interrupted. The daemon must be stopped.",
		RunE: func(*cobra.Command, []string) error { return a.sweep() },
	}
}

func (a *app) sweep() error {
	h, err := a.instance()
	if err != nil {
		return err
	}
	s := &server{instance: h, app: a, rounds: map[string]int{}, changes: make(chan approval.Key, 1)}
	s.log, s.logWriter = newLog(a.Err, h.cfg.LogLevel, h.cfg.LogFormat)
	if err := s.open(); err != nil {
		return err
	}
	s.gate.Inline = true
	moved := 0
	var stepErr error
	for _, k := range s.pending {
		if _, err := s.gate.Step(k); err != nil {
			stepErr = errors.Join(stepErr, fmt.Errorf("%s: %w", k, err))
			continue
		}
		moved++
	}
	problem, degraded := s.gate.Degraded()
	if err := errors.Join(stepErr, s.close()); err != nil {
		return err
	}
	if degraded {
		return fail(exitError, problem.Hint, "some requests are not settled: %s", problem.What)
	}
	return a.print(map[string]int{"looked_at": moved}, fmt.Sprintf("processed %d requests", moved))
}

func sortedNames(c *config.Config) []string {
	var names []string
	for name := range c.Workspaces {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (a *app) receiptCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "receipt", Short: "Verify or redeem the receipt of an approved request", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return fail(exitUsage, "permesso receipt --help", "receipt needs a subcommand: verify or redeem")
		},
	}
	var f receiptFlags
	verify := &cobra.Command{
		Use: "verify FILE", Short: "Verify a receipt or the receipt in a response, offline (- is standard input)", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error {
			facts, err := a.verifyReceipt(pos[0], f)
			if err != nil {
				return err
			}
			return a.print(facts, describe(facts))
		},
	}
	redeem := &cobra.Command{
		Use: "redeem FILE", Short: "Verify a receipt and mark it as used, so that it works once", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error { return a.redeem(pos[0], f) },
	}
	for _, sub := range []*cobra.Command{verify, redeem} {
		sub.Flags().StringVar(&f.tool, "tool", "", "require this `tool`")
		sub.Flags().StringVar(&f.args, "args", "", "require these arguments, `JSON` or @FILE, byte for byte")
		sub.Flags().StringVar(&f.key, "key", "", "public key `file` (default: this home's keys/signing.pub)")
		sub.Flags().BoolVar(&f.allowExpired, "allow-expired", false, "accept a receipt older than five minutes")
		sub.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
		c.AddCommand(sub)
	}
	return c
}

type receiptFlags struct {
	tool, args, key string
	allowExpired    bool
}

// verifyReceipt needs only the public key.
func (a *app) verifyReceipt(file string, f receiptFlags) (*receipt.Facts, error) {
	text, err := a.readReceipt(file)
	if err != nil {
		return nil, err
	}
	v, err := a.verifier(f.key)
	if err != nil {
		return nil, err
	}
	facts, err := v.Parse(text)
	if err != nil {
		return nil, fail(exitRefused, "", "%w", err)
	}
	args := ""
	if f.args != "" {
		b := []byte(f.args)
		if name, ok := strings.CutPrefix(f.args, "@"); ok {
			if b, err = os.ReadFile(name); err != nil {
				return nil, err
			}
		}
		args = approval.Digest(bytes.TrimSpace(b)) // the digest is over the object without surrounding space
	}
	if err := checkReceipt(v, text, f.tool, args, f.allowExpired); err != nil {
		return nil, fail(exitRefused, "", "%w", err)
	}
	return &facts, nil
}

// checkReceipt verifies a receipt for a tool and an arguments digest; "" accepts
// any. late accepts an expired receipt.
func checkReceipt(v *receipt.Verifier, text, tool, argsSHA256 string, late bool) error {
	f, err := v.Parse(text)
	if err != nil {
		return err
	}
	at := *v
	if late {
		at.Now = func() time.Time { return f.Issued }
	}
	return at.Verify(text, f.Workspace, f.RequestID, cmp.Or(tool, f.Tool), cmp.Or(argsSHA256, f.ArgsSHA256))
}

// readReceipt reads a receipt from its own file or from a response.
func (a *app) readReceipt(file string) (string, error) {
	b, err := a.readFile(file)
	if err != nil {
		return "", err
	}
	if r, err := approval.ParseResponse([]byte(strings.TrimSpace(string(b)))); err == nil {
		if r.Receipt == nil {
			return "", fail(exitRefused, "only approved requests have one", "the response to %s has no receipt", r.RequestID)
		}
		return *r.Receipt, nil
	}
	return string(b), nil
}

func (a *app) verifier(key string) (*receipt.Verifier, error) {
	if key != "" {
		b, err := os.ReadFile(key)
		if err != nil {
			return nil, err
		}
		return receipt.NewVerifier(strings.TrimSpace(string(b)))
	}
	h, err := a.instance()
	if err != nil {
		return nil, err
	}
	return receipt.LoadVerifier(h.fs, h.layout.Keys())
}

func describe(f *receipt.Facts) string {
	who := "rule " + f.Rule
	if f.By != "" {
		who = f.By + " via " + f.Via
	}
	return fmt.Sprintf("valid: %s %s in %s, %s by %s at %s", f.RequestID, f.Tool, f.Workspace, f.DecisionType, who, f.Issued.Format(time.RFC3339))
}

// redeem marks a receipt as used: the marker is write-once.
func (a *app) redeem(file string, f receiptFlags) error {
	facts, err := a.verifyReceipt(file, f)
	if err != nil {
		return err
	}
	h, k, err := a.openHome()
	if err != nil {
		return err
	}
	key := approval.Key{Workspace: facts.Workspace, ID: facts.RequestID}
	err = h.markRedeemed(context.Background(), k, key, operator().Name)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fail(exitRefused, "request a new approval", "the receipt of %s is already redeemed", key)
	case errors.Is(err, fs.ErrNotExist):
		return fail(exitRefused, "redeem it after the response exists", "the record of %s is not written yet", key)
	case err != nil:
		return err
	}
	return a.print(facts, "redeemed: "+describe(facts)[len("valid: "):])
}

// markRedeemed marks the receipt of a request as used. The error wraps fs.ErrExist if
// it was used before, fs.ErrNotExist if the request has no record yet.
func (h *instance) markRedeemed(ctx context.Context, k *keys, key approval.Key, by string) error {
	rec, err := h.viewer(k).Record(ctx, key)
	if err != nil {
		return err
	}
	if rec == nil {
		return fmt.Errorf("read record of %s: %w", key, fs.ErrNotExist)
	}
	mark := fmt.Appendf(nil, `{"redeemed_at":%q,"by":%q}`, time.Now().UTC().Format(time.RFC3339Nano), by)
	return h.store.Create(approval.DocRedeemed, key, mark, approval.Durable)
}
