package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"html"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// escape is a character of a text that is written in another way: percent encoding, an entity of
// HTML, or what begins with a backslash in a string of a program.
var (
	escape    = lazy(`%[0-9A-Fa-f]{2}|&(?:#[0-9]|#[xX][0-9A-Fa-f]|[a-z]{2,6};)|\\[xuUnrt"'/0-7]`)
	percent   = lazy(`%[0-9A-Fa-f]{2}`)
	backslash = lazy(`\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,6}\}|U[0-9A-Fa-f]{8}|[0-3][0-7]{2}|[nrt"'/\\])`)
)

// unescape decodes a word.
func unescape(s string) (string, bool) {
	t := s
	if i := strings.IndexByte(s, '='); i >= 0 && percent().MatchString(s) {
		t = s[:i] + strings.ReplaceAll(s[i:], "+", " ") // a query
	}
	t = percent().ReplaceAllStringFunc(t, func(x string) string { return number(x[1:], 16, true) })
	t = backslash().ReplaceAllStringFunc(html.UnescapeString(t), func(x string) string {
		switch x[1] {
		case 'x':
			return number(x[2:], 16, true)
		case 'u', 'U':
			return number(strings.Trim(x[2:], "{}"), 16, false)
		case 'n', 'r', 't':
			return map[byte]string{'n': "\n", 'r': "\r", 't': "\t"}[x[1]]
		case '"', '\'', '/', '\\':
			return x[1:]
		}
		return number(x[1:], 8, true)
	})
	return t, t != s
}

// number is the byte or the rune with a number.
func number(digits string, base int, isByte bool) string {
	n, err := strconv.ParseUint(digits, base, 32)
	switch {
	case err != nil:
		return ""
	case isByte:
		return string([]byte{byte(n)})
	}
	return string(rune(n))
}

// fromBase64 decodes lines of base64. If they are no text, each is decoded by itself, and if that is
// none either, each part of it between slashes.
func (d *decoder) fromBase64(s string) (string, bool) {
	if t, ok := d.text(base64Bytes4(s)); ok {
		return t, true
	}
	for _, sep := range []string{"\n", "/"} {
		if strings.Contains(s, sep) {
			return d.each(s, sep, d.fromBase64)
		}
	}
	return "", false
}

func (d *decoder) fromHex(s string) (string, bool) {
	b, err := hex.DecodeString(withoutSpace.Replace(s))
	if t, ok := d.text(b); ok && err == nil {
		return t, true
	}
	if strings.Contains(s, "\n") {
		return d.each(s, "\n", d.fromHex)
	}
	return "", false
}

// each decodes the parts of s that are long enough.
func (d *decoder) each(s, sep string, decode func(string) (string, bool)) (string, bool) {
	parts, any := strings.Split(s, sep), false
	for i, p := range parts {
		if len(strings.TrimSpace(p)) < minRun {
			continue
		}
		if t, ok := decode(p); ok {
			parts[i], any = t, true
		}
	}
	return strings.Join(parts, sep), any
}

var (
	withoutSpace = strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "")
	oneAlphabet  = strings.NewReplacer("-", "+", "_", "/")
)

// base64Bytes4 are the bytes of base64 in either alphabet, without padding or a single last
// character, nil if it is none.
func base64Bytes4(s string) []byte {
	s = oneAlphabet.Replace(strings.TrimRight(withoutSpace.Replace(s), "="))
	if len(s)%4 == 1 {
		s = s[:len(s)-1]
	}
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		return nil
	}
	return b
}

// text is what decoded bytes say, if they look like text: as they are, as UTF-16, or unpacked.
func (d *decoder) text(b []byte) (string, bool) {
	if len(b) > 18 && b[0] == 0x1f && b[1] == 0x8b {
		b = d.inflate(b)
	}
	if s, ok := fromUTF16(b); ok {
		b = []byte(s)
	}
	return string(b), readable(b)
}

// maxInflated bounds what is unpacked in one scan, in bytes. More is reported as a finding.
const maxInflated = maxViewed / 4

// inflate unpacks b, or as much of it as is whole.
func (d *decoder) inflate(b []byte) []byte {
	if d.gzip.Reset(bytes.NewReader(b)) != nil {
		return nil
	}
	out, _ := io.ReadAll(io.LimitReader(&d.gzip, int64(maxInflated-d.inflated+1)))
	d.inflated += len(out)
	return bytes.ReplaceAll(out, []byte{0}, nil)
}

// fromUTF16 decodes UTF-16 of a language with Latin letters, in either order.
func fromUTF16(b []byte) (string, bool) {
	if len(b) < 2*8 || len(b)%2 != 0 {
		return "", false
	}
	for high := range 2 {
		zero := 0
		units := make([]uint16, len(b)/2)
		for i := range units {
			units[i] = uint16(b[2*i+high])<<8 | uint16(b[2*i+1-high])
			if b[2*i+high] == 0 {
				zero++
			}
		}
		if 4*zero >= 3*len(units) {
			return string(utf16.Decode(units)), true
		}
	}
	return "", false
}

// readable says whether decoded bytes look like text. Random letters mostly do not
// decode to text.
func readable(b []byte) bool {
	if len(b) < 8 || !utf8.Valid(b) {
		return false
	}
	bad := 0
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' || c == 0x7f {
			bad++
		}
	}
	return bad*10 <= len(b)
}
