package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/permesso-dev/permesso/approval/facts"
)

// placePattern is a rule's pattern of hosts: good.com, *.good.com, http://good.com:8080.
type placePattern struct {
	scheme, host, port string // port: "" for the usual one of the scheme
	below, isAddress   bool
}

func parsePlace(text string) (*placePattern, error) {
	bad := fmt.Errorf(`%q must be a host, such as good.com, *.good.com, http://good.com or good.com:8443, without a path`, text)
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "", text
	}
	rest, below := strings.CutPrefix(strings.TrimSuffix(rest, "/"), "*.")
	if found && scheme != "https" && scheme != "http" || strings.ContainsAny(rest, "*?/#@") {
		return nil, bad
	}
	p := facts.PlaceOf(withDefault(scheme) + "://" + rest)
	if p.Odd || p.Host == "" || p.User || below && p.IP {
		return nil, bad
	}
	host := hostName(p.Host)
	_, isIP := facts.ParseIP(host)
	return &placePattern{scheme, host, p.Port, below, isIP}, nil
}

func withDefault(scheme string) string {
	if scheme == "" {
		return "https"
	}
	return scheme
}

// hostName is a name for comparison: lower case, without the final dot; an address in its
// usual form.
func hostName(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if a, ok := facts.ParseIP(host); ok {
		return a.Unmap().String()
	}
	return host
}

// namesWide also counts the domain itself as below it.
func (p *placePattern) namesWide(host string) bool { return p.names(host) || host == p.host }

func (p *placePattern) names(host string) bool {
	if p.below {
		rest, ok := strings.CutSuffix(host, p.host)
		return ok && strings.HasSuffix(rest, ".")
	}
	return host == p.host
}

// matchPlace compares one URL or host with patterns.
func matchPlace(is []pattern, t *text, isURL bool, how reading) matchResult {
	if how == wide {
		return matchPlaceWide(is, t)
	}
	if !t.looked {
		t.looked = true
		t.host, t.place = t.plainHost(isURL)
	}
	if t.host == "" {
		return unknown
	}
	for i := range is {
		p := is[i].place
		if p != nil && p.names(t.host) && t.place.Port == p.port && t.place.Scheme == withDefault(p.scheme) && (isURL || p.scheme == "") {
			return yes
		}
	}
	return no
}

// plainHost is the host of a URL, or a host itself, "" if programs may read another one.
func (t *text) plainHost(isURL bool) (string, *facts.Place) {
	if strings.ContainsFunc(t.as, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\\' }) ||
		!isURL && strings.Contains(t.as, "/") {
		return "", nil
	}
	var v *facts.Place
	if isURL {
		v = t.placeOf()
	} else {
		p := facts.PlaceOf("https://" + t.as)
		v = &p
	}
	host := hostName(v.Host)
	_, isIP := facts.ParseIP(host)
	switch {
	case v.Odd || v.User || host == "" || v.Scheme != "https" && v.Scheme != "http":
	case v.IP && !isIP: // a number that some programs take for an address
	case slices.Contains(strings.Split(host, "."), ""), !v.IP && strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "":
	case v.Written != "" && strings.ToLower(v.Written) != v.Unicode: // it changes when it is looked up
	default:
		return host, v
	}
	return "", v
}

// matchPlaceWide looks for a host in everything that a program may take for one.
func matchPlaceWide(is []pattern, t *text) matchResult {
	if t.authorities == nil {
		t.authorities = authorities(t.as)
	}
	best := no
	if t.oddPlace() {
		best = unknown
	}
	for i := range t.authorities {
		for j := range is {
			if is[j].place == nil {
				best = max(best, unknown)
				continue
			}
			best = max(best, is[j].place.matchesWide(&t.authorities[i]))
		}
	}
	return best
}

// urls are the addresses that programs may read in a text, in one form: without user, usual
// port and final dot.
func (t *text) urls() (all []string) {
	if t.authorities == nil {
		t.authorities = authorities(t.as)
	}
	_, rest, _ := strings.Cut(t.as, "://")
	way := "/"
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		way = rest[i:]
	}
	for _, a := range t.authorities {
		for _, scheme := range []string{"https", "http"} {
			all = append(all, scheme+"://"+a.host+way)
		}
	}
	return all
}

// oddPlace says whether programs may read different hosts in it.
func (t *text) oddPlace() bool {
	if !t.oddRead {
		var p facts.Place
		if strings.Contains(t.as, "://") {
			p = *t.placeOf()
		} else {
			p = facts.HostPlace(t.as)
		}
		_, isIP := facts.ParseIP(hostName(p.Host))
		t.oddRead, t.odd = true, p.Odd || p.User || p.Host == "" || p.IP && !isIP
	}
	return t.odd
}

func (t *text) placeOf() *facts.Place {
	if t.url == nil {
		p := facts.PlaceOf(t.as)
		t.url = &p
	}
	return t.url
}

// authority is what a program may take for the host of a URL.
type authority struct {
	scheme, host, port string // "": not stated
	isAddress          bool
}

func (p *placePattern) matchesWide(a *authority) matchResult {
	port := a.port
	if a.scheme == "http" && port == "80" || a.scheme == "https" && port == "443" {
		port = ""
	}
	switch {
	case p.scheme != "" && a.scheme != "" && p.scheme != a.scheme, p.port != "" && a.scheme+a.port != "" && p.port != port:
		return no
	case p.namesWide(a.host) && a.scheme == "" && (p.scheme != "" || p.port != "" && a.port == ""):
		return unknown
	case p.namesWide(a.host):
		return yes
	case a.isAddress && !p.isAddress:
		return unknown
	}
	return no
}

// plainAuthority is a host in lower case, and what all programs take for a path.
var plainAuthority = regexp.MustCompile(`^[a-z0-9.-]+[a-z](:[0-9]+)?(/[A-Za-z0-9/._~?&=+,-]*)?$`)

var schemes = regexp.MustCompile(`^(https?|wss?|ftps?|file|sftp|ssh|git)(\+[a-z]+)?:[/\\]*`)

// authorities lists the places that programs may read in a text, each in lower case and
// without a final dot.
func authorities(text string) (all []authority) {
	if scheme, rest, ok := strings.Cut(text, "://"); ok && (scheme == "https" || scheme == "http") && plainAuthority.MatchString(rest) {
		host, _, _ := strings.Cut(rest, "/")
		return []authority{authorityOf(scheme, host)}
	}
	var texts []string
	for _, s := range spellings(norm.NFKC.String(text)) {
		s = strings.ToLower(strings.Map(func(r rune) rune {
			if unicode.IsControl(r) || unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) {
				return -1
			}
			return r
		}, s))
		texts = append(texts, s, strings.ReplaceAll(s, `\`, "/"))
	}
	for _, s := range texts {
		scheme := ""
		if m := schemes.FindStringSubmatch(s); m != nil {
			scheme, s = m[1], s[len(m[0]):]
		}
		s = strings.TrimLeft(s, `/\`)
		for _, ends := range []string{"/?#", "/?#\\", "/"} {
			rest := s
			if i := strings.IndexAny(rest, ends); i >= 0 {
				rest = rest[:i]
			}
			for part := range strings.SplitSeq(rest, "@") {
				all = append(all, authorityOf(scheme, part))
			}
		}
	}
	return all
}

func authorityOf(scheme, s string) authority {
	a := authority{scheme: scheme, host: s}
	if rest, ok := strings.CutPrefix(s, "["); ok {
		var suffix string
		a.host, suffix, _ = strings.Cut(rest, "]")
		a.port = strings.TrimPrefix(suffix, ":")
	} else if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.Trim(s[i+1:], "0123456789") == "" && strings.Count(s, ":") == 1 {
		a.host, a.port = s[:i], strings.TrimLeft(s[i+1:], "0")
	}
	if decoded, err := url.PathUnescape(a.host); err == nil {
		a.host = decoded
	}
	a.host = strings.TrimRight(a.host, ".")
	if _, ok := addressOf(a.host); !ok {
		if strings.Trim(a.host, "abcdefghijklmnopqrstuvwxyz0123456789.-") == "" {
			return a // most are in that form already
		}
		if ascii := facts.HostPlace(a.host).Host; ascii != "" {
			a.host = strings.TrimRight(strings.ToLower(ascii), ".")
		}
	}
	if ip, ok := addressOf(a.host); ok { // also with dots of another script
		a.host, a.isAddress = ip.Unmap().String(), true
	}
	return a
}

// addressOf reads an address in any form that programs take for one: 127.1, 0x7f000001.
func addressOf(host string) (netip.Addr, bool) {
	if a, ok := facts.ParseIP(host); ok {
		return a, true
	}
	if host == "" || host[0] < '0' || host[0] > '9' {
		return netip.Addr{}, false
	}
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var sum uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 0, 64)
		if err != nil {
			n, err = strconv.ParseUint(part, 10, 64)
		}
		last := i == len(parts)-1
		most := uint64(0xff)
		if last {
			most = 1<<(8*(5-len(parts))) - 1
		}
		if err != nil || strings.Contains(part, "_") || n > most {
			return netip.Addr{}, false
		}
		if last {
			sum |= n
		} else {
			sum |= n << (8 * (3 - i))
		}
	}
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}), true
}

// parseRecipient reads a pattern of recipients: an address, @DOMAIN, or a name that is no
// address.
func parseRecipient(text string) (address facts.Recipient, ok bool) {
	if rest, isDomain := strings.CutPrefix(text, "@"); isDomain && strings.Contains(rest, ".") {
		r, _ := facts.Recipients("a@" + rest)
		return facts.Recipient{Domain: r[0].Domain}, len(r) == 1 && r[0].Bare() && !strings.ContainsAny(rest, "@*?")
	}
	r, _ := facts.Recipients(text)
	isAddress := len(r) == 1 && r[0].Bare()
	if !isAddress {
		return facts.Recipient{Text: text}, len(r) == 1 && !strings.ContainsAny(strings.TrimPrefix(text, "@"), "@*?<>") && strings.TrimSpace(text) == text
	}
	return r[0], !strings.ContainsAny(text, "*?")
}

// matchRecipients compares the recipients in one text with patterns.
func matchRecipients(is []pattern, t *text, how reading) matchResult {
	if t.recipients == nil {
		t.recipients = recipientsIn(t.as)
	}
	all := tally{how: how}
	for i := range t.recipients {
		all.add(matchRecipient(is, &t.recipients[i], how))
	}
	if how == narrow {
		return all.result()
	}
	if t.unquoted == nil {
		t.unquoted = unquoted(t.recipients)
	}
	for i := range t.unquoted {
		all.add(matchRecipient(is, &t.unquoted[i], how))
	}
	return all.result()
}

// recipientRead is a recipient. Programs may read a doubtful one differently.
type recipientRead struct {
	facts.Recipient
	doubtful bool
}

func recipientsIn(text string) []recipientRead {
	read, _ := facts.Recipients(text)
	all := make([]recipientRead, len(read))
	for i, r := range read {
		quoted := r.Address != "" && strings.ContainsAny(localOf(r.Address), "()\"") // some programs drop a part
		all[i] = recipientRead{r, quoted || r.Address == "" && (strings.ContainsAny(strings.TrimPrefix(r.Text, "@"), "@:;<>()\"") || r.Text == "")}
	}
	return all
}

// unquoted are the recipients that a program may read in another spelling: in lower case and
// other widths, without quotation marks and brackets around them.
func unquoted(recipients []recipientRead) []recipientRead {
	all := []recipientRead{}
	for _, r := range recipients {
		written := cmp.Or(r.Address, r.Text)
		if plain := strings.Trim(fold(written), "'\"`<> ."); plain != written {
			all = append(all, recipientsIn(plain)...)
		}
	}
	return all
}

func matchRecipient(is []pattern, r *recipientRead, how reading) matchResult {
	best := no
	if r.doubtful {
		best = unknown
	}
	for i := range is {
		switch p := &is[i]; {
		case p.recipient == nil:
			best = max(best, unknown)
		case how == narrow:
			best = max(best, yesIf(sameRecipient(p.recipient, &r.Recipient)))
		case r.Address == "" && p.recipient.Domain != "":
			best = max(best, unknown) // it may be another name of the address
		default:
			best = max(best, yesIf(sameRecipientWide(p.recipient, &r.Recipient)))
		}
	}
	return best
}

func sameRecipient(want, r *facts.Recipient) bool {
	switch {
	case r.Address == "" || want.Domain == "":
		return want.Domain == "" && r.Text == want.Text && r.Address == ""
	case !r.Bare() || r.Domain != want.Domain || strings.ContainsAny(r.Text, "%!`|'\"&;$\\{}<>()") || strings.ContainsFunc(r.Text, func(c rune) bool { return !unicode.IsPrint(c) }):
		return false
	}
	return want.Address == "" || localOf(r.Address) == localOf(want.Address)
}

func sameRecipientWide(want, r *facts.Recipient) bool {
	switch {
	case r.Address == "" || want.Domain == "":
		return want.Domain == "" && fold(r.Text) == fold(want.Text)
	case r.Domain != want.Domain:
		return false
	}
	box := func(address string) string {
		name, _, _ := strings.Cut(strings.Trim(fold(localOf(address)), "'\"`"), "+")
		return name
	}
	return want.Address == "" || box(r.Address) == box(want.Address)
}

func localOf(address string) string { return address[:strings.LastIndexByte(address, '@')] }
