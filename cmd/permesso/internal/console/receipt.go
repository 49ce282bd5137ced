package console

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/receipt"
)

// ReceiptCheck is what a receipt must match; "" accepts any.
type ReceiptCheck struct {
	Tool, Args, Key string
	Subset          string // arguments of which Args, the approved ones, may be more
	AllowExpired    bool
}

// Receipts is what a home knows of its receipts.
type Receipts struct {
	Keys      func() (*receipt.Verifier, error)
	Responses string // the folders of responses
}

// VerifyReceipt needs only the public key: the one of a file, or without one those of own.
func (a *Console) VerifyReceipt(file string, f ReceiptCheck, own Receipts) (*approval.ReceiptFacts, error) {
	text, err := a.ReadReceipt(file, own)
	if err != nil {
		return nil, err
	}
	v, err := own.Verifier(f.Key)
	if err != nil {
		return nil, err
	}
	facts, err := v.Parse(text)
	if err != nil {
		return nil, Fail(ExitRefused, "", "%w", err)
	}
	args, digest, err := argumentsIn(f.Args)
	if err != nil {
		return nil, err
	}
	err = CheckReceipt(v, text, f.Tool, digest, f.AllowExpired)
	if err == nil && f.Subset != "" {
		if digest == "" {
			return nil, Fail(ExitUsage, "permesso receipt verify FILE --args @APPROVED --args-subset @USED", "--args-subset needs --args, the arguments that were approved")
		}
		used, _, readErr := argumentsIn(f.Subset)
		if readErr != nil {
			return nil, readErr
		}
		err = receipt.CheckSubset(facts, args, used)
	}
	if errors.Is(err, receipt.ErrExpired) {
		return nil, Wrap(ExitRefused, err, "--allow-expired checks the signature alone, and what else you name")
	}
	if err != nil {
		return nil, Fail(ExitRefused, "", "%w", err)
	}
	return &facts, nil
}

// argumentsIn reads arguments, JSON or @FILE, and their digest; without surrounding space.
func argumentsIn(given string) (args []byte, digest string, err error) {
	if given == "" {
		return nil, "", nil
	}
	args = []byte(given)
	if name, ok := strings.CutPrefix(given, "@"); ok {
		if args, err = os.ReadFile(name); err != nil {
			return nil, "", err
		}
	}
	args = bytes.TrimSpace(args)
	return args, approval.Digest(args), nil
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
func (a *Console) ReadReceipt(file string, own Receipts) (string, error) {
	b, err := a.ReadFile(file)
	if id := strings.ToLower(file); errors.Is(err, fs.ErrNotExist) && len(id) >= 4 && approval.MaybeID(id) {
		return "", Wrap(ExitError, err, "FILE is no id: the response of a request is in "+own.Responses+" under the complete id, with .json")
	}
	if err != nil {
		return "", err
	}
	if r, err := approval.ParseResponse([]byte(strings.TrimSpace(string(b)))); err == nil {
		if r.Receipt == nil {
			return "", Fail(ExitRefused, "only approved requests have one", "the response to %s has no receipt", r.RequestID)
		}
		return *r.Receipt, nil
	}
	return string(b), nil
}

// Verifier knows the key in a file, or those of the home without one.
func (r Receipts) Verifier(key string) (*receipt.Verifier, error) {
	if key == "" {
		return r.Keys()
	}
	b, err := os.ReadFile(key)
	if err != nil {
		return nil, err
	}
	return receipt.NewVerifier(strings.TrimSpace(string(b)))
}

// DescribeReceipt describes a valid receipt in one line.
func DescribeReceipt(f *approval.ReceiptFacts) string {
	what := f.Tool
	if f.ProgramSHA256 != "" {
		what = "program " + f.ProgramSHA256 + ", plan " + f.ArgsSHA256 + ","
	}
	return fmt.Sprintf("valid: %s %s in %s, %s at %s", f.RequestID, what, f.Workspace, DecidedBy(f), f.Issued.Format(time.RFC3339))
}

// DecidedBy is who decided what a receipt is about: approved by ann via cli.
func DecidedBy(f *approval.ReceiptFacts) string {
	if f.By != "" {
		return f.DecisionType + " by " + f.By + " via " + f.Via
	}
	return f.DecisionType + " by rule " + f.Rule
}
