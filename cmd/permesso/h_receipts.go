package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/receipt"
)

type receiptFlags struct {
	tool, args, key string
	allowExpired    bool
}

// verifyReceipt needs only the public key.
func verifyReceipt(a *console, file string, f receiptFlags) (*receipt.Facts, error) {
	text, err := readReceipt(a, file)
	if err != nil {
		return nil, err
	}
	v, err := receiptVerifier(a, f.key)
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
func readReceipt(a *console, file string) (string, error) {
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

func receiptVerifier(a *console, key string) (*receipt.Verifier, error) {
	if key != "" {
		b, err := os.ReadFile(key)
		if err != nil {
			return nil, err
		}
		return receipt.NewVerifier(strings.TrimSpace(string(b)))
	}
	h, err := loadHome(a)
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
