package exec

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// pattern compiles a regular expression on first use: most commands need none.
func pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

var (
	hostPattern   = pattern(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	numberPattern = pattern(`^[0-9.]+$`)
)

var errHost = errors.New("write https://HOST/PATH or http://HOST/PATH with literal scheme, host and port; a {field} is allowed only in the path and in values of the query")

// checkTarget refuses a URL template whose scheme, host, path segments or query
// names could depend on the request, or that would be sent in another form than
// written.
func checkTarget(template string) error {
	parts, err := parse(template)
	if err != nil {
		return errors.New("a placeholder must be {field}, with letters, digits and _ only")
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

// cutBase splits scheme://host:port from the rest.
func cutBase(text string) (base, rest string, err error) {
	scheme, authority, ok := strings.Cut(text, "://")
	i := strings.IndexByte(authority, '/')
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
		return errors.New("a URL must not contain a user or password; use a secret header")
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
	if !hostPattern().MatchString(u.Hostname()) || numberPattern().MatchString(u.Hostname()) {
		return errors.New("host must be a name in lower-case ASCII (xn-- for others), or an address")
	}
	return nil
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// checkPlaces checks each segment of the path and each pair of the query. More than
// one value in each would be ambiguous.
func checkPlaces(requestURI string) error {
	path, query, hasQuery := strings.Cut(requestURI, "?")
	segments := strings.Split(path, "/")[1:]
	for i, s := range segments {
		if s == "" && i < len(segments)-1 || isDots(s) {
			return errors.New("a path segment must not be empty or consist of dots")
		}
		if strings.Count(s, "{") > 1 {
			return errors.New("only one {field} is allowed in each path segment")
		}
	}
	if !hasQuery {
		return nil
	}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case strings.Contains(name, "{"):
			return errors.New("the request could choose the parameter's name; write ?name={field}")
		case strings.Count(value, "{") > 1:
			return errors.New("only one {field} is allowed in each query value")
		case strings.Contains(value, ";") && strings.Contains(value, "{"):
			return errors.New("; is not allowed next to a {field}: some servers treat it as &")
		}
	}
	return nil
}

// isDots says whether a server may read a segment as . or ..
func isDots(segment string) bool {
	s, err := url.PathUnescape(segment)
	return err != nil || s == "." || s == ".."
}

// expandTarget puts the request's arguments into a URL template. Every byte of a
// value except letters, digits and -._~ is percent-encoded, so that a value stays
// in its place. In the path separators are refused, because some servers decode
// before they split.
func expandTarget(template string, fields map[string]codec.Field) (*url.URL, error) {
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
			return nil, fmt.Errorf(`argument %q is used in the path: it must not be empty or contain "/", "\" or control characters`, p.field)
		}
		escapeTo(&b, v)
	}
	return parseTarget(template, b.String())
}

func leavesSegment(r rune) bool { return r == '/' || r == '\\' || r < ' ' || r >= 0x7f && r < 0xa0 }

// parseTarget parses an expanded URL and checks that it is sent exactly as
// expanded.
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
			return nil, errors.New(`an argument would make a path segment "." or ".."`)
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

var placeholder = pattern(`\{([A-Za-z0-9_]+)\}`)

// parseBody parses a JSON template. Braces without a plain name belong to JSON.
func parseBody(template string) []part {
	var parts []part
	text := 0 // start of the literal text
	for _, at := range placeholder().FindAllStringSubmatchIndex(template, -1) {
		if at[0] > text {
			parts = append(parts, part{text: template[text:at[0]]})
		}
		parts = append(parts, part{field: template[at[2]:at[3]]})
		text = at[1]
	}
	if text < len(template) {
		parts = append(parts, part{text: template[text:]})
	}
	return parts
}

// checkBody requires a template that is JSON for all values. Replacing placeholders
// by a string detects one inside quotation marks; by a number, one used as a name.
func checkBody(template string) error {
	parts := parseBody(template)
	if !isJSON([]byte(fill(parts, "null"))) {
		return errors.New(`not JSON with {field} as complete values, as in {"text":{text}}`)
	}
	if !isJSON([]byte(fill(parts, `""`))) || !isJSON([]byte(fill(parts, "0"))) {
		return errors.New(`a {field} must be a complete JSON value: write it without quotation marks, and not as a name`)
	}
	return nil
}

func isJSON(b []byte) bool {
	return codec.CheckDepth(b, codec.MaxDepth) == nil && approval.Raw(b).IsValid()
}

// expandBody puts each argument's JSON into the template, byte for byte: no number
// is rounded, no string rewritten.
func expandBody(template string, fields map[string]codec.Field) ([]byte, error) {
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
