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

func (h *house) prepare() error {
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
		Use: "sweep", Short: "Bring everything that is due to its end once, then stop", Args: cobra.NoArgs,
		Long: "Sweep does once what serve does all the time: it takes in what lies in the request folders, runs what was\n" +
			"approved, ends what has expired, and finishes what a crash left unfinished. It needs the daemon to be stopped.",
		RunE: func(*cobra.Command, []string) error { return a.sweep() },
	}
}

func (a *app) sweep() error {
	h, err := a.house()
	if err != nil {
		return err
	}
	s := &server{house: h, app: a, rounds: map[string]int{}, changes: make(chan approval.Key, 1)}
	s.log, s.logTo = newLog(a.Err, h.cfg.LogLevel, h.cfg.LogFormat)
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
	problem, weak := s.gate.Degraded()
	if err := errors.Join(stepErr, s.close()); err != nil {
		return err
	}
	if weak {
		return fail(codeError, problem.Hint, "not everything could be brought to its end: %s", problem.What)
	}
	return a.print(map[string]int{"looked_at": moved}, fmt.Sprintf("looked at %d requests", moved))
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
		Use: "receipt", Short: "Check or use up the receipt of an approved request", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return fail(codeUsage, "permesso receipt verify FILE, or permesso receipt redeem FILE", "receipt: say what to do with it")
		},
	}
	var f receiptFlags
	verify := &cobra.Command{
		Use: "verify FILE", Short: "Check a receipt offline: FILE is a receipt or a response, - is standard input", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error {
			facts, err := a.verifyReceipt(pos[0], f)
			if err != nil {
				return err
			}
			return a.print(facts, describe(facts))
		},
	}
	redeem := &cobra.Command{
		Use: "redeem FILE", Short: "Check a receipt and use it up: a second time is refused", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error { return a.redeem(pos[0], f) },
	}
	for _, sub := range []*cobra.Command{verify, redeem} {
		sub.Flags().StringVar(&f.tool, "tool", "", "demand that it is for this `tool`")
		sub.Flags().StringVar(&f.args, "args", "", "demand that it is for these arguments, `JSON` or @FILE, byte for byte")
		sub.Flags().StringVar(&f.key, "key", "", "public key `file` (default: this home's keys/signing.pub)")
		sub.Flags().BoolVar(&f.late, "allow-expired", false, "also when it is older than its five minutes")
		sub.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
		c.AddCommand(sub)
	}
	return c
}

type receiptFlags struct {
	tool, args, key string
	late            bool
}

// verifyReceipt needs nothing but the public key.
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
		return nil, fail(codeRefused, "", "%w", err)
	}
	args := ""
	if f.args != "" {
		b := []byte(f.args)
		if name, ok := strings.CutPrefix(f.args, "@"); ok {
			if b, err = os.ReadFile(name); err != nil {
				return nil, err
			}
		}
		args = approval.Digest(bytes.TrimSpace(b)) // blanks around an object are none of its bytes
	}
	if err := checkReceipt(v, text, f.tool, args, f.late); err != nil {
		return nil, fail(codeRefused, "", "%w", err)
	}
	return &facts, nil
}

// checkReceipt says why a receipt is not good for a tool and for arguments of a
// digest; "" demands nothing of either. late lets the time pass.
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

// readReceipt takes a receipt as it is, or out of a response.
func (a *app) readReceipt(file string) (string, error) {
	b, err := a.readFile(file)
	if err != nil {
		return "", err
	}
	if r, err := approval.ParseResponse([]byte(strings.TrimSpace(string(b)))); err == nil {
		if r.Receipt == nil {
			return "", fail(codeRefused, "only what was approved has one", "the response of %s holds no receipt", r.RequestID)
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
	h, err := a.house()
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

// redeem uses a receipt up: the marker is write-once.
func (a *app) redeem(file string, f receiptFlags) error {
	facts, err := a.verifyReceipt(file, f)
	if err != nil {
		return err
	}
	h, k, err := a.existing()
	if err != nil {
		return err
	}
	key := approval.Key{Workspace: facts.Workspace, ID: facts.RequestID}
	err = h.useUp(context.Background(), k, key, operator().Name)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fail(codeRefused, "ask for a new approval", "the receipt of %s was redeemed before", key)
	case errors.Is(err, fs.ErrNotExist):
		return fail(codeRefused, "redeem after the response is there", "the record of %s is not written yet", key)
	case err != nil:
		return err
	}
	return a.print(facts, "redeemed: "+describe(facts)[len("valid: "):])
}

// useUp marks the receipt of a request as used. It wraps fs.ErrExist where it was
// before, and fs.ErrNotExist where the request has no record yet.
func (h *house) useUp(ctx context.Context, k *keys, key approval.Key, by string) error {
	rec, err := h.viewer(k).Record(ctx, key)
	if err != nil {
		return err
	}
	if rec == nil {
		return fmt.Errorf("look for the record of %s: %w", key, fs.ErrNotExist)
	}
	mark := fmt.Appendf(nil, `{"redeemed_at":%q,"by":%q}`, time.Now().UTC().Format(time.RFC3339Nano), by)
	return h.store.Create(approval.DocRedeemed, key, mark, approval.Durable)
}
