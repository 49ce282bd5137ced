package facts

import (
	"net/netip"
	"net/url"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// Place is what a URL or an authority says about where it leads.
type Place struct {
	Host     string // without user, port and brackets, in ASCII; "": it cannot be told
	Written  string // Host as written, if that is not ASCII
	Scheme   string // lower case; "" if there is none
	Port     string // "" if there is none, or the usual one of the scheme
	Unicode  string // Host with its punycode decoded; "": it has none, or it is not valid
	Punycode bool   // Host has a label that begins with xn--
	IP       bool   // Host is an address, in any form that a program may take for one
	User     bool   // there is something before an @
	Odd      bool   // two parsers may read it differently
}

// PlaceOf reads a URL.
func PlaceOf(text string) Place {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return Place{Odd: true}
	}
	p := hostPlace(u.Hostname())
	p.Scheme, p.Port, p.User = u.Scheme, u.Port(), u.User != nil
	if p.Scheme == "http" && p.Port == "80" || p.Scheme == "https" && p.Port == "443" {
		p.Port = ""
	}
	_, authority, _ := strings.Cut(text, "//")
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority = authority[:i]
	}
	p.Odd = p.Odd || strings.ContainsAny(authority, "\\% \t")
	return p
}

// HostPlace reads a host, with or without a port.
func HostPlace(text string) Place {
	p := PlaceOf("//" + text)
	if strings.ContainsAny(text, "/?#@\\% \t") {
		p.Odd = true
	}
	return p
}

func hostPlace(host string) Place {
	ascii, ok := asciiHost(host)
	p := Place{Host: ascii, Odd: !ok}
	if ascii != host {
		p.Written, host = host, ascii
	}
	_, isIP := ParseIP(host)
	p.IP = isIP || endsInNumber(host)
	for label := range strings.SplitSeq(strings.ToLower(host), ".") {
		p.Punycode = p.Punycode || strings.HasPrefix(label, "xn--")
	}
	if !p.Punycode {
		return p
	}
	if decoded, err := idna.Punycode.ToUnicode(strings.ToLower(host)); err == nil {
		p.Unicode = decoded
	}
	return p
}

// ParseIP is netip.ParseAddr. It refuses a name without it, because most hosts are names, and
// the error costs more than the rest.
func ParseIP(host string) (netip.Addr, bool) {
	if !strings.Contains(host, ":") && strings.Trim(host, "0123456789.") != "" {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(host)
	return a, err == nil
}

// asciiHost is a host in the ASCII form that programs look up. A host in ASCII is returned
// as written, and one that has no such form, too, with ok false.
func asciiHost(host string) (ascii string, ok bool) {
	if !strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		return host, true
	}
	ascii, err := lookup.ToASCII(host)
	if err != nil || ascii == "" || !only(ascii, "-._") {
		return host, false
	}
	return ascii, true
}

// lookup maps letters and dots as browsers and curl do.
var lookup = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false))

// endsInNumber says whether programs take a name for an IPv4 address, as in the URL
// standard of the WHATWG: 127.1, 2130706433, 0x7f000001.
func endsInNumber(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	hex, isHex := strings.CutPrefix(last, "0x")
	if isHex {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}
