package authentic

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// proveDMARC is the proof by the receiving server: a DMARC pass in the topmost
// Authentication-Results field, which that server wrote. Fields below it came with the
// email.
func (a *Authenticator) proveDMARC(fields []headerField, domain string) (string, *Error) {
	value, found := topmostResults(fields)
	if !found {
		return "", &Error{
			Reason: fmt.Sprintf("%s has not stated how it checked the email (no Authentication-Results field)", a.AuthservID),
			hint:   "enable DMARC checks on the mail server, or let this channel check DKIM",
		}
	}
	id, results, err := parseResults(value)
	if err == nil && chat.LowerASCII(id) != chat.LowerASCII(a.AuthservID) {
		return "", &Error{
			Reason: fmt.Sprintf("the topmost Authentication-Results field is by %s, not by %s", quoteShort(id), a.AuthservID),
			hint:   "send a test card by email: its answer shows the name that your mail server writes",
		}
	}
	if err != nil {
		return "", refuse("the topmost Authentication-Results field cannot be read: %s", err)
	}
	return checkDMARC(results, id, domain)
}

func topmostResults(fields []headerField) (value string, found bool) {
	i := slices.IndexFunc(fields, func(f headerField) bool { return f.name == "authentication-results" })
	if i < 0 {
		return "", false
	}
	return fields[i].value, true
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
}

// parseResults parses the value of an Authentication-Results field by the grammar of
// RFC 8601, section 2.2. It allows three deviations that real servers write: any
// visible character except a delimiter in a value, a property without a type
// ("action=none"), and a final semicolon. Any other deviation is an error. So is a
// quotation mark in a comment: if a server copied a quoted local part into a comment,
// the sender could close the comment.
func parseResults(value string) (id string, results []authResult, err error) {
	s := &lexer{rest: value, noQuotes: true}
	if id, err = s.server(); err != nil {
		return "", nil, err
	}
	for s.peek() == ';' {
		s.next()
		if _, err := s.space(); err != nil {
			return "", nil, err
		}
		if s.peek() == 0 {
			break
		}
		r, err := s.result()
		if err != nil {
			return "", nil, err
		}
		results = append(results, r)
	}
	if s.peek() != 0 {
		return "", nil, errResult
	}
	return id, results, nil
}

var errResult = errors.New("it does not have the form of RFC 8601")

// server parses the server's name and the version.
func (s *lexer) server() (id string, err error) {
	if _, err = s.space(); err != nil {
		return "", err
	}
	if id, err = s.value(); err != nil {
		return "", err
	}
	spaced, err := s.space()
	if err != nil {
		return "", err
	}
	if version := s.word(isDigit); version != "" {
		if version != "1" || !spaced {
			return "", errors.New("unsupported version")
		}
		if _, err = s.space(); err != nil {
			return "", err
		}
	}
	// The id is a token or quoted. "spf=pass" here means that the server omitted its
	// name.
	if strings.ContainsAny(id, "=/@:[]?") {
		return "", errors.New("it does not begin with the name of a server")
	}
	return id, nil
}

// result parses `method [/version] = value` and its properties.
func (s *lexer) result() (authResult, error) {
	var r authResult
	r.method = chat.LowerASCII(s.word(isKeyword))
	separator, err := s.separator("/=")
	if err != nil {
		return r, err
	}
	if separator == '/' {
		s.word(isDigit)
		separator, err = s.separator("=")
		if err != nil {
			return r, err
		}
	}
	if separator == 0 {
		if r.method != "none" || s.peek() != 0 && s.peek() != ';' {
			return r, errResult
		}
		return r, nil
	}
	r.value = chat.LowerASCII(s.word(isKeyword))
	if r.method == "" || r.value == "" {
		return r, errResult
	}
	return r, s.properties(&r)
}

// properties parses `[type .] name = value`, each after white space, up to the next
// semicolon.
func (s *lexer) properties(r *authResult) error {
	for {
		spaced, err := s.space()
		if err != nil {
			return err
		}
		if c := s.peek(); c == 0 || c == ';' {
			return nil
		}
		if !spaced {
			return errResult
		}
		name := chat.LowerASCII(s.word(isKeyword))
		separator, err := s.separator(".=")
		if err != nil {
			return err
		}
		if separator == '.' {
			name += "." + chat.LowerASCII(s.word(isKeyword))
			if separator, err = s.separator("="); err != nil {
				return err
			}
		}
		if separator != '=' {
			return errResult
		}
		value, err := s.value()
		if err != nil {
			return err
		}
		if name == "header.from" {
			r.from = append(r.from, value)
		}
	}
}

// separator parses one of these characters and the white space around it. It returns
// 0 if there is none.
func (s *lexer) separator(any string) (byte, error) {
	if _, err := s.space(); err != nil {
		return 0, err
	}
	c := s.peek()
	if c == 0 || strings.IndexByte(any, c) < 0 {
		return 0, nil
	}
	s.next()
	_, err := s.space()
	return c, err
}

// value parses a quoted string, one with a domain after it ("a b"@x.example), or a
// word.
func (s *lexer) value() (string, error) {
	if s.peek() == '"' {
		text, err := s.quoted()
		if err == nil && s.peek() == '@' {
			text += s.word(isValue)
		}
		return text, err
	}
	text := s.word(isValue)
	if text == "" {
		return "", errResult
	}
	return text, nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isKeyword(c byte) bool { return isLetterDigit(c) || c == '-' || c == '_' }

func isValue(c byte) bool {
	return c > ' ' && c < 0x7f && strings.IndexByte(`()<>,;\"`, c) < 0
}
