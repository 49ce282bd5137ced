package email

import (
	"errors"
	"fmt"
	"strings"
)

// stated is the proof that the receiving server gives: a DMARC pass in the
// topmost Authentication-Results field, which it has written itself. Whatever
// stands below came with the mail.
func (a *Authenticator) stated(fields []headerField, domain string) (string, *AuthError) {
	value, found := "", false
	for _, f := range fields {
		if f.name == "authentication-results" {
			value, found = f.value, true
			break
		}
	}
	if !found {
		return "", &AuthError{
			Reason: fmt.Sprintf("%s has not stated how it checked the mail (no Authentication-Results field)", a.AuthservID),
			Hint:   "let the mail server check DMARC, or verify DKIM here",
		}
	}
	id, results, err := parseResults(value)
	if err == nil && foldASCII(id) != foldASCII(a.AuthservID) {
		return "", &AuthError{
			Reason: fmt.Sprintf("the topmost Authentication-Results field is by %s, not by %s", quoteShort(id), a.AuthservID),
			Hint:   "permesso email setup shows under which name your mail server writes it",
		}
	}
	if err != nil {
		return "", distrust("the topmost Authentication-Results field cannot be read: %s", err)
	}
	return aboutDMARC(results, id, domain)
}

// aboutDMARC looks for the one statement about DMARC.
func aboutDMARC(results []authResult, id, domain string) (string, *AuthError) {
	var dmarc []authResult
	for _, r := range results {
		if r.method == "dmarc" {
			dmarc = append(dmarc, r)
		}
	}
	switch {
	case len(dmarc) == 0:
		return "", distrust("%s says nothing about DMARC", id)
	case len(dmarc) > 1:
		return "", finally("%s says two things about DMARC", id)
	case dmarc[0].value == "fail":
		return "", finally("%s says that DMARC failed", id)
	case dmarc[0].value != "pass":
		return "", distrust("%s says dmarc=%s", id, dmarc[0].value)
	case len(dmarc[0].from) != 1:
		return "", distrust("%s does not say for which From domain DMARC passed", id)
	}
	about, err := canonicalDomain(dmarc[0].from[0])
	if err != nil || about != domain {
		return "", finally("%s checked DMARC for %s, but the From field says %s", id, quoteShort(dmarc[0].from[0]), domain)
	}
	return "dmarc by " + foldASCII(id), nil
}

// finally is a refusal that no other proof outweighs.
func finally(format string, args ...any) *AuthError {
	refusal := distrust(format, args...)
	refusal.final = true
	return refusal
}

// quoteShort makes a stranger's words fit for one line.
func quoteShort(s string) string {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return fmt.Sprintf("%+q", s)
}

// authResult is what was found out by one method, both words in lower case.
type authResult struct {
	method, value string
	from          []string // every header.from of it
}

// parseResults reads the value of an Authentication-Results field by the
// grammar of RFC 8601, section 2.2, with three allowances for what servers
// really write: a value may have every visible character that is no delimiter,
// a property may be without a type ("action=none"), and a last semicolon may
// have nothing behind it. What else it cannot read makes all of it worthless. So
// does a quotation mark in a comment: a server that copies a quoted local part
// there would let the sender close the comment.
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

// server reads who wrote the field, and the version.
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
			return "", errors.New("it is of another version")
		}
		if _, err = s.space(); err != nil {
			return "", err
		}
	}
	// The id is a token or quoted; "spf=pass" there means that the server left
	// its name out.
	if strings.ContainsAny(id, "=/@:[]?") {
		return "", errors.New("it does not begin with the name of a server")
	}
	return id, nil
}

// result reads `method [/version] = value` and the properties behind it.
func (s *lexer) result() (authResult, error) {
	var r authResult
	r.method = foldASCII(s.word(isKeyword))
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
	r.value = foldASCII(s.word(isKeyword))
	if r.method == "" || r.value == "" {
		return r, errResult
	}
	return r, s.properties(&r)
}

// properties reads `[type .] name = value`, each behind white space, up to the
// next semicolon.
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
		name := foldASCII(s.word(isKeyword))
		separator, err := s.separator(".=")
		if err != nil {
			return err
		}
		if separator == '.' {
			name += "." + foldASCII(s.word(isKeyword))
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

// separator reads one of these characters and the white space around it; 0 is
// none of them.
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

// value reads a quoted string, one with a domain behind it ("a b"@x.example),
// or a word.
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
