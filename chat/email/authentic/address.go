package authentic

import (
	"errors"
	"strings"

	"github.com/permesso-dev/permesso/chat"
)

// plainAddress is an address without a display name. Its domain is canonical.
type plainAddress struct{ local, domain string }

func (m plainAddress) String() string { return m.local + "@" + m.domain }

// is compares two addresses, without the case of their letters.
func (m plainAddress) is(other plainAddress) bool {
	return chat.LowerASCII(m.local) == chat.LowerASCII(other.local) && m.domain == other.domain
}

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
	local, domain := s.mailbox()
	if s.err == nil {
		s.err = checkLocal(local)
	}
	if s.err != nil {
		return plainAddress{}, s.err
	}
	domain, err := canonicalDomain(domain)
	return plainAddress{local, domain}, err
}

var errQuotedLocal = errors.New("the part before the @ is quoted")

// mailbox parses the complete value.
func (s *lexer) mailbox() (local, domain string) {
	for words := 0; ; words++ {
		s.space()
		before := s.rest
		switch c := s.peek(); {
		case c == 0:
			s.fail(errors.New("no address"))
			return "", ""
		case c == '<':
			s.next()
			return s.address(true)
		case c == '"':
			if s.quoted(); s.peek() == '@' {
				s.fail(errQuotedLocal)
			}
		case s.word(isDotAtom) == "":
			s.fail(unexpected(c))
		case s.peek() == '@' && words == 0:
			s.rest = before
			return s.address(false)
		}
	}
}

// address parses the address and checks that nothing follows it.
func (s *lexer) address(angle bool) (local, domain string) {
	switch s.peek() {
	case '@':
		s.fail(errors.New("it has a route"))
	case '"':
		s.fail(errQuotedLocal)
	}
	local = s.word(isDotAtom)
	if s.peek() != '@' {
		s.fail(errors.New("it has no @"))
	}
	s.next()
	if s.peek() == '[' {
		s.fail(errors.New("it has an address literal for a domain"))
	}
	domain = s.word(func(c byte) bool { return isLetterDigit(c) || c == '-' || c == '.' || c >= 0x80 })
	if angle && s.peek() != '>' {
		s.fail(errors.New("its angle brackets contain more than an address"))
	} else if angle {
		s.next()
	}
	s.space()
	if c := s.peek(); c != 0 {
		s.fail(unexpected(c))
	}
	return local, domain
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

// lexer reads the lexical tokens of RFC 5322, section 3.2, from an unfolded value. After an
// error there are no more.
type lexer struct {
	rest     string
	noQuotes bool // a quoted text in a comment must not have a delimiter in it
	err      error
}

func (s *lexer) fail(err error) {
	if s.rest = ""; s.err == nil {
		s.err = err
	}
}

// peek is the next byte; 0 at the end (readFields refuses a NUL).
func (s *lexer) peek() byte {
	if s.rest == "" {
		return 0
	}
	return s.rest[0]
}

func (s *lexer) next() { s.rest = s.rest[min(1, len(s.rest)):] }

func (s *lexer) word(in func(byte) bool) string {
	n := 0
	for n < len(s.rest) && in(s.rest[n]) {
		n++
	}
	word := s.rest[:n]
	s.rest = s.rest[n:]
	return word
}

// quoted reads a quoted string. The next byte is its quotation mark.
func (s *lexer) quoted() string {
	var text strings.Builder
	for s.next(); ; s.next() {
		c := s.peek()
		if c == '"' {
			s.next()
			return text.String()
		}
		if c == '\\' {
			s.next()
			c = s.peek()
		}
		if c == 0 {
			s.fail(errors.New("a quotation mark is not closed"))
			return ""
		}
		text.WriteByte(c)
	}
}

// space skips white space and comments, and says whether there was any.
func (s *lexer) space() (skipped bool) {
	for depth := 0; ; s.next() {
		c := s.peek()
		if c == '\\' && depth > 0 {
			s.next()
			if c = s.peek(); c != 0 {
				continue
			}
		}
		switch {
		case c == 0 && depth > 0:
			s.fail(errors.New("a comment is not closed"))
			return false
		case c == '"' && depth > 0 && s.noQuotes:
			text, rest, closed := strings.Cut(s.rest[1:], `"`)
			if !closed || strings.ContainsAny(text, `()\;`) {
				s.fail(errors.New("a comment has a quotation mark in it"))
				return false
			}
			s.rest = `"` + rest // the loop skips it
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case depth > 0 || c == ' ' || c == '\t':
		default:
			return skipped
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

func isDotAtom(c byte) bool { return isAtom(c) || c == '.' || c >= 0x80 }
