package facts

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

var errHost = errors.New("write https://HOST/PATH or http://HOST/PATH with literal scheme, host and port; a {field} is allowed only in the path and in values of the query")

// CheckURL refuses a URL template whose scheme, host, path segments or query
// names could depend on the request, or that would be sent in another form than
// written.
func CheckURL(template string) error {
	parts, err := parse(template)
	if err != nil {
		return errors.New("a placeholder must be {field}, with letters, digits and _ only")
	}
	base, rest, err := cutBase(parts[0].Text)
	if err != nil {
		return err
	}
	if err := checkBase(base); err != nil {
		return err
	}
	for _, p := range parts {
		if strings.ContainsAny(p.Text, "{}#") {
			return errors.New("braces and # must be percent-encoded, as %7B, %7D and %23")
		}
	}
	sample := base + fillWith(append([]approval.Part{{Text: rest}}, parts[1:]...), "x")
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
	case strings.HasSuffix(u.Host, ":"), u.Port() != "" && !ValidPort(u.Port()):
		return errors.New("the port is not valid")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		if a.Zone() != "" {
			return errors.New("an address with a zone is not supported")
		}
		return nil
	}
	if !PlainHost(u.Hostname()) {
		return errors.New("host must be a name in lower-case ASCII (xn-- for others), or an address")
	}
	return nil
}

// PlainHost says whether s is a host name in lower-case ASCII that no resolver reads as
// an address.
func PlainHost(s string) bool {
	outside := func(more string) func(r rune) bool {
		return func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune(more, r)
		}
	}
	return s != "" && len(s) <= 253 && !strings.ContainsFunc(s, outside(".-")) && strings.Trim(s, ".-") == s &&
		strings.Trim(s, "0123456789.") != ""
}

// ValidPort says whether s is a port from 1 to 65535, without leading zeros.
func ValidPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// BaseURL is the scheme, host and port of a URL template that CheckURL accepts.
func BaseURL(template string) string {
	base, _, _ := cutBase(template)
	return base
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

// url fills a URL. Every byte of a value except letters, digits and -._~ is
// percent-encoded, so that a value stays in its place. In the path separators are
// refused, because some servers decode before they split.
func (f filler) url(template string) ([]approval.Part, approval.Reason) {
	parts, err := parse(template)
	if err != nil {
		return nil, badTemplate(err)
	}
	inQuery := false
	for i, p := range parts {
		if p.Arg == "" {
			inQuery = inQuery || strings.Contains(p.Text, "?")
			continue
		}
		v, why := f.value(p.Arg)
		if !why.IsZero() {
			return nil, why
		}
		if !inQuery && (v == "" || strings.ContainsFunc(v, leavesSegment)) {
			return nil, f.unfit(p.Arg, "fit_segment")
		}
		parts[i].Text = percentEncoded(v)
	}
	return parts, f.checkURL(template, parts)
}

func leavesSegment(r rune) bool { return r == '/' || r == '\\' || r < ' ' || r >= 0x7f && r < 0xa0 }

// checkURL checks that a filled URL is sent exactly as filled.
func (f filler) checkURL(template string, parts []approval.Part) approval.Reason {
	base, _, err := cutBase(template)
	if err != nil {
		return badTemplate(err)
	}
	filled, suspect := Join(parts), append(namesOf(parts), "")[0]
	u, err := url.Parse(filled)
	if err != nil || base+u.RequestURI() != filled || u.Scheme+"://"+u.Host != base {
		return f.unfit(suspect, "fit_url")
	}
	if slices.ContainsFunc(strings.Split(u.EscapedPath(), "/"), isDots) {
		return f.unfit(f.dotted(parts), "fit_dots")
	}
	return approval.Reason{}
}

// dotted is the argument that makes a path segment "." or "..".
func (f filler) dotted(parts []approval.Part) (name string) {
	for _, p := range parts {
		if p.Arg != "" && strings.Trim(p.Text, ".") == "" {
			return p.Arg
		}
	}
	return name
}

func percentEncoded(v string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(v) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	return b.String()
}

// fillWith puts the same text into every placeholder.
func fillWith(parts []approval.Part, with string) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Arg != "" {
			b.WriteString(with)
			continue
		}
		b.WriteString(p.Text)
	}
	return b.String()
}

// CheckBody requires a template that is JSON for all values. Replacing placeholders
// by a string detects one inside quotation marks; by a number, one used as a name.
func CheckBody(template string) error {
	parts := parseText(template)
	if !isJSON([]byte(fillWith(parts, "null"))) {
		return errors.New(`not JSON with {field} as complete values, as in {"text":{text}}`)
	}
	if !isJSON([]byte(fillWith(parts, `""`))) || !isJSON([]byte(fillWith(parts, "0"))) {
		return errors.New(`a {field} must be a complete JSON value: write it without quotation marks, and not as a name`)
	}
	return nil
}

func isJSON(b []byte) bool {
	return codec.CheckDepth(b, codec.MaxDepth) == nil && approval.Raw(b).IsValid()
}

// body fills a JSON template with each argument's JSON, byte for byte: no number is
// rounded, no string rewritten.
func (f filler) body(template string) ([]approval.Part, approval.Reason) {
	parts := parseText(template)
	for i, p := range parts {
		if p.Arg == "" {
			continue
		}
		field, ok := f.fields[p.Arg]
		if !ok {
			return nil, f.unfit(p.Arg, "fit_missing")
		}
		parts[i].Text = string(field.Value)
	}
	if !isJSON([]byte(Join(parts))) {
		return nil, f.unfit(append(namesOf(parts), "")[0], "fit_deep")
	}
	return parts, approval.Reason{}
}
