// Package receipt writes and verifies receipts: signed notes that say which person
// or rule permitted which action with which arguments. Nothing runs without one. A
// receipt can be verified offline with the public key.
//
// # Format
//
// A receipt is a note of golang.org/x/mod/sumdb/note with exactly one Ed25519
// signature. Its text is a first line and fifteen facts, all of them, in this
// order; args_subset, a sixteenth, is only in some receipts without a tool, see
// CheckSubset:
//
//	permesso receipt v1
//	gate: home.example.org
//	workspace: personal
//	request_id: a7f3b2c1d4e5f6a7
//	request_sha256: 5feceb66…
//	pending_sha256: 6b86b273…
//	tool: x_post
//	action_type: send_message
//	args_sha256: d4735e3a…
//	args_subset: ["to"]
//	decision: approved
//	by: ricardo
//	via: telegram
//	rule: ""
//	issued: 2026-11-21T12:00:00.000000000Z
//	expires: 2026-11-21T12:05:00.000000000Z
//	audience: ""
//
//	— home.example.org yHnLkJ…
//
// A value is written verbatim if it is printable ASCII, does not begin with a
// quote, and neither begins nor ends with a blank. Every other value, the empty
// one too, is written as a Go string literal in ASCII. So each value has one
// canonical form and cannot look like another line. Times are RFC 3339, UTC, with
// nine digits; earlier versions wrote as many as needed, which is still read.
package receipt

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/note"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

const (
	firstLine = "permesso receipt v1"
	maxSize   = 64 << 10
)

// Errors of Parse and Verify wrap one of these.
var (
	ErrInvalid = errors.New("not a valid receipt")
	ErrOther   = errors.New("the receipt does not match")
	ErrExpired = errors.New("the receipt has expired")
)

// field is one line of a receipt: exactly one of text and time is set.
type field struct {
	name     string
	text     *string
	time     *time.Time
	required bool // must not be "" or the zero time
	optional bool // the line is left out if the text is ""
}

func fieldsOf(f *approval.ReceiptFacts) []field {
	return []field{
		{name: "gate", text: &f.Gate, required: true},
		{name: "workspace", text: &f.Workspace, required: true},
		{name: "request_id", text: &f.RequestID, required: true},
		{name: "request_sha256", text: &f.RequestSHA256},
		{name: "pending_sha256", text: &f.PendingSHA256},
		{name: "tool", text: &f.Tool},
		{name: "action_type", text: &f.ActionType},
		{name: "args_sha256", text: &f.ArgsSHA256, required: true},
		{name: "args_subset", text: &f.ArgsSubset, optional: true},
		{name: "program_sha256", text: &f.ProgramSHA256, optional: true},
		{name: "decision", text: &f.DecisionType, required: true},
		{name: "by", text: &f.By},
		{name: "via", text: &f.Via},
		{name: "rule", text: &f.Rule},
		{name: "issued", time: &f.Issued, required: true},
		{name: "expires", time: &f.Expires, required: true},
		{name: "audience", text: &f.Audience},
	}
}

// textOf is the signed text.
func textOf(f *approval.ReceiptFacts) string {
	var b strings.Builder
	b.WriteString(firstLine + "\n")
	for _, line := range fieldsOf(f) {
		if line.optional && *line.text == "" {
			continue
		}
		if line.time != nil {
			b.WriteString(line.name + ": " + codec.Time(*line.time) + "\n")
		} else {
			b.WriteString(line.name + ": " + quote(*line.text) + "\n")
		}
	}
	return b.String()
}

// parseText is the inverse of textOf. It accepts only what a version of textOf writes.
func parseText(text string) (approval.ReceiptFacts, error) {
	var f approval.ReceiptFacts
	line, rest, _ := strings.Cut(text, "\n")
	if line != firstLine {
		return approval.ReceiptFacts{}, fmt.Errorf("first line is not %q", firstLine)
	}
	for _, want := range fieldsOf(&f) {
		if want.optional && !strings.HasPrefix(rest, want.name+": ") {
			continue
		}
		line, rest, _ = strings.Cut(rest, "\n")
		value, ok := strings.CutPrefix(line, want.name+": ")
		if !ok {
			return approval.ReceiptFacts{}, fmt.Errorf("line %q is missing or misplaced", want.name)
		}
		if err := want.set(value); err != nil {
			return approval.ReceiptFacts{}, fmt.Errorf("line %q: %w", want.name, err)
		}
	}
	switch {
	case rest != "":
		return approval.ReceiptFacts{}, errors.New("too many lines")
	case f.ArgsSubset+f.ProgramSHA256 != "" && f.Tool != "":
		return approval.ReceiptFacts{}, errors.New("args_subset or program_sha256 in a receipt for a tool")
	case f.Expires.Before(f.Issued):
		return approval.ReceiptFacts{}, errors.New("expires is before issued")
	}
	return f, nil
}

func (l field) set(value string) (err error) {
	if l.time != nil {
		*l.time, err = time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return errors.New("not a time")
		}
		if l.required && l.time.IsZero() {
			return errors.New("must be set")
		}
		return canonical(value, codec.Time(*l.time), l.time.UTC().Format(time.RFC3339Nano))
	}
	*l.text = value
	if strings.HasPrefix(value, `"`) {
		if *l.text, err = strconv.Unquote(value); err != nil {
			return errors.New("invalid quoting")
		}
	}
	if (l.required || l.optional) && *l.text == "" {
		return errors.New("must not be empty")
	}
	return canonical(value, quote(*l.text))
}

// canonical refuses a value that no version writes so.
func canonical(value string, forms ...string) error {
	if !slices.Contains(forms, value) {
		return errors.New("value is not in canonical form")
	}
	return nil
}

func quote(s string) string {
	if isPlain(s) {
		return s
	}
	return strconv.QuoteToASCII(s)
}

func isPlain(s string) bool {
	return s != "" && s[0] != '"' && strings.TrimSpace(s) == s &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// Signer issues receipts. The zero Signer issues none.
type Signer struct {
	signer note.Signer
	public string
}

// NewSigner makes a signer from a private key in LoadOrCreate's file format.
func NewSigner(private string) (*Signer, error) {
	signer, err := note.NewSigner(private)
	if err != nil {
		return nil, fmt.Errorf("read signing key: %w", err)
	}
	public, err := publicOf(private)
	if err != nil {
		return nil, fmt.Errorf("read signing key: %w", err)
	}
	return &Signer{signer, public}, nil
}

// generate makes a private key for a gate of that name.
func generate(name string) (string, error) {
	if !isPlain(name) || strings.ContainsAny(name, " +") {
		return "", fmt.Errorf("gate name %q: use printable ASCII without blanks and +", name)
	}
	private, _, err := note.GenerateKey(rand.Reader, name)
	return private, err
}

// Public is the key that verifies this signer's receipts, as one line of text.
func (s *Signer) Public() string { return s.public }

// NoteSigner signs other notes with the same key, such as checkpoints of the audit
// log.
func (s *Signer) NoteSigner() note.Signer { return s.signer }

// Verifier verifies this signer's receipts.
func (s *Signer) Verifier() (*Verifier, error) { return NewVerifier(s.public) }

// Issue writes a receipt. An empty Gate becomes the signer's name. Facts that could
// not be read back unchanged, or that lack a required fact, are an error.
func (s *Signer) Issue(f approval.ReceiptFacts) (string, error) {
	if s == nil || s.signer == nil {
		return "", errors.New("issue receipt: no signing key")
	}
	if f.Gate == "" {
		f.Gate = s.signer.Name()
	}
	if f.Gate != s.signer.Name() {
		return "", fmt.Errorf("issue receipt: gate is %q, but the key belongs to %q", f.Gate, s.signer.Name())
	}
	text := textOf(&f)
	if _, err := parseText(text); err != nil {
		return "", fmt.Errorf("issue receipt: %w", err)
	}
	msg, err := note.Sign(&note.Note{Text: text}, s.signer)
	if err != nil {
		return "", fmt.Errorf("issue receipt: %w", err)
	}
	if len(msg) > maxSize {
		return "", fmt.Errorf("issue receipt: longer than %d bytes", maxSize)
	}
	return string(msg), nil
}

// IssueReceipt issues the receipt of a claim. d is the person's decision, nil if
// policy allowed the request.
func (s *Signer) IssueReceipt(c *approval.Claim, d *approval.Decision, expires time.Time) (string, error) {
	f := approval.ReceiptFacts{
		Workspace: c.Workspace, RequestID: c.RequestID, RequestSHA256: c.RequestSHA256,
		PendingSHA256: c.PendingSHA256, Tool: c.ToolName, ActionType: c.ActionType, ArgsSHA256: c.ArgsSHA256, ProgramSHA256: c.ProgramSHA256,
		DecisionType: "auto_approved", Issued: c.ClaimedAt, Expires: expires, Audience: c.Workspace,
	}
	if len(c.ArgsSubset) > 0 {
		names, err := json.Marshal(c.ArgsSubset)
		if err != nil {
			return "", fmt.Errorf("issue receipt: %w", err)
		}
		f.ArgsSubset = string(names)
	}
	if c.Ruling != nil {
		f.Rule = c.Ruling.Rule
	}
	if d != nil {
		f.DecisionType, f.By, f.Via = "approved", d.DecidedBy, d.Via
	}
	return s.Issue(f)
}

// Verifier checks receipts of one gate. The zero Verifier refuses all.
type Verifier struct {
	Now func() time.Time // nil: time.Now

	keys []note.Verifier // the current one and earlier ones
}

// NewVerifier makes a verifier that accepts signatures of any of the public keys.
func NewVerifier(public ...string) (*Verifier, error) {
	v := &Verifier{}
	for _, key := range public {
		k, err := note.NewVerifier(strings.TrimSuffix(key, "\n"))
		if err != nil {
			return nil, fmt.Errorf("read public key: %w", err)
		}
		v.keys = append(v.keys, k)
	}
	return v, nil
}

// Known returns the keys, to verify other notes.
func (v *Verifier) Known() note.Verifiers { return note.VerifierList(v.keys...) }

// Parse verifies the signature and reads the facts. It does not check the expiry.
// The error wraps ErrInvalid.
func (v *Verifier) Parse(receipt string) (approval.ReceiptFacts, error) {
	text, signer, err := v.open(receipt)
	if err != nil {
		return approval.ReceiptFacts{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	f, err := parseText(text)
	if err != nil {
		return approval.ReceiptFacts{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if f.Gate != signer {
		return approval.ReceiptFacts{}, fmt.Errorf("%w: signed by %q for gate %q", ErrInvalid, signer, f.Gate)
	}
	return f, nil
}

// open verifies the signature. It refuses additional signatures and spare bits in
// base64, so that a receipt has only one digest.
func (v *Verifier) open(receipt string) (text, signer string, err error) {
	switch {
	case v == nil || len(v.keys) == 0:
		return "", "", errors.New("no public key")
	case len(receipt) > maxSize:
		return "", "", fmt.Errorf("longer than %d bytes", maxSize)
	}
	n, err := note.Open([]byte(receipt), v.Known())
	if err != nil {
		return "", "", err
	}
	sig := n.Sigs[0]
	if receipt != n.Text+"\n— "+sig.Name+" "+sig.Base64+"\n" {
		return "", "", errors.New("more than one signature")
	}
	if _, err := base64.StdEncoding.Strict().DecodeString(sig.Base64); err != nil {
		return "", "", errors.New("signature is not in canonical form")
	}
	return n.Text, sig.Name, nil
}

// Verify checks that this gate issued the receipt for this request, tool and
// arguments, and that it has not expired. The executor calls it before it runs
// anything: the arguments are the approved ones, never a part of them. The error wraps ErrInvalid, ErrOther or ErrExpired. The tool of a
// release-only request is "".
func (v *Verifier) Verify(receipt, workspace, requestID, tool, argsSHA256 string) error {
	f, err := v.Parse(receipt)
	if err != nil {
		return fmt.Errorf("verify receipt: %w", err)
	}
	for _, c := range []struct{ what, is, want string }{
		{"workspace", f.Workspace, workspace},
		{"request", f.RequestID, requestID},
		{"tool", f.Tool, tool},
		{"set of arguments", f.ArgsSHA256, argsSHA256},
	} {
		if c.is != c.want {
			return fmt.Errorf("verify receipt: %w: another %s", ErrOther, c.what)
		}
	}
	now := time.Now
	if v.Now != nil {
		now = v.Now
	}
	if now().After(f.Expires) {
		return fmt.Errorf("verify receipt: %w at %s", ErrExpired, f.Expires.Format(time.RFC3339))
	}
	return nil
}

// Hash is a receipt's digest, as used in the audit log.
func Hash(receipt string) string { return approval.Digest([]byte(receipt)) }
