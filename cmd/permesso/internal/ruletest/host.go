package ruletest

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

// hostPattern is "good.com", "*.good.com", "http://good.com" or "good.com:8443".
type hostPattern struct{ scheme, name, port string }

func hostPatternOf(s string) (p hostPattern) {
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		p.scheme, s = strings.ToLower(scheme), rest
	}
	p.name, p.port = cutPort(s)
	p.name = ascii(p.name)
	return p
}

// cutPort cuts the port off a name or an address.
func cutPort(s string) (name, port string) {
	if i := strings.LastIndexByte(s, ':'); i >= 0 && (strings.Count(s, ":") == 1 || i > 0 && s[i-1] == ']') {
		return s[:i], s[i+1:]
	}
	return s, ""
}

// ascii is a name in lower case, without brackets and final dot, as DNS has it.
func ascii(name string) string {
	name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
	if a, err := idna.Lookup.ToASCII(name); err == nil {
		name = a
	}
	return strings.ToLower(name)
}

// isAddress reports what some program takes as an IP address: also 127.1 and 0x7f000001.
func isAddress(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	return last != "" && (strings.Trim(last, "0123456789") == "" ||
		strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == "")
}

// named compares names.
func (p hostPattern) named(name string, wide bool) bool {
	if rest, ok := strings.CutPrefix(p.name, "*"); ok {
		return strings.HasSuffix(name, rest) && len(name) > len(rest) || wide && name == rest[1:]
	}
	if a, err := netip.ParseAddr(p.name); err == nil {
		if b, err := netip.ParseAddr(name); err == nil {
			return a.Unmap() == b.Unmap()
		}
	}
	return p.name == name
}

var usualPorts = map[string]string{"https": "443", "http": "80", "": "443"}

func (j judge) url(pattern, value string) Answer {
	p := hostPatternOf(pattern)
	if j.narrow {
		return p.allowsURL(value)
	}
	return p.reachedBy(value)
}

func (j judge) host(pattern, value string) Answer {
	p := hostPatternOf(pattern)
	if j.narrow {
		return p.allowsHost(value)
	}
	return p.reachedBy(value)
}

// plainURL reports an URL that every program reads in the same way.
func plainURL(value string) (u *url.URL, ok bool) {
	u, err := url.Parse(value)
	return u, err == nil && u.User == nil && u.Opaque == "" && u.Host != "" && !strings.Contains(value, `\`) &&
		!strings.Contains(u.Host, "%") && !strings.ContainsFunc(value, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
	})
}

func (p hostPattern) allowsURL(value string) Answer {
	u, ok := plainURL(value)
	if !ok || strings.Contains(hostPart(value), "%") {
		return No
	}
	scheme, port := p.scheme, p.port
	if scheme == "" {
		scheme = "https"
	}
	if port == "" {
		port = usualPorts[scheme]
	}
	given := u.Port()
	if given == "" {
		given = usualPorts[strings.ToLower(u.Scheme)]
	}
	if strings.ToLower(u.Scheme) != scheme || given != port || !p.named(ascii(u.Hostname()), false) {
		return No
	}
	return p.plainly(value, u.Hostname())
}

// plainly is Yes, and for a URL with an unusual spelling also No.
func (p hostPattern) plainly(value, name string) Answer {
	scheme, _, _ := strings.Cut(value, "://")
	odd := scheme != strings.ToLower(scheme) || strings.Contains(name, "[") || strings.HasPrefix(p.name, "*") && isAddress(name) ||
		strings.ContainsFunc(value, func(r rune) bool { return r > 0x7e }) ||
		strings.HasSuffix(hostPart(value), ":") || strings.Contains(strings.TrimPrefix(value, scheme+"://"), ":/")
	if odd {
		return No | Yes
	}
	return Yes
}

// hostPart is what stands between the scheme and the path.
func hostPart(value string) string {
	_, rest, ok := strings.Cut(value, "://")
	if !ok {
		return value
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

func (p hostPattern) allowsHost(value string) Answer {
	name, port := cutPort(value)
	want := p.port
	if want == "" {
		want = usualPorts[p.scheme]
	}
	odd := strings.ContainsFunc(value, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || strings.ContainsRune(`\/@%?#`, r)
	})
	switch {
	case odd || !p.named(ascii(name), false):
		return No
	case port == "" && want != "443" && p.scheme == "":
		return No
	case port == "" && p.scheme != "" || port == want && p.scheme != "":
		return No | Yes
	case port != "" && port != want:
		return No
	case strings.Contains(name, "[") || strings.ContainsFunc(value, func(r rune) bool { return r > 0x7e }) || strings.HasSuffix(value, ":"):
		return No | Yes
	}
	return Yes
}

// reached is a host that some program may read in a value.
type reached struct {
	scheme, name, port string
	certain            bool
}

// reachedBy answers for a deny.
func (p hostPattern) reachedBy(value string) Answer {
	all := No
	if strings.Contains(value, "@") {
		all = No | Unknown // a host can be taken for a user
	}
	if strings.Contains(value, "%40") {
		all |= Yes // or what is before an encoded @
	}
	for _, r := range hostsIn(value) {
		if a := p.reaches(r); r.certain || a != Unknown|Yes || !strings.Contains(value, "@") {
			all = some(all, a)
		} else {
			all |= No | Unknown | Yes // what stands before an @
		}
	}
	if len(hostsIn(value)) == 0 {
		return Unknown | No
	}
	return all
}

func (p hostPattern) reaches(r reached) Answer {
	given := r.port
	if given == "" {
		given = map[string]string{"https": "443", "wss": "443", "http": "80", "ws": "80", "ftp": "21"}[r.scheme]
	}
	hit := p.named(r.name, true)
	elsewhere := p.scheme != "" && r.scheme != "" && p.scheme != r.scheme || p.port != "" && given != "" && given != p.port
	switch {
	case !hit && isAddress(r.name) && elsewhere, hit && elsewhere && !r.certain:
		return No | Unknown
	case !hit && isAddress(r.name) && (!isAddress(p.name) || !r.plainAddress()):
		return Unknown
	case !hit && !r.certain:
		return No | Unknown
	case !hit:
		return No
	case p.scheme != "" && r.scheme != "" && p.scheme != r.scheme:
		return No | Unknown
	case p.port != "" && r.scheme == "" && r.port != "" && r.port != p.port:
		return No | Unknown
	case p.port != "" && r.scheme == "" && r.port == "", p.scheme != "" && r.scheme == "":
		return Unknown
	case p.port != "" && given != p.port && p.port == usualPorts[p.scheme]:
		return No | Yes // https://x:443 is https://x
	case p.port != "" && given != p.port:
		return No
	case !r.certain:
		return Unknown | Yes
	}
	return Yes
}

func (r reached) plainAddress() bool {
	_, err := netip.ParseAddr(r.name)
	return err == nil
}

// hostsIn lists the hosts that a program may read in a URL or host: with the backslash as
// a slash or not, with one slash or three, without a scheme.
func hostsIn(value string) (all []reached) {
	v := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || strings.ContainsRune(`<>"`, r) {
			return -1
		}
		return r
	}, norm.NFKC.String(value))
	scheme, rest, ok := strings.Cut(v, ":")
	isScheme := ok && strings.Trim(strings.ToLower(scheme), "abcdefghijklmnopqrstuvwxyz0123456789+-.") == "" &&
		(strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, `\`) || slices.Contains([]string{"http", "https", "ftp", "ws", "wss"}, strings.ToLower(scheme)))
	if !isScheme {
		scheme, rest = "", v
	}
	usual := isScheme && strings.HasPrefix(rest, "//") && !strings.HasPrefix(rest, "///")
	certain := (usual || scheme == "" && !strings.Contains(v, "/")) && !strings.Contains(v, `\`) && v == value
	rest = strings.TrimLeft(rest, `/\`)
	ends := []string{"/?#"}
	if strings.Contains(rest, `\`) {
		ends = append(ends, `/?#\`)
	}
	for _, end := range ends {
		part := rest
		if i := strings.IndexAny(part, end); i >= 0 {
			part = part[:i]
		}
		full := part
		part = part[strings.LastIndexByte(part, '@')+1:]
		if decoded, err := url.PathUnescape(part); err == nil {
			certain = certain && decoded == part && !strings.ContainsAny(part, "[]")
			part = strings.Join(strings.Fields(decoded), "")
		}
		name, port := cutPort(part)
		if name = ascii(name); strings.Trim(port, "0123456789") != "" || strings.Contains(name, ":") && !isAddress(name) {
			certain = false
		}
		if user, _, ok := strings.Cut(full, "@"); ok {
			before, _, _ := strings.Cut(user, ":")
			all = append(all, reached{strings.ToLower(scheme), ascii(before), "", false})
		}
		if name != "" {
			all = append(all, reached{strings.ToLower(scheme), name, port, certain && strings.Count(full, "@") < 2})
		}
	}
	return all
}

// urlMatches answers for { matches = } on a URL, as written, or on another type.
func (j judge) urlMatches(m map[string]any, value string) Answer {
	a := j.text(m, value)
	if j.narrow {
		if _, ok := plainURL(value); !ok && strings.Contains(value, "://") {
			return No
		}
		return a
	}
	if a == No {
		return No | Unknown
	}
	return a | Unknown
}
