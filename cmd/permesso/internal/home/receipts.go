package home

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
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/security/receipt"
)

// ReceiptCheck is what a receipt must match; "" accepts any.
type ReceiptCheck struct {
	Tool, Args, Key string
	AllowExpired    bool
}

// VerifyReceipt needs only the public key.
func VerifyReceipt(a *console.Console, file string, f ReceiptCheck) (*approval.ReceiptFacts, error) {
	text, err := ReadReceipt(a, file)
	if err != nil {
		return nil, err
	}
	v, err := ReceiptVerifier(a, f.Key)
	if err != nil {
		return nil, err
	}
	facts, err := v.Parse(text)
	if err != nil {
		return nil, console.Fail(console.ExitRefused, "", "%w", err)
	}
	args := ""
	if f.Args != "" {
		b := []byte(f.Args)
		if name, ok := strings.CutPrefix(f.Args, "@"); ok {
			if b, err = os.ReadFile(name); err != nil {
				return nil, err
			}
		}
		args = approval.Digest(bytes.TrimSpace(b)) // the digest is over the object without surrounding space
	}
	if err := CheckReceipt(v, text, f.Tool, args, f.AllowExpired); err != nil {
		return nil, console.Fail(console.ExitRefused, "", "%w", err)
	}
	return &facts, nil
}

// CheckReceipt verifies a receipt for a tool and an arguments digest; "" accepts
// any. late accepts an expired receipt.
func CheckReceipt(v *receipt.Verifier, text, tool, argsSHA256 string, late bool) error {
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

// ReadReceipt reads a receipt from its own file or from a response.
func ReadReceipt(a *console.Console, file string) (string, error) {
	b, err := a.ReadFile(file)
	if err != nil {
		return "", err
	}
	if r, err := approval.ParseResponse([]byte(strings.TrimSpace(string(b)))); err == nil {
		if r.Receipt == nil {
			return "", console.Fail(console.ExitRefused, "only approved requests have one", "the response to %s has no receipt", r.RequestID)
		}
		return *r.Receipt, nil
	}
	return string(b), nil
}

// ReceiptVerifier knows the key in a file, or the keys of this home without one.
func ReceiptVerifier(a *console.Console, key string) (*receipt.Verifier, error) {
	if key != "" {
		b, err := os.ReadFile(key)
		if err != nil {
			return nil, err
		}
		return receipt.NewVerifier(strings.TrimSpace(string(b)))
	}
	h, err := Load(a)
	if err != nil {
		return nil, err
	}
	return receipt.LoadVerifier(h.FS, h.Layout.Keys())
}

// DescribeReceipt describes a valid receipt in one line.
func DescribeReceipt(f *approval.ReceiptFacts) string {
	who := "rule " + f.Rule
	if f.By != "" {
		who = f.By + " via " + f.Via
	}
	return fmt.Sprintf("valid: %s %s in %s, %s by %s at %s", f.RequestID, f.Tool, f.Workspace, f.DecisionType, who, f.Issued.Format(time.RFC3339))
}

// MarkRedeemed marks the receipt of a request as used. The error wraps fs.ErrExist if
// it was used before, fs.ErrNotExist if the request has no record yet.
func (h *Home) MarkRedeemed(ctx context.Context, k *Keys, key approval.Key, by string) error {
	rec, err := h.Viewer(k).Record(ctx, key)
	if err != nil {
		return err
	}
	if rec == nil {
		return fmt.Errorf("read record of %s: %w", key, fs.ErrNotExist)
	}
	mark := fmt.Appendf(nil, `{"redeemed_at":%q,"by":%q}`, time.Now().UTC().Format(time.RFC3339Nano), by)
	return h.Store.Create(ctx, approval.DocRedeemed, key, mark, store.Durable)
}
