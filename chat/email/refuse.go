package email

import (
	"net/mail"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/email/authentic"
)

// The clock of an approver's mail program may be wrong: behind ours by clockTolerance. A date may be later than the
// arrival by maxAhead, because a program that ignores a change of the clocks is an hour ahead.
const (
	clockTolerance = 5 * time.Minute
	maxAhead       = time.Hour
)

// Why an email with a proved sender is no answer, as keys of messages. Those of
// [authentic.Doubt] are others.
const (
	refusedAutomatic = "automatic" // a program wrote it, or a mailing list passed it on
	refusedSeveral   = "several"   // it names several requests
	refusedForward   = "forward"   // its subject is that of a forwarded email
	refusedResent    = "resent"
	refusedOther     = "otherRecipient" // it is addressed to others
	refusedUnsigned  = "unsigned"       // no signature covers recipients and date
	refusedDate      = "date"           // its date cannot be read
	refusedEarlier   = "earlier"        // it is older than the card
	refusedFuture    = "future"         // its date is later than its arrival
	refusedToken     = "token"          // only unsigned fields have a token
)

// sentCard is the card that an email answers.
type sentCard struct {
	title  string
	sentAt time.Time
	has    func(cardRef) bool // whether a reference has one of its tokens
}

// notAnswer says why an email is no answer to a card; "" if it is one. The email has a
// token of the card, and a proof of its sender. But it may have been written to another
// person, who added the token and passed it on. So the proof must cover that it was
// written to the gate, and after the card was sent.
func (m *inboundMail) notAnswer(a Addressing, p authentic.Proof, card sentCard) string {
	date, err := mail.ParseDate(m.Date)
	switch {
	case m.forwards(card.title):
		return refusedForward
	case m.Resent:
		return refusedResent
	case p.Doubt != "":
		return string(p.Doubt)
	case !slices.ContainsFunc(m.addressees(nil), a.isGate):
		return refusedOther
	case !slices.ContainsFunc(m.addressees(p.Covers), a.isGate) || !p.Covers("date"):
		return refusedUnsigned
	case err != nil:
		return refusedDate
	case date.Before(card.sentAt.Add(-clockTolerance)):
		return refusedEarlier
	case date.After(time.Now().Add(maxAhead)):
		return refusedFuture
	case !slices.ContainsFunc(m.signedRefs(a, p), card.has):
		return refusedToken
	}
	return ""
}

// refusal is the text of a refusal.
func (a Addressing) refusal(key string, w *catalog) string {
	return chat.Format(w.Refusals[key], "gate", a.Local+"@"+a.Domain)
}

// addressees are the addresses in To and Cc. If covers is set, only those in the fields
// that it accepts.
func (m *inboundMail) addressees(covers func(string) bool) (all []string) {
	for _, field := range []string{"To", "Cc"} {
		if covers == nil || covers(field) {
			all = append(all, m.Addressees[field]...)
		}
	}
	return all
}

// signedRefs are the references in what a proof covers. A proof always covers the
// subject and the text.
func (m *inboundMail) signedRefs(a Addressing, p authentic.Proof) []cardRef {
	signed := *m
	signed.Recipients = m.addressees(p.Covers)
	return signed.Refs(a)
}

// of says whether a reference has a token of the card.
func (r cardRef) of(card deliver.Letter) bool {
	return r.Token != "" && card.Carries(tokenDigest(r.Token))
}

// isGate says whether an address is the gate's own: the plain one, or a sub-address.
func (a Addressing) isGate(address string) bool {
	local, domain, _ := strings.Cut(chat.LowerASCII(address), "@")
	own := chat.LowerASCII(a.Local)
	return domain == chat.LowerASCII(a.Domain) && (local == own || a.Separator != "" && strings.HasPrefix(local, own+a.Separator))
}

// The marks of a forwarded email in lower case: at the start of a subject, also after others such as "Re:" and after
// words in brackets; at its end; and in what a mail program or a person has added to a card's title.
var (
	forwardStart = expression(`^[\[({<【 ]*(\[[^\]]{0,40}\][\[( ]*|[\p{L}\p{M}./]{1,12}`+markColon+`[\[({<【 ]*)*`, "forward subjects", `(?:`+markColon+`| ?[\])}>】]|`+markReply+`|$)`)
	forwardEnd   = expression(`[\[({<【] ?`, "forward subjects", ` ?:?[\])}>】]$`)
	forwardAdded = expression(`(?:^|[^\p{L}\p{M}\p{N}])`, "forward subjects", `(?:`+markColon+`| ?[\])}>】]|`+markReply+`|[^\p{L}\p{M}\p{N}]*$)`)
)

// markColon ends a mark: "Re[2]: ", "Re: ".
const markColon = ` ?[\[(]?[0-9]{0,3}[\])]? ?:`

// markReply follows a mark without a colon: "Fw Re: ".
const markReply = ` re ?:`

// forwards says whether the subject is that of a forwarded email. The card's own title
// may have any words: then only what is before and behind it counts.
func (m *inboundMail) forwards(title string) bool {
	subject := subjectLine(m.Subject)
	if start, end := findTitle(subject, subjectLine(title)); end > 0 {
		return forwardAdded().MatchString(subject[:start]) || forwardAdded().MatchString(subject[end:])
	}
	return forwardStart().MatchString(subject) || forwardEnd().MatchString(subject) || title != "" && forwardAdded().MatchString(subject)
}

// subjectLine is a subject as it is compared: in lower case, with the plain forms of characters such as full-width ones.
func subjectLine(s string) string { return plainLine(norm.NFKC.String(visibleText(s))) }

// findTitle finds the title in a subject. A button's link, or a mail program, may have cut it, with a mark of the cut.
func findTitle(subject, title string) (start, end int) {
	if i := strings.LastIndex(subject, title); i >= 0 && title != "" {
		return i, i + len(title)
	}
	cut := max(0, strings.LastIndex(subject, "..."))
	for i := range cut {
		if strings.HasPrefix(title, subject[i:cut]) {
			return i, cut
		}
	}
	return 0, 0
}
