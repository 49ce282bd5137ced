package authentic

import (
	"errors"
	"strings"
)

// plainAddress is an address without a display name. Its domain is canonical.
type plainAddress struct{ local, domain string }

func (m plainAddress) String() string { return m.local + "@" + m.domain }

// parsePlainAddress reads the value of a From or Sender field:
//
//	from    = [ phrase ] "<" address ">" | address
//	address = dot-atom "@" domain
//
// with white space and comments around the address, but not inside it. That is less
// than RFC 5322 allows: no group, list, route, quoted local part or address literal.
// Mail programs write none of them, and every parser reads them differently.
func parsePlainAddress(value string) (plainAddress, error) {
	s := &lexer{rest: value}
	words := 0
	for {
		if _, err := s.space(); err != nil {
			return plainAddress{}, err
		}
		switch c := s.peek(); {
		case c == 0:
			return plainAddress{}, errors.New("no address")
		case c == '<':
			s.next()
			return s.last(true)
		case c == '"':
			if _, err := s.quoted(); err != nil {
				return plainAddress{}, err
			}
			if s.peek() == '@' {
				return plainAddress{}, errors.New("the part before the @ is quoted")
			}
		case isAtom(c) || c == '.' || c >= 0x80:
			before := s.rest
			s.word(func(c byte) bool { return isAtom(c) || c == '.' || c >= 0x80 })
			if s.peek() == '@' && words == 0 {
				s.rest = before
				return s.last(false)
			}
		default:
			return plainAddress{}, unexpected(c)
		}
		words++
	}
}

// last parses the address and checks that nothing follows it.
func (s *lexer) last(angle bool) (plainAddress, error) {
	if s.peek() == '@' {
		return plainAddress{}, errors.New("it has a route")
	}
	if s.peek() == '"' {
		return plainAddress{}, errors.New("the part before the @ is quoted")
	}
	local := s.word(func(c byte) bool { return isAtom(c) || c == '.' || c >= 0x80 })
	if s.peek() != '@' {
		return plainAddress{}, errors.New("it has no @")
	}
	s.next()
	if s.peek() == '[' {
		return plainAddress{}, errors.New("it has an address literal for a domain")
	}
	domain := s.word(func(c byte) bool { return isLetterDigit(c) || c == '-' || c == '.' || c >= 0x80 })
	if angle {
		if s.peek() != '>' {
			return plainAddress{}, errors.New("its angle brackets contain more than an address")
		}
		s.next()
	}
	if _, err := s.space(); err != nil {
		return plainAddress{}, err
	}
	if c := s.peek(); c != 0 {
		return plainAddress{}, unexpected(c)
	}
	if err := checkLocal(local); err != nil {
		return plainAddress{}, err
	}
	domain, err := canonicalDomain(domain)
	return plainAddress{local, domain}, err
}

func unexpected(c byte) error {
	switch c {
	case ',', ';':
		return errors.New("it has more than one")
	case ':':
		return errors.New("it is a group")
	default:
		return errors.New("it has an unexpected character")
	}
}

func checkLocal(local string) error {
	switch {
	case local == "" || len(local) > 64:
		return errors.New("the part before the @ is empty or longer than 64 characters")
	case strings.HasPrefix(local, ".") || strings.HasSuffix(local, ".") || strings.Contains(local, ".."):
		return errors.New("the part before the @ has a misplaced dot")
	case strings.ContainsFunc(local, func(r rune) bool { return r >= 0x80 }):
		return errors.New("the part before the @ has non-ASCII characters")
	case strings.Contains(local, "=?"):
		// An encoded word is made of characters that an address may have.
		return errors.New("the part before the @ is an encoded word")
	}
	return nil
}

// lexer reads the lexical tokens of RFC 5322, section 3.2, from an unfolded value.
type lexer struct {
	rest     string
	noQuotes bool // a quotation mark in a comment is an error
}

// peek is the next byte; 0 at the end (readFields refuses a NUL).
func (s *lexer) peek() byte {
	if s.rest == "" {
		return 0
	}
	return s.rest[0]
}

func (s *lexer) next() { s.rest = s.rest[1:] }

func (s *lexer) word(in func(byte) bool) string {
	n := 0
	for n < len(s.rest) && in(s.rest[n]) {
		n++
	}
	word := s.rest[:n]
	s.rest = s.rest[n:]
	return word
}

var errQuote = errors.New("a quotation mark is not closed")

// quoted reads a quoted string. The next byte is its quotation mark.
func (s *lexer) quoted() (string, error) {
	var text strings.Builder
	for s.next(); ; s.next() {
		switch s.peek() {
		case 0:
			return "", errQuote
		case '"':
			s.next()
			return text.String(), nil
		case '\\':
			s.next()
			if s.peek() == 0 {
				return "", errQuote
			}
		}
		text.WriteByte(s.peek())
	}
}

// space skips white space and comments, and says whether there was any.
func (s *lexer) space() (bool, error) {
	skipped := false
	for depth := 0; ; s.next() {
		switch c := s.peek(); {
		case c == 0 && depth > 0:
			return false, errors.New("a comment is not closed")
		case c == '"' && depth > 0 && s.noQuotes:
			return false, errors.New("a comment has a quotation mark in it")
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case c == '\\' && depth > 0:
			s.next()
			if s.peek() == 0 {
				return false, errors.New("a comment is not closed")
			}
		case depth > 0 || c == ' ' || c == '\t':
		default:
			return skipped, nil
		}
		skipped = true
	}
}

func isLetterDigit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func isAtom(c byte) bool {
	return isLetterDigit(c) || c != 0 && strings.IndexByte("!#$%&'*+-/=?^_`{|}~", c) >= 0
}
