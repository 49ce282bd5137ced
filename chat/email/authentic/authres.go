package authentic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// proveDMARC is the proof by the receiving server: a DMARC pass in the topmost
// Authentication-Results field, which that server wrote. Fields below it came with the
// email.
//
// DMARC proves From alone. The rest of the header is proved by SPF, if the sender's server
// delivered the email itself, or else by a signature that we verify.
func (a *Authenticator) proveDMARC(ctx context.Context, raw []byte, fields []headerField, from plainAddress) (Proof, *Error) {
	at := topmostResults(fields)
	if at < 0 {
		return Proof{}, &Error{
			Reason: fmt.Sprintf("%s has not stated how it checked the email (no Authentication-Results field)", cmp.Or(a.AuthservID, unnamed)),
			hint:   "enable DMARC checks on the mail server, or let this channel check DKIM",
		}
	}
	id, results, err := parseResults(fields[at].value, a.Unnamed)
	if err == nil && chat.LowerASCII(id) != chat.LowerASCII(a.AuthservID) {
		return Proof{}, &Error{
			Reason: fmt.Sprintf("the topmost Authentication-Results field is by %s, not by %s", quoteShort(id), a.AuthservID),
			hint:   "send a test card by email: its answer shows the name that your mail server writes",
		}
	}
	if err != nil {
		return Proof{}, refuse("the topmost Authentication-Results field cannot be read: %s", err)
	}
	how, refusal := checkDMARC(results, cmp.Or(id, unnamed), from.domain)
	if refusal != nil {
		return Proof{}, refusal
	}
	p := Proof{How: how, Direct: deliveredBy(from, results, fields[0])}
	if !p.Direct && a.DKIM {
		signed, refusal := a.proveDKIM(ctx, raw, fields, from.domain)
		if refusal != nil && refusal.Undecided {
			return Proof{}, refusal
		}
		p.Signed = signed.Signed
	}
	return p, nil
}

// unnamed is the server that writes no name.
const unnamed = "the mail server"

// topmostResults is the index of the topmost Authentication-Results field, or -1.
func topmostResults(fields []headerField) int {
	return slices.IndexFunc(fields, func(f headerField) bool { return f.name == "authentication-results" })
}

// deliveredBy says whether the sender's own server delivered the email: SPF passed for
// exactly this address. Another address of the domain may belong to a customer of the
// same provider, who passes on what he received. If the server states only the domain,
// the address is in the Return-Path that the delivery put above everything else.
func deliveredBy(from plainAddress, results []authResult, first headerField) bool {
	spf := slices.DeleteFunc(slices.Clone(results), func(r authResult) bool { return r.method != "spf" || len(r.mailFrom) == 0 })
	if len(spf) != 1 || spf[0].value != "pass" || len(spf[0].mailFrom) != 1 {
		return false
	}
	path := spf[0].mailFrom[0]
	if domain, err := canonicalDomain(path); err == nil && domain == from.domain && first.name == "return-path" {
		path = first.value
	}
	address, err := parsePlainAddress(path)
	return err == nil && address.is(from)
}

// checkDMARC finds the only statement about DMARC.
func checkDMARC(results []authResult, id, domain string) (string, *Error) {
	var dmarc []authResult
	for _, r := range results {
		if r.method == "dmarc" {
			dmarc = append(dmarc, r)
		}
	}
	switch {
	case len(dmarc) == 0:
		return "", refuse("%s says nothing about DMARC", id)
	case len(dmarc) > 1:
		return "", refuseFinally("%s has two results for DMARC", id)
	case dmarc[0].value == "fail":
		return "", refuseFinally("%s says that DMARC failed", id)
	case dmarc[0].value != "pass":
		return "", refuse("%s says dmarc=%s", id, dmarc[0].value)
	case len(dmarc[0].from) != 1:
		return "", refuse("%s does not say for which From domain DMARC passed", id)
	}
	about, err := canonicalDomain(dmarc[0].from[0])
	if err != nil || about != domain {
		return "", refuseFinally("%s checked DMARC for %s, but the From field says %s", id, quoteShort(dmarc[0].from[0]), domain)
	}
	return "dmarc by " + chat.LowerASCII(id), nil
}

// refuseFinally is a refusal after which no other proof is tried.
func refuseFinally(format string, args ...any) *Error {
	refusal := refuse(format, args...)
	refusal.final = true
	return refusal
}

// quoteShort formats untrusted text for one line.
func quoteShort(s string) string {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return fmt.Sprintf("%+q", s)
}

// authResult is the result of one method, in lower case.
type authResult struct {
	method, value string
	from          []string // every header.from of it
	mailFrom      []string // every smtp.mailfrom of it
}

// parseResults parses the value of an Authentication-Results field by the grammar of
// RFC 8601, section 2.2. It allows three deviations that real servers write: any
// visible character except a delimiter in a value, a property without a type
// ("action=none"), and a final semicolon. Any other deviation is an error. So is a quoted
// text in a comment with anything in it that could end the comment: the sender chooses a
// quoted local part. If the server writes no name, the results come first.
func parseResults(value string, unnamed bool) (id string, results []authResult, err error) {
	s := &lexer{rest: value, noQuotes: true}
	if unnamed {
		s.space()
		results = append(results, s.result())
	} else {
		id = s.server()
	}
	for s.peek() == ';' {
		s.next()
		if s.space(); s.peek() == 0 {
			break
		}
		results = append(results, s.result())
	}
	if s.peek() != 0 {
		s.fail(errResult)
	}
	if s.err != nil {
		return "", nil, s.err
	}
	return id, results, nil
}

var errResult = errors.New("it does not have the form of RFC 8601")

// server parses the server's name and the version.
func (s *lexer) server() string {
	s.space()
	id := s.value()
	spaced := s.space()
	if version := s.word(isDigit); version != "" && (version != "1" || !spaced) {
		s.fail(errors.New("unsupported version"))
	}
	s.space()
	// The id is a token or quoted. "spf=pass" here means that the server omitted its
	// name.
	if strings.ContainsAny(id, "=/@:[]?") {
		s.fail(errors.New("it does not begin with the name of a server"))
	}
	return id
}

// result parses `method [/version] = value` and its properties.
func (s *lexer) result() authResult {
	r := authResult{method: chat.LowerASCII(s.word(isKeyword))}
	separator := s.separator("/=")
	if separator == '/' {
		s.word(isDigit)
		separator = s.separator("=")
	}
	if separator == 0 {
		if r.method != "none" || s.peek() != 0 && s.peek() != ';' {
			s.fail(errResult)
		}
		return r
	}
	r.value = chat.LowerASCII(s.word(isKeyword))
	if r.method == "" || r.value == "" {
		s.fail(errResult)
	}
	s.properties(&r)
	return r
}

// properties parses `[type .] name = value`, each after white space, up to the next
// semicolon.
func (s *lexer) properties(r *authResult) {
	for {
		spaced := s.space()
		if c := s.peek(); c == 0 || c == ';' {
			return
		}
		name := chat.LowerASCII(s.word(isKeyword))
		separator := s.separator(".=")
		if separator == '.' {
			name += "." + chat.LowerASCII(s.word(isKeyword))
			separator = s.separator("=")
		}
		if !spaced || separator != '=' {
			s.fail(errResult)
			return
		}
		switch value := s.value(); name {
		case "header.from":
			r.from = append(r.from, value)
		case "smtp.mailfrom":
			r.mailFrom = append(r.mailFrom, value)
		}
	}
}

// separator parses one of these characters and the white space around it. It returns
// 0 if there is none.
func (s *lexer) separator(any string) byte {
	s.space()
	c := s.peek()
	if c == 0 || strings.IndexByte(any, c) < 0 {
		return 0
	}
	s.next()
	s.space()
	return c
}

// value parses a quoted string, one with a domain after it ("a b"@x.example), or a
// word.
func (s *lexer) value() (text string) {
	if s.peek() == '"' {
		if text = s.quoted(); s.peek() == '@' {
			text += s.word(isValue)
		}
		return text
	}
	if text = s.word(isValue); text == "" {
		s.fail(errResult)
	}
	return text
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isKeyword(c byte) bool { return isLetterDigit(c) || c == '-' || c == '_' }

func isValue(c byte) bool {
	return c > ' ' && c < 0x7f && strings.IndexByte(`()<>,;\"`, c) < 0
}
