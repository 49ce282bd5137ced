package facts

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// Provers are the keys of the provers that the operator trusts, by the operator's
// names.
type Provers map[string]ed25519.PublicKey

// MaxProvers bounds the number of configured provers.
const MaxProvers = 64

// Size limits of a proof. A larger proof counts as an unreadable claim.
const (
	maxProgram   = 128 << 10 // bytes
	maxProver    = 64        // bytes of a prover's name
	maxProofList = 200       // trusted functions, contracts, effects, domains of coverage
	maxProofLine = 2000      // bytes of a contract, a name, a missing contract
	maxProofArgs = 8 << 10   // bytes of one effect's arguments
	proofDepth   = 8         // levels of one effect's arguments
)

// proofDocument is a request's proof as written.
type proofDocument struct {
	Tool          string                   `json:"tool"`
	ArgsSHA256    string                   `json:"args_sha256"` // of request_data's bytes
	Expires       string                   `json:"expires"`     // RFC 3339
	Program       string                   `json:"program"`
	ProgramSHA256 string                   `json:"program_sha256"`
	Trusted       []string                 `json:"trusted"`
	Contracts     []string                 `json:"contracts"`
	Effects       []approval.ProvenEffect  `json:"effects"`
	Coverage      []approval.ProofCoverage `json:"coverage"`
	Prover        string                   `json:"prover"`
	Signature     string                   `json:"signature"` // base64, with or without padding
}

// proofOf reads and checks a request's proof. An unreadable proof becomes a claim
// whose Why says so; the pending keeps its bytes.
func proofOf(t approval.Tool, r *approval.Request, provers Provers, now time.Time) *approval.Proof {
	if k := r.Proof.Kind(); k == 0 || k == 'n' {
		return nil
	}
	d, err := parseProof(r.Proof)
	if err != nil {
		return &approval.Proof{Why: approval.Because("proof_unreadable", "error", err.Error())}
	}
	p := &approval.Proof{
		ProgramSHA256: d.ProgramSHA256, Program: d.Program, Trusted: d.Trusted, Contracts: d.Contracts,
		Effects: d.Effects, Coverage: d.Coverage,
	}
	p.Why = d.whyUnsigned(provers)
	if p.Why.IsZero() {
		p.Why = d.whyNotFor(t, r, now)
	}
	if p.Why.IsZero() {
		p.Verified, p.Prover = true, d.Prover
	}
	normalize(p)
	return p
}

// normalize replaces unknown words by the most careful known one, after the
// signature over them was checked.
func normalize(p *approval.Proof) {
	for i := range p.Effects {
		switch p.Effects[i].Status {
		case Proven, NotProven:
		default:
			p.Effects[i].Status = Unknown
		}
	}
	for i := range p.Coverage {
		switch p.Coverage[i].Status {
		case Covered, RecommendedGap, SilentGap:
		default:
			p.Coverage[i].Status = RequiredGap
		}
	}
}

func parseProof(raw approval.Raw) (*proofDocument, error) {
	d := &proofDocument{}
	if err := codec.Decode(raw, d); err != nil {
		return nil, err
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *proofDocument) check() error {
	switch {
	case len(d.Program) > maxProgram:
		return fmt.Errorf("program is longer than %d bytes", maxProgram)
	case !isDigest(d.ProgramSHA256):
		return errors.New("program_sha256 must be 64 lower-case hex digits")
	case d.ArgsSHA256 != "" && !isDigest(d.ArgsSHA256):
		return errors.New("args_sha256 must be 64 lower-case hex digits")
	case d.Tool != "" && !approval.ValidToolName(d.Tool):
		return errors.New("tool must be a tool's name")
	case len(d.Prover) > maxProver || len(d.Signature) > 2*ed25519.SignatureSize:
		return errors.New("prover or signature is too long")
	}
	if _, ok := d.end(); d.Expires != "" && !ok {
		return errors.New("expires must be a time such as 2026-11-21T12:00:00Z")
	}
	if err := checkLines("trusted", d.Trusted); err != nil {
		return err
	}
	if err := checkLines("contracts", d.Contracts); err != nil {
		return err
	}
	if len(d.Effects) > maxProofList || len(d.Coverage) > maxProofList {
		return fmt.Errorf("effects and coverage may have %d entries each", maxProofList)
	}
	for i := range d.Effects {
		if err := checkEffect(&d.Effects[i]); err != nil {
			return err
		}
	}
	for _, c := range d.Coverage {
		if err := checkLines("coverage", append([]string{c.Domain, c.Status}, c.Missing...)); err != nil {
			return err
		}
		if CanonicalDomain(c.Domain) == "" {
			return errors.New("coverage names no domain")
		}
	}
	return nil
}

func isDigest(s string) bool { return len(s) == 64 && approval.ValidID(s) }

// end is when the proof expires.
func (d *proofDocument) end() (t time.Time, ok bool) {
	err := t.UnmarshalText([]byte(d.Expires))
	return t, err == nil
}

// lacks names the first missing member of those that limit a proof to a request. A
// proof of version 1 has none of them.
func (d *proofDocument) lacks() string {
	switch {
	case d.Tool == "":
		return "tool"
	case d.ArgsSHA256 == "":
		return "args_sha256"
	case d.Expires == "":
		return "expires"
	}
	return ""
}

func checkLines(what string, lines []string) error {
	if len(lines) > maxProofList {
		return fmt.Errorf("%s may have %d entries", what, maxProofList)
	}
	for _, s := range lines {
		if len(s) > maxProofLine || !utf8.ValidString(s) {
			return fmt.Errorf("an entry of %s is longer than %d bytes", what, maxProofLine)
		}
	}
	return nil
}

// checkEffect also removes white space from the arguments, because an intermediary may
// have reformatted the proof.
func checkEffect(x *approval.ProvenEffect) error {
	if err := checkLines("effects", []string{x.Domain, x.Op, x.Status}); err != nil {
		return err
	}
	if CanonicalDomain(x.Domain) == "" {
		return errors.New("an effect names no domain")
	}
	switch x.Args.Kind() {
	case 0, 'n':
		x.Args = approval.Raw("null")
		return nil
	case '{':
	default:
		return errors.New("args of an effect must be an object")
	}
	if codec.CheckDepth(x.Args, proofDepth) != nil {
		return fmt.Errorf("args of an effect are nested deeper than %d levels", proofDepth)
	}
	if err := x.Args.Compact(); err != nil || len(x.Args) > maxProofArgs {
		return fmt.Errorf("args of an effect are longer than %d bytes", maxProofArgs)
	}
	return nil
}

// whyUnsigned says why no trusted prover has signed the proof; none if one has.
func (d *proofDocument) whyUnsigned(provers Provers) approval.Reason {
	key, known := provers[d.Prover]
	switch {
	case d.Signature == "":
		return approval.Because("proof_unsigned")
	case d.Prover == "":
		return approval.Because("proof_no_prover")
	case !known || len(key) != ed25519.PublicKeySize:
		return approval.Because("proof_unknown_prover")
	case d.lacks() != "":
		return approval.Because("proof_lacks", "field", d.lacks())
	}
	signature, ok := decodeSignature(d.Signature)
	if !ok || !ed25519.Verify(key, d.signed(), signature) {
		return approval.Because("proof_signature")
	}
	return approval.Reason{}
}

// whyNotFor says why a signed proof does not hold for this request; none if it does.
func (d *proofDocument) whyNotFor(t approval.Tool, r *approval.Request, now time.Time) approval.Reason {
	if d.Program != "" && approval.Digest([]byte(d.Program)) != d.ProgramSHA256 {
		return approval.Because("proof_digest")
	}
	programs := argsOf(t, TypeProgram)
	if len(programs) == 0 {
		return approval.Because("proof_unbound")
	}
	fields, err := codec.Fields(r.RequestData)
	if err != nil {
		return approval.Because("proof_no_program")
	}
	end, ok := d.end()
	text, given := programText(t, fields)
	switch {
	case d.Tool != r.ToolName:
		return approval.Because("proof_other_tool")
	case !given:
		return approval.Because("proof_no_field", "field", programs[0])
	case approval.Digest([]byte(text)) != d.ProgramSHA256:
		return approval.Because("proof_other_program")
	case approval.Digest(r.RequestData) != d.ArgsSHA256:
		return approval.Because("proof_other_arguments")
	case !ok || now.IsZero() || !now.Before(end):
		return approval.Because("proof_expired")
	}
	return approval.Reason{}
}

func decodeSignature(s string) ([]byte, bool) {
	for len(s) > 0 && s[len(s)-1] == '=' {
		s = s[:len(s)-1]
	}
	b, err := base64.RawStdEncoding.Strict().DecodeString(s)
	return b, err == nil && len(b) == ed25519.SignatureSize
}

// proofMagic separates proofs from anything else that is signed with the same key.
const proofMagic = "permesso proof v2\n"

// signed is what a prover signs with Ed25519 (RFC 8032, without a context): the
// line "permesso proof v2" with its line feed, then a sequence of items. An item
// is a string of bytes preceded by its length: decimal digits without leading
// zeros, a colon, the bytes. A list is an item that holds the number of its
// elements in decimal, then the items of each. In this order:
//
//	prover            the name as written in the proof
//	tool              the name of the tool, as in the request
//	args_sha256       of the bytes of request_data, 64 lower-case hex digits
//	expires           RFC 3339, as written in the proof
//	program_sha256    64 lower-case hex digits
//	trusted           list of strings
//	contracts         list of strings
//	effects           list; of each: domain, op, args, status
//	coverage          list; of each: domain, status, missing (a list of strings)
//
// Strings are UTF-8, after JSON's escapes are resolved. args
// is the JSON text of the object with all white space outside of strings removed
// and nothing else changed: keys keep their order, numbers their digits, strings
// their escapes; a missing one is the four bytes null. A missing key of the proof
// counts as an empty string or an empty list. The program's text is not signed, its
// digest is.
func (d *proofDocument) signed() []byte {
	b := []byte(proofMagic)
	put := func(items ...string) {
		for _, s := range items {
			b = strconv.AppendInt(b, int64(len(s)), 10)
			b = append(append(b, ':'), s...)
		}
	}
	list := func(items []string) {
		put(strconv.Itoa(len(items)))
		put(items...)
	}
	put(d.Prover, d.Tool, d.ArgsSHA256, d.Expires, d.ProgramSHA256)
	list(d.Trusted)
	list(d.Contracts)
	put(strconv.Itoa(len(d.Effects)))
	for _, x := range d.Effects {
		put(x.Domain, x.Op, string(x.Args), x.Status)
	}
	put(strconv.Itoa(len(d.Coverage)))
	for _, c := range d.Coverage {
		put(c.Domain, c.Status)
		list(c.Missing)
	}
	return b
}

// ProofBytes is what a prover signs for this proof, a JSON object without its
// signature, that says what it is limited to. See the comment at signed.
func ProofBytes(proof approval.Raw) ([]byte, error) {
	d, err := parseProof(proof)
	if err != nil {
		return nil, fmt.Errorf("parse proof: %w", err)
	}
	if name := d.lacks(); name != "" {
		return nil, fmt.Errorf("proof has no %s", name)
	}
	return d.signed(), nil
}
