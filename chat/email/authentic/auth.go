package authentic

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/chat"
)

// The limits for a header. Real headers stay far below them; a larger one is an
// attempt to use up resources.
const (
	maxReadHeader = 64 << 10
	maxFields     = 500
	maxSignature  = 8 << 10 // of one DKIM-Signature field
)

// proofTimeout is the timeout for all DNS lookups of one email together.
const proofTimeout = 20 * time.Second

// Authenticator proves who wrote an email. The zero value accepts no sender.
//
// Two proofs count: a DMARC pass that the receiving server states in the topmost
// Authentication-Results field, and a DKIM signature that we verify and that is
// aligned with the From domain. They are tried in this order, and one is enough. There
// is one exception: if the receiving server says that DMARC failed, or names another
// From domain than we read, the email is refused.
//
// Neither proof covers the complete header. Every relay can change what a signature
// leaves out (with many senders that includes Content-Type). This is one reason why an
// email decides only with its token.
type Authenticator struct {
	// AuthservID is the name under which the receiving server writes
	// Authentication-Results (RFC 8601). Empty: those fields are ignored. The server
	// must remove fields with its own name from incoming emails.
	AuthservID string
	// Unnamed: the receiving server writes Authentication-Results without a name, above all
	// fields that came with the email, into every email. Then AuthservID is empty.
	Unnamed bool
	// DKIM enables our own verification of signatures (RFC 6376, RFC 8463).
	DKIM bool
	// TrustRelay accepts From as it is. Use it only without DKIM, and only if every
	// email comes from a relay on this machine that has checked its sender. A DMARC
	// failure that the server states still refuses the email.
	TrustRelay bool
	// Lookup returns the TXT records of a name, one string for each record. For a name
	// without records it returns a *net.DNSError with IsNotFound, as net.Resolver does.
	// Every other error means that the records are not known now. Nil: the system's
	// resolver.
	Lookup func(ctx context.Context, name string) ([]string, error)
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// Error says, for the operator, why a sender is not proved. It never contains the
// email's subject, its text, or a recipient's address.
type Error struct {
	Reason string // one sentence without a period
	hint   string // what the operator can do, or ""
	// Undecided: the proof could not be looked up now. A retry may succeed; until then
	// the email does not count.
	Undecided bool

	final bool // no other proof is tried
}

func (e *Error) Error() string { return e.Reason }

// Hint is what the operator can do, or "".
func (e *Error) Hint() string { return e.hint }

func refuse(format string, args ...any) *Error {
	return &Error{Reason: fmt.Sprintf(format, args...)}
}

// Proof says who wrote an email, how that was proved, and which other fields are proved with it.
type Proof struct {
	// Sender is the one address in From. Its domain is lower-case, an internationalized one
	// in its A-label form; the local part is unchanged. Display names and comments are
	// ignored.
	Sender string
	How    string // "dmarc by mx.example", "dkim human.test" or "relay"
	// Direct: the sender's own server delivered the email to the server that vouches for it.
	// So the complete header is as the sender's server wrote it.
	Direct bool
	Signed []string // the fields that the sender's domain signed, in lower case
	Doubt  Doubt    // why the email may not speak for its sender alone; "": no doubt
}

// Covers says whether the proof covers a field. Where the field is missing, it may cover that it is.
func (p Proof) Covers(field string) bool {
	return p.Direct || slices.Contains(p.Signed, chat.LowerASCII(field))
}

// Doubt is what is wrong with an email whose sender is proved.
type Doubt string

// The doubts.
const (
	NoSubject   Doubt = "noSubject" // there is no Subject field
	NoDate      Doubt = "noDate"
	OtherSender Doubt = "otherSender" // the Sender field differs from From
	Repeated    Doubt = "repeated"    // of a field that may occur once there are two
)

// Prove returns who wrote raw, and what else is proved. raw is an email as in RFC 5322,
// with CRLF or LF, without an envelope line ("From ann@human.test Mon Jan 1 …") before
// it. Every error is an *Error.
func (a *Authenticator) Prove(ctx context.Context, raw []byte) (Proof, error) {
	fields, refusal := readFields(raw)
	if refusal != nil {
		return Proof{}, refusal
	}
	from, doubt, refusal := author(fields)
	if refusal != nil {
		return Proof{}, refusal
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	p, refusal := a.prove(ctx, raw, fields, from)
	if refusal != nil {
		return Proof{}, refusal
	}
	p.Sender, p.Doubt = from.String(), doubt
	return p, nil
}

// prove tries the configured proofs, the cheapest first. Its error contains the reason
// of each.
func (a *Authenticator) prove(ctx context.Context, raw []byte, fields []headerField, from plainAddress) (Proof, *Error) {
	var all Error
	for _, try := range []struct {
		on    bool
		proof func() (Proof, *Error)
	}{
		{a.AuthservID != "" || a.Unnamed, func() (Proof, *Error) { return a.proveDMARC(ctx, raw, fields, from) }},
		{a.DKIM, func() (Proof, *Error) { return a.proveDKIM(ctx, raw, fields, from.domain) }},
		{a.TrustRelay, func() (Proof, *Error) { return Proof{How: "relay", Direct: true}, nil }},
	} {
		if !try.on {
			continue
		}
		p, refusal := try.proof()
		if refusal == nil {
			return p, nil
		}
		if refusal.final {
			return Proof{}, refusal
		}
		all.add(refusal)
	}
	if all.Reason == "" {
		return Proof{}, &Error{
			Reason: "no proof of the sender is configured",
			hint:   "send a test card by email: its answer shows which proof your mail server allows",
		}
	}
	return Proof{}, &all
}

func (e *Error) add(more *Error) {
	switch {
	case e.Reason == "":
		e.Reason = more.Reason
	case !strings.Contains(e.Reason, more.Reason):
		e.Reason += "; " + more.Reason
	}
	if e.hint == "" {
		e.hint = more.hint
	}
	e.Undecided = e.Undecided || more.Undecided
}

// headerField is one header field: its name in lower case, its value unfolded.
type headerField struct{ name, value string }

// readFields is stricter than every later reader, so that all of them see the same
// fields: every line is a field, no blank in a name, no bare CR, no NUL, no empty
// continuation.
func readFields(raw []byte) ([]headerField, *Error) {
	var names []string
	var values [][]byte // each grows line by line: a field may have thousands
	for rest := raw; ; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		name, value, colon := strings.Cut(string(line), ":")
		switch {
		case !ended:
			return nil, refuse("the header has no end")
		case len(raw)-len(after) > maxReadHeader:
			return nil, refuse("the header is longer than %d KiB", maxReadHeader>>10)
		case len(line) == 0:
			fields := make([]headerField, len(names))
			for i := range names {
				fields[i] = headerField{names[i], string(values[i])}
			}
			return fields, nil
		case bytes.ContainsAny(line, "\r\x00"):
			return nil, refuse("the header has a bare carriage return or a NUL in it")
		case line[0] == ' ' || line[0] == '\t':
			if len(names) == 0 || len(bytes.Trim(line, " \t")) == 0 {
				return nil, refuse("the header has an empty continuation line, or one before the first field")
			}
			values[len(values)-1] = append(values[len(values)-1], line...)
		case !colon || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }):
			return nil, refuse("the header has a line that is no field")
		case len(names) == maxFields:
			return nil, refuse("the header has more than %d fields", maxFields)
		default:
			names, values = append(names, chat.LowerASCII(name)), append(values, []byte(value))
		}
		rest = after
	}
}

// Stated returns the topmost Authentication-Results field of an email and the server that it
// names; "" if there is none.
func Stated(raw []byte) (server, field string) {
	fields, _ := readFields(raw)
	if at := topmostResults(fields); at >= 0 {
		field = fields[at].value
		server, _, _ = parseResults(field, false)
	}
	return server, field
}

// onlyOnce are the fields that RFC 5322 and RFC 2045 allow at most once. Of two, one
// reader takes the first, and a signature covers the last.
var onlyOnce = []string{
	"from", "sender", "reply-to", "to", "cc", "bcc", "date", "subject", "message-id", "in-reply-to", "references",
	"mime-version", "content-type", "content-transfer-encoding", "content-disposition",
}

// author returns the writer according to the header. doubt says in what the fields disagree.
// Of two From fields none is the writer.
func author(fields []headerField) (from plainAddress, doubt Doubt, _ *Error) {
	values, repeated := map[string]string{}, false
	for _, f := range fields {
		if !slices.Contains(onlyOnce, f.name) {
			continue
		}
		if _, twice := values[f.name]; twice && f.name == "from" {
			return plainAddress{}, "", refuse("it has more than one From field")
		} else if twice {
			repeated = true
		}
		values[f.name] = f.value
	}
	value, ok := values["from"]
	if !ok {
		return plainAddress{}, "", refuse("it has no From field")
	}
	from, err := parsePlainAddress(value)
	if err != nil {
		return plainAddress{}, "", refuse("its From field is not one plain address: %s", err)
	}
	if _, ok := values["date"]; !ok {
		doubt = NoDate
	}
	if _, ok := values["subject"]; !ok {
		doubt = NoSubject
	}
	if value, ok := values["sender"]; ok {
		if sender, err := parsePlainAddress(value); err != nil || !sender.is(from) {
			doubt = OtherSender
		}
	}
	if repeated {
		doubt = Repeated
	}
	return from, doubt, nil
}
