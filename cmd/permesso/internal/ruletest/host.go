package ruletest

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
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
		if !wide && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
			return false
		}
		return strings.HasSuffix(name, rest) && len(name) > len(rest) || wide && name == rest[1:]
	}
	if a, err := netip.ParseAddr(p.name); err == nil {
		if b, err := netip.ParseAddr(name); err == nil {
			return a.Unmap() == b.Unmap()
		}
		if b, ok := oldAddress(name); ok && wide {
			return a.Unmap() == b
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
	certain            bool // every program reads it so
}

// reachedBy answers for a deny.
func (p hostPattern) reachedBy(value string) Answer {
	hosts := hostsIn(value)
	all := No
	switch {
	case strings.Contains(value, "%40"), strings.Contains(value, "%25"):
		all = No | Unknown | Yes
	case strings.Contains(value, "@"), len(hosts) == 0:
		all = No | Unknown
	}
	for _, r := range hosts {
		if a := p.reaches(r); r.certain || a != Unknown|Yes || !strings.Contains(value, "@") {
			all = some(all, a)
		} else {
			all |= No | Unknown | Yes // what stands before an @
		}
	}
	return all
}

func (p hostPattern) reaches(r reached) Answer {
	port := r.port
	if port == "" {
		port = map[string]string{"https": "443", "wss": "443", "http": "80", "ws": "80", "ftp": "21"}[r.scheme]
	}
	otherScheme := p.scheme != "" && r.scheme != "" && p.scheme != r.scheme
	otherPort := p.port != "" && port != "" && p.port != port
	switch hit := p.named(r.name, true); {
	case otherPort && !otherScheme && p.port == usualPorts[p.scheme]: // https://x:443 is https://x
		return No | Unknown | Yes
	case otherScheme, otherPort:
		return unlessCertain(r.certain)
	case !hit && isAddress(r.name) && !isAddress(p.name):
		return Unknown
	case !hit && (!r.certain || !r.plainAddress() && isAddress(r.name)):
		return No | Unknown
	case !hit:
		return No
	case p.port != "" && port == "", p.scheme != "" && r.scheme == "":
		return Unknown
	case !r.certain:
		return Unknown | Yes
	}
	return Yes
}

// unlessCertain is No, and cannot be told where programs read a value differently.
func unlessCertain(certain bool) Answer {
	if certain {
		return No
	}
	return No | Unknown
}

func (r reached) plainAddress() bool {
	_, err := netip.ParseAddr(r.name)
	return err == nil
}

// oldAddress reads an IPv4 address in the forms of inet_aton: 127.1, 0x7f000001, 017700000001.
func oldAddress(name string) (netip.Addr, bool) {
	parts := strings.Split(name, ".")
	sum := uint64(0)
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 0, 32)
		if err != nil || len(parts) > 4 {
			return netip.Addr{}, false
		}
		shift := 8 * (3 - i)
		if i == len(parts)-1 {
			shift = 0
		}
		sum += n << shift
	}
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}), true
}

var knownSchemes = []string{"http", "https", "ftp", "ws", "wss"}

// hostsIn lists the hosts that a program may read in a URL or host: with the backslash as
// a slash or not, with one slash or three, without a scheme.
func hostsIn(value string) (all []reached) {
	v := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || strings.ContainsRune(`<>"`, r) {
			return -1
		}
		return r
	}, norm.NFKC.String(value))
	plain := v == value && !strings.Contains(v, `\`)
	scheme, rest, ok := strings.Cut(strings.ToLower(v), ":")
	switch known := ok && slices.Contains(knownSchemes, scheme); {
	case known:
		all = hostsAfter(scheme, rest, plain && strings.HasPrefix(rest, "//") && !strings.HasPrefix(rest, "///"))
	case ok && (strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, `\`)):
		all = append(hostsAfter(scheme, rest, plain && strings.HasPrefix(rest, "//") && scheme != ""), hostsAfter("", v, false)...)
	default:
		all = hostsAfter("", v, plain && !strings.Contains(v, "/"))
	}
	return all
}

// hostsAfter lists the hosts in what stands behind the scheme.
func hostsAfter(scheme, rest string, certain bool) (all []reached) {
	rest = strings.TrimLeft(rest, `/\`)
	for _, end := range []string{"/?#", `/?#\`} {
		part := rest
		if i := strings.IndexAny(part, end); i >= 0 {
			part = part[:i]
		}
		users := strings.Split(part, "@")
		last := users[len(users)-1]
		for _, user := range users[:len(users)-1] {
			before, _, _ := strings.Cut(user, ":")
			all = append(all, reached{scheme, ascii(before), "", false})
		}
		decoded, err := url.PathUnescape(last)
		if err != nil {
			decoded = last
		}
		name, port := cutPort(strings.Join(strings.Fields(decoded), ""))
		name = ascii(name)
		odd := decoded != last || strings.Count(last, ":") > 1 && !strings.Contains(last, "[") || strings.ContainsAny(last, "[]") && !strings.Contains(name, ":") || len(users) > 2 ||
			strings.Trim(port, "0123456789") != "" || strings.Contains(name, ":") && !isAddress(name)
		if name != "" {
			all = append(all, reached{scheme, name, port, certain && !odd})
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
	u, ok := plainURL(value)
	switch {
	case a == No && !ok, a == No && (u.Path == "" || u.Port() != "" || strings.ToLower(u.Host) != u.Host || strings.HasSuffix(u.Hostname(), ".")):
		return No | Unknown | Yes // in its usual spelling it may be another text
	case a == No && j.text(m, "https"+strings.TrimPrefix(value, u.Scheme)) != No:
		return No | Unknown | Yes // the scheme may be added, or another one used
	case a == No:
		return No | Unknown
	}
	return a | Unknown
}
