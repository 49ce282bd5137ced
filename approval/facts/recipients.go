package facts

import (
	"net/mail"
	"strings"
)

// Recipient is one of the recipients in an argument.
type Recipient struct {
	Text    string // as it stands in the argument, with its display name
	Address string // without the display name; "" if Text is not a mail address
	Domain  string // of Address, lower case, in ASCII, without a final dot
	Written string // Domain as written, in lower case, if that is not ASCII
}

// Recipients splits a text with mail addresses at its commas, except for those in
// quotation marks, comments and angle brackets. whole says whether the recipients'
// texts, joined by ", ", are the text.
func Recipients(text string) (all []Recipient, whole bool) {
	rest, whole := text, true
	for i := 0; ; i++ {
		end := segment(rest)
		part := strings.Trim(rest[:end], " \t\r\n")
		space := ""
		if i > 0 {
			space = " "
		}
		whole = whole && rest[:end] == space+part
		all = append(all, recipient(part))
		if end == len(rest) {
			return all, whole
		}
		rest = rest[end+1:]
	}
}

// segment is where the first comma of s is that separates addresses.
func segment(s string) int {
	quoted, comments, angle := false, 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && (quoted || comments > 0):
			i++
		case quoted:
			quoted = c != '"'
		case c == '"' && comments == 0:
			quoted = true
		case c == '(':
			comments++
		case c == ')' && comments > 0:
			comments--
		case comments > 0:
		case c == '<', c == '>':
			angle = c == '<'
		case c == ',' && !angle:
			return i
		}
	}
	return len(s)
}

func recipient(text string) Recipient {
	r := Recipient{Text: text}
	a, err := mail.ParseAddress(text)
	if err != nil {
		return r
	}
	at := strings.LastIndexByte(a.Address, '@')
	r.Address = a.Address
	written := strings.TrimSuffix(strings.ToLower(a.Address[at+1:]), ".")
	if r.Domain, _ = asciiHost(written); r.Domain != written {
		r.Written = written
	}
	return r
}

// Bare says whether the recipient is an address alone: no display name, no comment.
func (r Recipient) Bare() bool { return r.Address != "" && r.Text == r.Address }

// IsOwnDomain says whether a domain, in lower case, is one of these. A domain below one is
// not: another host may belong to another person.
func IsOwnDomain(domain string, own []string) bool {
	for _, d := range own {
		if d, _ = asciiHost(strings.TrimSuffix(d, ".")); strings.EqualFold(d, domain) {
			return true
		}
	}
	return false
}
