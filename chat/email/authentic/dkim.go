package authentic

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/permesso-dev/permesso/chat"
)

// maxSignatures is how many DKIM signatures are checked, from the top.
const maxSignatures = 5

// maxClockSkew is how far a signer's clock may be ahead of ours.
const maxClockSkew = time.Hour

// signature is one DKIM-Signature field, with our own checks.
type signature struct {
	name, domain, identity string   // DNS name of its key; d=; domain of i=
	required               []string // the fields that it must cover
	refusal                *Error
}

// proveDKIM is the proof by a DKIM signature. The library verifies. We decide which
// signature counts: the domain must be aligned with the From domain; From, Subject and
// the complete text must be covered; signature and key must be in force. RSA keys have
// at least 1024 bits, the minimum of RFC 8301: many senders still use such keys. Of several
// signatures, the first that covers recipients and date counts, or else the first.
func (a *Authenticator) proveDKIM(ctx context.Context, raw []byte, fields []headerField, domain string) (Proof, *Error) {
	lookups := &txtLookups{lookup: a.Lookup, known: map[string]txtAnswer{}}
	if a.Lookup == nil {
		lookups.lookup = net.DefaultResolver.LookupTXT
	}
	signatures, refusal := a.candidates(ctx, lookups, fields, domain)
	if refusal != nil {
		return Proof{}, refusal
	}
	verified, err := dkim.VerifyWithOptions(bytes.NewReader(raw), &dkim.VerifyOptions{
		MaxVerifications: maxSignatures,
		LookupTXT:        func(name string) ([]string, error) { return lookups.key(ctx, name, signatures) },
	})
	if err != nil && !errors.Is(err, dkim.ErrTooManySignatures) || len(verified) != len(signatures) {
		return Proof{}, refuse("its DKIM signatures cannot be verified: %v", err)
	}
	var found Proof
	var all Error
	for i, v := range verified {
		against := signatures[i].check(v, lookups.cached(signatures[i].name))
		if against != nil {
			all.add(against)
			continue
		}
		p := Proof{How: "dkim " + signatures[i].domain}
		for _, key := range v.HeaderKeys {
			p.Signed = append(p.Signed, chat.LowerASCII(key))
		}
		if missingField(p.Signed, []string{"to", "date"}) == "" {
			return p, nil
		}
		if found.How == "" {
			found = p
		}
	}
	if found.How == "" {
		return Proof{}, &all
	}
	return found, nil
}

// candidates are the first signatures. Each has a refusal if it fails a check before
// the verification. It is an error if all fail.
func (a *Authenticator) candidates(ctx context.Context, lookups *txtLookups, fields []headerField, domain string) ([]signature, *Error) {
	var signatures []signature
	var all Error
	required := []string{"From"}
	if slices.ContainsFunc(fields, func(f headerField) bool { return f.name == "subject" }) {
		required = append(required, "Subject")
	}
	for _, f := range fields {
		if f.name != "dkim-signature" || len(signatures) == maxSignatures {
			continue
		}
		if len(f.value) > maxSignature {
			return nil, refuse("it has a DKIM signature of more than %d KiB", maxSignature>>10)
		}
		s := a.candidate(ctx, lookups, f.value, domain, required)
		if s.refusal != nil {
			all.add(s.refusal)
		}
		signatures = append(signatures, s)
	}
	if len(signatures) == 0 {
		return nil, &Error{
			Reason: "it has no DKIM signature",
			hint:   fmt.Sprintf("enable DKIM signing on the mail server of %s", domain),
		}
	}
	if !slices.ContainsFunc(signatures, func(s signature) bool { return s.refusal == nil }) {
		return nil, &all
	}
	return signatures, nil
}

func (a *Authenticator) candidate(ctx context.Context, lookups *txtLookups, value, domain string, required []string) signature {
	tags, err := parseTags(value)
	if err != nil {
		return signature{refusal: refuse("a DKIM signature cannot be read: %s", err)}
	}
	s := signature{required: required}
	if s.domain, err = canonicalDomain(tags["d"]); err != nil || s.domain != chat.LowerASCII(tags["d"]) {
		s.refusal = refuse("a DKIM signature has no valid domain (d=)")
		return s
	}
	if strings.ContainsFunc(tags["s"], func(r rune) bool { return r >= 0x80 || !isLetterDigit(byte(r)) && !strings.ContainsRune("-_.", r) }) {
		s.refusal = refuse("the DKIM signature of %s has no valid selector (s=)", s.domain)
		return s
	}
	s.name = tags["s"] + "._domainkey." + tags["d"]
	s.identity = chat.LowerASCII(cmp.Or(tags["i"], tags["d"]))
	if s.refusal = a.checkTags(tags, s.domain, required); s.refusal == nil {
		_, s.refusal = lookups.aligned(ctx, s.domain, domain)
	}
	return s
}

// checkTags checks the tags of a signature.
func (a *Authenticator) checkTags(tags map[string]string, domain string, required []string) *Error {
	if _, ok := tags["l"]; ok {
		return refuse("the DKIM signature of %s covers a part of the text only (l=)", domain)
	}
	if missing := missingField(strings.Split(tags["h"], ":"), required); missing != "" {
		return refuse("the DKIM signature of %s does not cover the %s field", domain, missing)
	}
	now := time.Now()
	if a.Now != nil {
		now = a.Now()
	}
	if expires, ok := tags["x"]; ok && !isTime(expires, now.Before) {
		return refuse("the DKIM signature of %s has expired", domain)
	}
	if made, ok := tags["t"]; ok && !isTime(made, func(t time.Time) bool { return t.Before(now.Add(maxClockSkew)) }) {
		return refuse("the DKIM signature of %s is from the future", domain)
	}
	return nil
}

func isTime(text string, fits func(time.Time) bool) bool {
	seconds, err := strconv.ParseInt(text, 10, 64)
	return err == nil && fits(time.Unix(seconds, 0))
}

// missingField returns the first required field that is not among the names, or "".
func missingField(names, required []string) string {
	for _, name := range required {
		if !slices.ContainsFunc(names, func(n string) bool { return chat.LowerASCII(n) == chat.LowerASCII(name) }) {
			return name
		}
	}
	return ""
}

// check checks a signature after the verification. The library's reading must match
// ours, because the library's reading was verified.
func (s signature) check(v *dkim.Verification, record txtAnswer) *Error {
	switch {
	case s.refusal != nil:
		return s.refusal
	case record.err != nil:
		return &Error{Reason: fmt.Sprintf("the DKIM key of %s cannot be looked up now (%s)", s.domain, record.err), Undecided: true}
	case v.Err != nil:
		return refuse("the DKIM signature of %s is not valid: %s", s.domain, strings.TrimPrefix(v.Err.Error(), "dkim: "))
	case chat.LowerASCII(v.Domain) != s.domain || missingField(v.HeaderKeys, s.required) != "":
		return refuse("a DKIM signature is ambiguous")
	case slices.Contains(keyFlags(record.texts), "s") && !strings.HasSuffix("@"+s.identity, "@"+s.domain):
		return refuse("the DKIM key of %s is not for its subdomains (t=s)", s.domain)
	}
	return nil
}

// key is the library's lookup: it returns only the record of a key that may count.
func (l *txtLookups) key(ctx context.Context, name string, signatures []signature) ([]string, error) {
	if !slices.ContainsFunc(signatures, func(s signature) bool { return s.refusal == nil && s.name == name }) {
		return nil, errors.New("the signature was refused before the lookup")
	}
	texts, err := l.txt(ctx, name)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(texts, tooLong) {
		return nil, fmt.Errorf("its key is longer than %d bytes", maxTXT)
	}
	if slices.Contains(keyFlags(texts), "y") {
		return nil, errors.New("its key is only being tested (t=y)")
	}
	return texts, nil
}

// keyFlags are the t= flags of a key record (RFC 6376, section 3.6.1), which the
// library ignores: y, the key is in test mode and proves nothing; s, it signs only for
// its own domain.
func keyFlags(texts []string) []string {
	var flags []string
	for _, text := range texts {
		tags, err := parseTags(text)
		if err != nil {
			continue // the library reports it
		}
		flags = append(flags, strings.Split(tags["t"], ":")...)
	}
	return flags
}

// parseTags parses a tag list (RFC 6376, section 3.2) and drops all white space: no
// tag that we check contains significant white space.
func parseTags(value string) (map[string]string, error) {
	tags := map[string]string{}
	for tag := range strings.SplitSeq(value, ";") {
		tag = strings.Join(strings.Fields(tag), "")
		if tag == "" {
			continue
		}
		name, text, ok := strings.Cut(tag, "=")
		if _, twice := tags[name]; twice || !ok || name == "" {
			return nil, errors.New("it is not a list of tags")
		}
		tags[name] = text
	}
	return tags, nil
}
