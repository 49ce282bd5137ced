package email

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"
)

// What a header may have at most. Real ones stay far below; more is an attempt
// to make us work.
const (
	maxReadHeader = 64 << 10
	maxFields     = 500
	maxSignature  = 8 << 10 // of one DKIM-Signature field
)

// proofTime is how long all DNS questions about one mail may take together.
const proofTime = 20 * time.Second

// Authenticator proves who wrote a mail. The zero value believes nobody.
//
// Two proofs count: a DMARC pass that the receiving server states itself, in
// the topmost Authentication-Results field, and a DKIM signature that we verify
// and that is aligned with the From domain. They are tried in this order, and
// one is enough, with one exception: when the receiving server says that DMARC
// failed, or names another From domain than we read, nothing else is asked.
//
// Neither proof covers the whole header. Of what a signature leaves out (with
// many senders that is Content-Type) whoever carries the mail can change
// everything. That is one reason why a mail decides only with its token.
type Authenticator struct {
	// AuthservID is the name under which the receiving server writes
	// Authentication-Results (RFC 8601). Empty: those fields are not believed.
	// The server must remove such fields of its own name from what comes in.
	AuthservID string
	// DKIM says that we verify signatures ourselves (RFC 6376, RFC 8463).
	DKIM bool
	// TrustRelay believes From as it stands. It is for set-ups without DKIM in
	// which nobody can put a mail in except a relay on this machine that has
	// checked its senders. Even then a stated DMARC failure is not overruled.
	TrustRelay bool
	// Lookup gives the TXT records of a name, one string for each record, and
	// for a name without any an error like the one of net.Resolver, a
	// *net.DNSError with IsNotFound. Every other error means "not known now".
	// Nil: the resolver of the system.
	Lookup func(ctx context.Context, name string) ([]string, error)
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// AuthError says why a mail is not believed, for the operator's eyes. It never
// holds the mail's subject, its text, or an address it was sent to.
type AuthError struct {
	Reason string // one sentence without a period
	Hint   string // what the operator can do about it, or ""
	// Undecided: what would prove it could not be looked up now. The same mail
	// may be proved later; until then it counts for nothing.
	Undecided bool

	final bool // no other proof may outweigh this one
}

// Error is the reason, and the hint on a line of its own.
func (e *AuthError) Error() string {
	if e.Hint != "" {
		return e.Reason + "\nhint: " + e.Hint
	}
	return e.Reason
}

func distrust(format string, args ...any) *AuthError {
	return &AuthError{Reason: fmt.Sprintf(format, args...)}
}

// Sender gives the one address that wrote raw, and how that was proved: "dmarc
// by mx.example", "dkim human.test" or "relay". The domain of the address is
// lower-case, an internationalised one in its A-label form; the local part is
// as it was written. Display names and comments mean nothing here.
//
// raw is a mail as RFC 5322 has it, with CRLF or with LF; no envelope line ("From
// somebody Mon Jan 1 …") before it. Every error is an *AuthError.
func (a *Authenticator) Sender(ctx context.Context, raw []byte) (address, how string, err error) {
	fields, refusal := readFields(raw)
	if refusal != nil {
		return "", "", refusal
	}
	from, refusal := author(fields)
	if refusal != nil {
		return "", "", refusal
	}
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	how, refusal = a.prove(ctx, raw, fields, from.domain)
	if refusal != nil {
		return "", "", refusal
	}
	return from.String(), how, nil
}

// prove tries what is configured, cheapest first, and tells why each was not
// enough.
func (a *Authenticator) prove(ctx context.Context, raw []byte, fields []headerField, domain string) (string, *AuthError) {
	var all AuthError
	for _, try := range []struct {
		on    bool
		proof func() (string, *AuthError)
	}{
		{a.AuthservID != "", func() (string, *AuthError) { return a.stated(fields, domain) }},
		{a.DKIM, func() (string, *AuthError) { return a.signed(ctx, raw, fields, domain) }},
		{a.TrustRelay, func() (string, *AuthError) { return "relay", nil }},
	} {
		if !try.on {
			continue
		}
		how, refusal := try.proof()
		if refusal == nil {
			return how, nil
		}
		if refusal.final {
			return "", refusal
		}
		all.add(refusal)
	}
	if all.Reason == "" {
		return "", &AuthError{
			Reason: "nothing is configured that could prove who wrote a mail",
			Hint:   "permesso email setup says which lines the configuration needs",
		}
	}
	return "", &all
}

func (e *AuthError) add(more *AuthError) {
	switch {
	case e.Reason == "":
		e.Reason = more.Reason
	case !strings.Contains(e.Reason, more.Reason):
		e.Reason += "; " + more.Reason
	}
	if e.Hint == "" {
		e.Hint = more.Hint
	}
	e.Undecided = e.Undecided || more.Undecided
}

// headerField is one header field: its name in lower case, its value unfolded.
type headerField struct{ name, value string }

// headerBuilder collects fields line by line. A field may have thousands of
// lines, so they are joined once.
type headerBuilder struct {
	fields []headerField
	value  strings.Builder // of the last one
}

func (h *headerBuilder) field(name, value string) {
	h.finish()
	h.fields = append(h.fields, headerField{name: foldASCII(name)})
	h.value.WriteString(value)
}

func (h *headerBuilder) continued(line string) { h.value.WriteString(line) }

// finish gives the fields. What was continued before the first is nothing.
func (h *headerBuilder) finish() []headerField {
	if n := len(h.fields); n > 0 && h.fields[n-1].value == "" {
		h.fields[n-1].value = h.value.String()
	}
	h.value.Reset()
	return h.fields
}

// readFields is stricter than any reader that comes after it, so that all of
// them see the same fields: no line that is no field, no blank in a name, no
// bare CR, no NUL, no continuation that looks empty.
func readFields(raw []byte) ([]headerField, *AuthError) {
	var h headerBuilder
	for rest := raw; ; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		switch {
		case !ended:
			return nil, distrust("the header has no end")
		case len(raw)-len(after) > maxReadHeader:
			return nil, distrust("the header is longer than %d KiB", maxReadHeader>>10)
		case len(line) == 0:
			return h.finish(), nil
		case bytes.ContainsAny(line, "\r\x00"):
			return nil, distrust("the header has a bare carriage return or a NUL in it")
		}
		if refusal := h.strictLine(string(line)); refusal != nil {
			return nil, refusal
		}
		rest = after
	}
}

func (h *headerBuilder) strictLine(line string) *AuthError {
	if line[0] == ' ' || line[0] == '\t' {
		if len(h.fields) == 0 || strings.Trim(line, " \t") == "" {
			return distrust("the header has a continuation line of nothing, or with nothing before it")
		}
		h.continued(line)
		return nil
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return distrust("the header has a line that is no field")
	}
	if len(h.fields) == maxFields {
		return distrust("the header has more than %d fields", maxFields)
	}
	h.field(name, value)
	return nil
}

// onlyOnce are the fields that RFC 5322 and RFC 2045 allow once at most. Of two,
// one reader takes the first, a signature covers the last.
var onlyOnce = map[string]string{
	"from": "From", "sender": "Sender", "reply-to": "Reply-To", "to": "To", "cc": "Cc", "bcc": "Bcc",
	"date": "Date", "subject": "Subject", "message-id": "Message-ID", "in-reply-to": "In-Reply-To", "references": "References",
	"mime-version": "MIME-Version", "content-type": "Content-Type", "content-transfer-encoding": "Content-Transfer-Encoding",
	"content-disposition": "Content-Disposition",
}

// author is who the header says wrote the mail, if it says so in one way only.
func author(fields []headerField) (plainAddress, *AuthError) {
	values := map[string]string{}
	for _, f := range fields {
		if onlyOnce[f.name] == "" {
			continue
		}
		if _, twice := values[f.name]; twice {
			return plainAddress{}, distrust("it has more than one %s field", onlyOnce[f.name])
		}
		values[f.name] = f.value
	}
	for _, name := range []string{"from", "subject", "date"} {
		if _, ok := values[name]; !ok {
			return plainAddress{}, distrust("it has no %s field", onlyOnce[name])
		}
	}
	from, err := parsePlainAddress(values["from"])
	if err != nil {
		return plainAddress{}, distrust("its From field is not one plain address: %s", err)
	}
	if value, ok := values["sender"]; ok {
		if sender, err := parsePlainAddress(value); err != nil || sender != from {
			return plainAddress{}, distrust("its Sender field names somebody else than its From field")
		}
	}
	return from, nil
}
