package email

import (
	"bytes"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// Every email that we send carries the request id in four places, so that at least
// one of them survives in a reply from any mail program:
//
//	Reply-To    permesso+TOKEN@example.org
//	Message-ID  <appr_REQUESTID.RANDOM@example.org>
//	Subject     … [appr_REQUESTID] or … [appr_REQUESTID TOKEN]
//	body        the same as in the subject
//
// REQUESTID is the complete request id, 16 to 64 hex digits or a UUID. TOKEN is 26
// characters of lower-case base32, 128 random bits.
var (
	ourID      = pattern(`^<[Aa][Pp][Pp][Rr]_(` + idShape + `)\.[0-9a-zA-Z_-]{1,64}@[^<>\s@]+>$`)
	ourTag     = pattern(`\b[Aa][Pp][Pp][Rr]_(` + idShape + `)\b(?:[\s\x{a0}]+([a-zA-Z2-7]{26})\b)?`)
	tokenShape = pattern(`^[a-z2-7]{26}$`)
)

// idShape is a request id, of which a mail program may have changed the case.
const idShape = `[0-9a-fA-F]{16,64}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`

// Addressing is the format of reply addresses. Without a separator there are none.
type Addressing struct {
	Local     string // permesso
	Separator string // "+", if the server supports sub-addressing
	Domain    string // example.org
}

// Address is the reply address for a token, or "" without sub-addressing.
func (a Addressing) Address(token string) string {
	if a.Local == "" || a.Separator == "" || a.Domain == "" {
		return ""
	}
	return a.Local + a.Separator + token + "@" + a.Domain
}

// Likely says whether the header of an email looks like that of a reply to one of our emails.
func (a Addressing) Likely(header []byte) bool {
	lower := bytes.ToLower(header)
	return bytes.Contains(lower, []byte("appr_")) || a.Separator != "" && bytes.Contains(lower, []byte(chat.LowerASCII(a.Local+a.Separator)))
}

// token is the token in one of our reply addresses, or "". Servers may change the
// case of both parts.
func (a Addressing) token(address string) string {
	head, tail, _ := strings.Cut(chat.LowerASCII(a.Address("\n")), "\n")
	if head == "" {
		return ""
	}
	t, ok := strings.CutPrefix(chat.LowerASCII(address), head)
	if !ok {
		return ""
	}
	if t, ok = strings.CutSuffix(t, tail); !ok || !tokenShape().MatchString(t) {
		return ""
	}
	return t
}

// newMessageID is the identifier of an email about a request, with its angle brackets.
// random makes it unique among the emails about one request. It consists of letters,
// digits, "-" and "_".
func newMessageID(id, random, domain string) string {
	return "<appr_" + id + "." + random + "@" + domain + ">"
}

// parseMessageID reads the request id from one of our identifiers, with or without
// angle brackets.
func parseMessageID(s string) (id string, ok bool) {
	if !strings.HasPrefix(s, "<") {
		s = "<" + s + ">"
	}
	found := ourID().FindStringSubmatch(s)
	if found == nil {
		return "", false
	}
	return chat.LowerASCII(found[1]), true
}

// SubjectTag is the end of a subject. token is empty if the reply address carries it.
func SubjectTag(id, token string) string {
	if token == "" {
		return "[appr_" + id + "]"
	}
	return "[appr_" + id + " " + token + "]"
}

// Where a cardRef was found.
const (
	inAddress = "address"
	inThread  = "thread" // In-Reply-To and References
	inSubject = "subject"
	inBody    = "body"
)

// cardRef is a part of an email that may name the request. It proves nothing: the token
// must be a valid one of the request's card.
type cardRef struct {
	ID    string // the request, in lower case; "" if there is only a token
	Token string // in lower case; "" if there is none
	Where string // inAddress, inThread, inSubject or inBody
}

const maxRefs = 50

// Refs are the references to a request, without duplicates, the best first: the reply
// address, the thread (the message replied to before older ones), the subject, the
// body with its quotations.
func (m *inboundMail) Refs(sub Addressing) []cardRef {
	var refs []cardRef
	seen := map[cardRef]bool{}
	add := func(r cardRef) {
		if !seen[r] && len(refs) < maxRefs {
			seen[r] = true
			refs = append(refs, r)
		}
	}
	for _, address := range m.Recipients {
		if t := sub.token(address); t != "" {
			add(cardRef{Token: t, Where: inAddress})
		}
	}
	for _, list := range [][]string{m.InReplyTo, m.References} {
		for i := len(list) - 1; i >= 0; i-- {
			if id, ok := parseMessageID(list[i]); ok {
				add(cardRef{ID: id, Where: inThread})
			}
		}
	}
	for _, r := range slices.Concat(tagsIn(m.Subject, inSubject), tagsIn(m.Text, inBody)) {
		add(r)
	}
	return refs
}

func tagsIn(text, where string) []cardRef {
	var refs []cardRef
	for _, f := range ourTag().FindAllStringSubmatch(text, maxRefs) {
		refs = append(refs, cardRef{ID: chat.LowerASCII(f[1]), Token: chat.LowerASCII(f[2]), Where: where})
	}
	return refs
}
