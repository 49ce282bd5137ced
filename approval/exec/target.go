package exec

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

var (
	hostPattern   = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	numberPattern = regexp.MustCompile(`^[0-9.]+$`)
)

var errHost = errors.New("write https://HOST/PATH or http://HOST/PATH, with scheme, host and port in full; a {field} may stand only in the path and in values of the query")

// checkTarget refuses a URL template whose scheme, host, path segments or
// names in the query could depend on the request, or that would be sent in
// another form than it is written in.
func checkTarget(template string) error {
	parts, err := parse(template)
	if err != nil {
		return errors.New("a placeholder is {field}, with a plain name")
	}
	base, rest, err := cutBase(parts[0].text)
	if err != nil {
		return err
	}
	if err := checkBase(base); err != nil {
		return err
	}
	for _, p := range parts {
		if strings.ContainsAny(p.text, "{}#") {
			return errors.New("braces and # must be percent-encoded, as %7B, %7D and %23")
		}
	}
	sample := base + fill(append([]part{{text: rest}}, parts[1:]...), "x")
	if u, err := url.Parse(sample); err != nil || base+u.RequestURI() != sample {
		return errors.New("not a URL in its final form: percent-encode what is not plain ASCII")
	}
	return checkPlaces(template[len(base):])
}

// cutBase parts scheme://host:port from what follows.
func cutBase(text string) (base, rest string, err error) {
	scheme, behind, ok := strings.Cut(text, "://")
	i := strings.IndexByte(behind, '/')
	if !ok || scheme != "https" && scheme != "http" || i <= 0 {
		return "", "", errHost
	}
	n := len(scheme) + len("://") + i
	return text[:n], text[n:], nil
}

func checkBase(base string) error {
	u, err := url.Parse(base)
	switch {
	case err == nil && u.User != nil:
		return errors.New("no user or password may stand in a URL; see secret_headers")
	case err != nil || u.Host == "" || u.Scheme+"://"+u.Host != base:
		return errors.New("host and port are not valid")
	case strings.HasSuffix(u.Host, ":"), u.Port() != "" && !validPort(u.Port()):
		return errors.New("the port is not valid")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		if a.Zone() != "" {
			return errors.New("an address with a zone is not supported")
		}
		return nil
	}
	if !hostPattern.MatchString(u.Hostname()) || numberPattern.MatchString(u.Hostname()) {
		return errors.New("the host must be a name in lower-case ASCII (xn-- for others), or an address")
	}
	return nil
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// checkPlaces looks at each segment of the path and each pair of the query. One
// value in each is enough, and with two nobody could tell from the outside
// where the first ends.
func checkPlaces(requestURI string) error {
	path, query, hasQuery := strings.Cut(requestURI, "?")
	segments := strings.Split(path, "/")[1:]
	for i, s := range segments {
		if s == "" && i < len(segments)-1 || isDots(s) {
			return errors.New("no segment of the path may be empty, . or .. here")
		}
		if strings.Count(s, "{") > 1 {
			return errors.New("one {field} for each segment of the path")
		}
	}
	if !hasQuery {
		return nil
	}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case strings.Contains(name, "{"):
			return errors.New("the request could choose the name of a parameter; write ?name={field}")
		case strings.Count(value, "{") > 1:
			return errors.New("one {field} for each value of the query")
		case strings.Contains(value, ";") && strings.Contains(value, "{"):
			return errors.New("no ; beside a {field}: some servers take it for &")
		}
	}
	return nil
}

// isDots says whether a server may take a segment for "here" or "one up".
func isDots(segment string) bool {
	s, err := url.PathUnescape(segment)
	return err != nil || s == "." || s == ".."
}

// expandTarget puts the request's arguments into a URL template. Every byte of
// a value that is no letter, digit, or one of -._~ is percent-encoded, so a
// value cannot leave its place. In the path a value may not even try: servers
// are known to decode before they split.
func expandTarget(template string, fields map[string]approval.Field) (*url.URL, error) {
	parts, err := parse(template)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	inQuery := false
	for _, p := range parts {
		if p.field == "" {
			inQuery = inQuery || strings.Contains(p.text, "?")
			b.WriteString(p.text)
			continue
		}
		v, err := value(p.field, fields)
		if err != nil {
			return nil, err
		}
		if !inQuery && (v == "" || strings.ContainsFunc(v, leavesSegment)) {
			return nil, fmt.Errorf(`argument %q stands in the path: it may not be empty nor hold "/", "\" or control characters`, p.field)
		}
		escapeTo(&b, v)
	}
	return parseTarget(template, b.String())
}

func leavesSegment(r rune) bool { return r == '/' || r == '\\' || r < ' ' || r >= 0x7f && r < 0xa0 }

// parseTarget takes an expanded URL apart and makes sure that what is sent is
// what was put together.
func parseTarget(template, expanded string) (*url.URL, error) {
	base, _, err := cutBase(template)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(expanded)
	if err != nil || base+u.RequestURI() != expanded || u.Scheme+"://"+u.Host != base {
		return nil, errors.New("the arguments do not fit into the URL")
	}
	for s := range strings.SplitSeq(u.EscapedPath(), "/") {
		if isDots(s) {
			return nil, errors.New(`an argument would make a segment of the path "." or ".."`)
		}
	}
	return u, nil
}

func escapeTo(b *strings.Builder, v string) {
	const hex = "0123456789ABCDEF"
	for _, c := range []byte(v) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
}

// fill puts the same text into every placeholder.
func fill(parts []part, with string) string {
	var b strings.Builder
	for _, p := range parts {
		if p.field != "" {
			b.WriteString(with)
			continue
		}
		b.WriteString(p.text)
	}
	return b.String()
}

// parseBody takes a JSON template apart. Braces that hold no plain name are
// JSON's own.
func parseBody(template string) []part {
	var parts []part
	text := 0 // where the literal text began
	for i := 0; i < len(template); i++ {
		if template[i] != '{' {
			continue
		}
		name, _, closed := strings.Cut(template[i+1:], "}")
		if !closed || !plainName(name) {
			continue
		}
		if i > text {
			parts = append(parts, part{text: template[text:i]})
		}
		parts = append(parts, part{field: name})
		i += len(name) + 1
		text = i + 1
	}
	if text < len(template) {
		parts = append(parts, part{text: template[text:]})
	}
	return parts
}

// checkBody demands a template that is JSON whatever values come in. A string
// in the place of a placeholder shows one inside quotation marks, a number one
// that names a member.
func checkBody(template string) error {
	parts := parseBody(template)
	if !isJSON([]byte(fill(parts, "null"))) {
		return errors.New(`not JSON with {field} in the place of whole values, as in {"text":{text}}`)
	}
	if !isJSON([]byte(fill(parts, `""`))) || !isJSON([]byte(fill(parts, "0"))) {
		return errors.New(`a {field} stands for a whole JSON value: write it without quotation marks, and not as a name`)
	}
	return nil
}

func isJSON(b []byte) bool { return approval.CheckDepth(b) == nil && approval.Raw(b).IsValid() }

// expandBody puts each argument's JSON into the template, byte for byte as it
// came: no number is rounded, no string rewritten.
func expandBody(template string, fields map[string]approval.Field) ([]byte, error) {
	var b []byte
	for _, p := range parseBody(template) {
		if p.field == "" {
			b = append(b, p.text...)
			continue
		}
		f, ok := fields[p.field]
		if !ok {
			return nil, fmt.Errorf("argument %q is missing", p.field)
		}
		b = append(b, f.Value...)
	}
	if !isJSON(b) {
		return nil, errors.New("the arguments do not fit into the body: nested too deeply")
	}
	return b, nil
}
