package authentic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/emersion/go-msgauth/dmarc"
	"github.com/permesso-dev/permesso/chat"
	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// canonicalDomain returns a domain in lower case and A-label form, the only form in
// which domains are compared. It refuses a domain with several spellings: both A-labels
// and non-ASCII letters, characters that are mapped to others (full-width ones, an
// ideographic full stop), an A-label that does not match its characters.
func canonicalDomain(domain string) (string, error) {
	lower := chat.LowerASCII(domain)
	ascii := !strings.ContainsFunc(domain, func(r rune) bool { return r >= 0x80 })
	labels := strings.Split(lower, ".")
	if len(labels) < 2 || slices.Contains(labels, "") || strings.Trim(labels[len(labels)-1], "0123456789") == "" {
		return "", errors.New("its domain is not a mail domain")
	}
	a, err := idna.Lookup.ToASCII(lower)
	if err != nil {
		return "", errors.New("its domain is not valid")
	}
	back, err := idna.Lookup.ToUnicode(a)
	if err != nil || ascii && a != lower || !ascii && back != lower {
		return "", errors.New("its domain is not in canonical form")
	}
	for label := range strings.SplitSeq(a, ".") {
		if len(label) > 63 || len(a) > 253 {
			return "", errors.New("its domain is too long")
		}
	}
	return a, nil
}

// organization is the registered domain: one label below a public suffix. "" for a
// public suffix.
func organization(domain string) string {
	org, _ := publicsuffix.EffectiveTLDPlusOne(domain) // "" with any error
	return org
}

// aligned says whether a signature by signer is valid for email from domain; if not,
// why. The same domain is aligned. Another domain of the same organization is aligned
// if a DMARC record allows it (adkim=r, the default of RFC 7489). Without a readable
// record only the same domain is aligned.
func (l *txtLookups) aligned(ctx context.Context, signer, domain string) (bool, *Error) {
	if signer == domain {
		return true, nil
	}
	if org := organization(domain); org == "" || organization(signer) != org {
		return false, refuse("it is signed by %s, not by %s", signer, domain)
	}
	mode, where, err := l.alignment(ctx, domain)
	switch {
	case err != nil:
		return false, &Error{Reason: fmt.Sprintf("the DMARC record of %s cannot be looked up now (%s)", domain, err), Undecided: true}
	case mode == dmarc.AlignmentRelaxed:
		return true, nil
	case where == "":
		return false, &Error{
			Reason: fmt.Sprintf("it is signed by %s, and no DMARC record of %s says that this is enough", signer, domain),
			hint:   fmt.Sprintf("publish a record at _dmarc.%s, or let %s sign its own email", organization(domain), domain),
		}
	default:
		return false, refuse("it is signed by %s, but the DMARC record at %s wants a signature by %s itself", signer, where, domain)
	}
}

// alignment returns the mode in the DMARC record of a domain, or else of its
// organization, and the record's name. Two records, or one that cannot be parsed,
// count as the strict mode.
func (l *txtLookups) alignment(ctx context.Context, domain string) (mode dmarc.AlignmentMode, where string, err error) {
	for _, at := range []string{domain, organization(domain)} {
		where = "_dmarc." + at
		texts, err := l.txt(ctx, where)
		if err != nil {
			return "", "", err
		}
		var records []string
		for _, text := range texts {
			if strings.HasPrefix(text, "v=DMARC1") {
				records = append(records, text)
			}
		}
		if len(records) == 0 {
			continue
		}
		record, err := dmarc.Parse(records[0])
		if err != nil || len(records) > 1 || tooLong(records[0]) {
			return dmarc.AlignmentStrict, where, nil
		}
		return record.DKIMAlignment, where, nil
	}
	return dmarc.AlignmentStrict, "", nil
}

// maxTXT is the longest record that is read: one with a key of 8192 bits has 1400 bytes.
const maxTXT = 2048

func tooLong(text string) bool { return len(text) > maxTXT }

// txtLookups looks up TXT records, each name once. One email causes at most seven
// lookups: a key for each signature, and two DMARC records.
type txtLookups struct {
	lookup func(ctx context.Context, name string) ([]string, error)
	mu     sync.Mutex // the library verifies signatures in parallel
	known  map[string]txtAnswer
}

type txtAnswer struct {
	texts []string
	err   error // the records are not known
}

// txt returns the records of a name. A name without records is no error.
func (l *txtLookups) txt(ctx context.Context, name string) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answer, ok := l.known[name]; ok {
		return answer.texts, answer.err
	}
	texts, err := l.lookup(ctx, name)
	var none *net.DNSError
	if errors.As(err, &none) && none.IsNotFound {
		texts, err = nil, nil
	}
	l.known[name] = txtAnswer{texts, err}
	return texts, err
}

// cached returns the cached answer, if any.
func (l *txtLookups) cached(name string) txtAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[name]
}
