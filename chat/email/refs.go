package email

import (
	"regexp"
	"strings"
)

// A mail of ours carries the request it is about in four places, so that one
// of them survives whatever a mail program does to a reply:
//
//	Reply-To    permesso+TOKEN@example.org
//	Message-ID  <appr_REQUESTID.RANDOM@example.org>
//	Subject     … [appr_REQUESTID] or … [appr_REQUESTID TOKEN]
//	body        the same as in the subject
//
// REQUESTID is the whole request id, 16 to 64 hex digits. TOKEN is 26 characters
// of lower-case base32, 128 random bits.
var (
	ourID      = regexp.MustCompile(`^<[Aa][Pp][Pp][Rr]_([0-9a-fA-F]{16,64})\.[0-9a-zA-Z_-]{1,64}@[^<>\s@]+>$`)
	ourTag     = regexp.MustCompile(`\b[Aa][Pp][Pp][Rr]_([0-9a-fA-F]{16,64})\b(?:[\s\x{a0}]+([a-zA-Z2-7]{26})\b)?`)
	tokenShape = regexp.MustCompile(`^[a-z2-7]{26}$`)
)

// Addressing says how reply addresses look. Without a separator there are none.
type Addressing struct {
	Local     string // permesso
	Separator string // "+", where the server supports sub-addressing
	Domain    string // example.org
}

// Address is the reply address of a token, or "" where there are none.
func (a Addressing) Address(token string) string {
	if a.Local == "" || a.Separator == "" || a.Domain == "" {
		return ""
	}
	return a.Local + a.Separator + token + "@" + a.Domain
}

// token is what stands in a reply address of ours, or "". Servers may change
// the case of either half.
func (a Addressing) token(address string) string {
	head, tail, _ := strings.Cut(lowerASCII(a.Address("\n")), "\n")
	if head == "" {
		return ""
	}
	t, ok := strings.CutPrefix(lowerASCII(address), head)
	if !ok {
		return ""
	}
	if t, ok = strings.CutSuffix(t, tail); !ok || !tokenShape.MatchString(t) {
		return ""
	}
	return t
}

// MessageID is the identifier of a mail about a request, with its angle
// brackets. random keeps several mails about one request apart; it is made of
// letters, digits, "-" and "_".
func MessageID(id, random, domain string) string {
	return "<appr_" + id + "." + random + "@" + domain + ">"
}

// ParseMessageID reads the request id from an identifier of ours, with or
// without its angle brackets.
func ParseMessageID(s string) (id string, ok bool) {
	if !strings.HasPrefix(s, "<") {
		s = "<" + s + ">"
	}
	found := ourID.FindStringSubmatch(s)
	if found == nil {
		return "", false
	}
	return lowerASCII(found[1]), true
}

// SubjectTag is what stands at the end of a subject. token is empty where the
// reply address carries it.
func SubjectTag(id, token string) string {
	if token == "" {
		return "[appr_" + id + "]"
	}
	return "[appr_" + id + " " + token + "]"
}

// Where a Ref was found.
const (
	InAddress = "address"
	InThread  = "thread" // In-Reply-To and References
	InSubject = "subject"
	InBody    = "body"
)

// Ref is one thing in a mail that may say which request it answers. Nothing in
// it is proven: the token must be the live one of the request.
type Ref struct {
	ID    string // the request, in lower case; "" where only a token stands
	Token string // in lower case; "" where there is none
	Where string // InAddress, InThread, InSubject or InBody
}

const maxRefs = 50

// Refs are the candidates for the request, each once, the best first: what the
// reply address says, then the thread (the mail replied to before older ones),
// the subject, the body with its quotations.
func (m *Mail) Refs(sub Addressing) []Ref {
	var refs []Ref
	seen := map[Ref]bool{}
	add := func(r Ref) {
		if !seen[r] && len(refs) < maxRefs {
			seen[r] = true
			refs = append(refs, r)
		}
	}
	for _, address := range m.Recipients {
		if t := sub.token(address); t != "" {
			add(Ref{Token: t, Where: InAddress})
		}
	}
	for _, list := range [][]string{m.InReplyTo, m.References} {
		for i := len(list) - 1; i >= 0; i-- {
			if id, ok := ParseMessageID(list[i]); ok {
				add(Ref{ID: id, Where: InThread})
			}
		}
	}
	for _, r := range tagsIn(m.Subject, InSubject) {
		add(r)
	}
	for _, r := range tagsIn(m.Text, InBody) {
		add(r)
	}
	return refs
}

func tagsIn(text, where string) []Ref {
	var refs []Ref
	for _, f := range ourTag.FindAllStringSubmatch(text, maxRefs) {
		refs = append(refs, Ref{ID: lowerASCII(f[1]), Token: lowerASCII(f[2]), Where: where})
	}
	return refs
}

// lowerASCII lowers the letters of ASCII alone: no other letter folds to one of
// an id or a token.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
