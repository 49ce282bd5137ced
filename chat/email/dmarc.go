package email

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/emersion/go-msgauth/dmarc"
	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// canonicalDomain gives a domain in lower case and A-label form, the only form
// in which domains are compared. It refuses what has several spellings: a
// domain with both A-labels and other than ASCII letters, characters that are
// mapped to others (full-width ones, an ideographic full stop), an A-label
// that is not the one of its characters.
func canonicalDomain(domain string) (string, error) {
	lower := foldASCII(domain)
	ascii := !strings.ContainsFunc(domain, func(r rune) bool { return r >= 0x80 })
	labels := strings.Split(lower, ".")
	if len(labels) < 2 || slices.Contains(labels, "") || strings.Trim(labels[len(labels)-1], "0123456789") == "" {
		return "", errors.New("its domain is none that mail comes from")
	}
	a, err := idna.Lookup.ToASCII(lower)
	if err != nil {
		return "", errors.New("its domain is not a valid one")
	}
	back, err := idna.Lookup.ToUnicode(a)
	if err != nil || ascii && a != lower || !ascii && back != lower {
		return "", errors.New("its domain has another spelling than the usual one")
	}
	for label := range strings.SplitSeq(a, ".") {
		if len(label) > 63 || len(a) > 253 {
			return "", errors.New("its domain is too long")
		}
	}
	return a, nil
}

// organisation is the domain that was registered: one label below a public
// suffix. "" for a public suffix itself.
func organisation(domain string) string {
	org, err := publicsuffix.EffectiveTLDPlusOne(domain)
	if err != nil {
		return ""
	}
	return org
}

// aligned says whether a signature by signer may speak for mail from domain; if
// not, why. The same domain may. Another one of the same organisation may if a
// DMARC record allows it (adkim=r, the default of RFC 7489). Where there is no
// record, or none that can be read, only the same domain may: nobody has said
// that one name below human.test speaks for another.
func (l *txtLookups) aligned(ctx context.Context, signer, domain string) (bool, *AuthError) {
	if signer == domain {
		return true, nil
	}
	if org := organisation(domain); org == "" || organisation(signer) != org {
		return false, distrust("it is signed by %s, not by %s", signer, domain)
	}
	mode, where, err := l.alignment(ctx, domain)
	switch {
	case err != nil:
		return false, &AuthError{Reason: fmt.Sprintf("the DMARC record of %s cannot be looked up now (%s)", domain, err), Undecided: true}
	case mode == dmarc.AlignmentRelaxed:
		return true, nil
	case where == "":
		return false, &AuthError{
			Reason: fmt.Sprintf("it is signed by %s, and no DMARC record of %s says that this is enough", signer, domain),
			Hint:   fmt.Sprintf("publish one at _dmarc.%s, or let %s sign its own mail", organisation(domain), domain),
		}
	default:
		return false, distrust("it is signed by %s, but the DMARC record at %s wants a signature by %s itself", signer, where, domain)
	}
}

// alignment is what the DMARC record of a domain, or else of its organisation,
// says about signers, and where it stands. Two records, or one that cannot be
// read, are as good as the strict one: the least that any record allows.
func (l *txtLookups) alignment(ctx context.Context, domain string) (mode dmarc.AlignmentMode, where string, err error) {
	for _, at := range []string{domain, organisation(domain)} {
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

// maxTXT is the longest record that we read: a key of 8192 bits has 1400 bytes.
const maxTXT = 2048

func tooLong(text string) bool { return len(text) > maxTXT }

// txtLookups asks for TXT records, each name once. One mail makes us ask for
// seven at most: a key for each signature, and two DMARC records.
type txtLookups struct {
	lookup func(ctx context.Context, name string) ([]string, error)
	mu     sync.Mutex // the library verifies signatures side by side
	known  map[string]txtAnswer
}

type txtAnswer struct {
	texts []string
	err   error // the records are not known
}

// txt gives the records of a name. That there are none is no error.
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
	if l.known == nil {
		l.known = map[string]txtAnswer{}
	}
	l.known[name] = txtAnswer{texts, err}
	return texts, err
}

// answered is what was answered before, if anything was.
func (l *txtLookups) answered(name string) txtAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[name]
}
