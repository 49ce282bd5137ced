package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// leaf is one string, number or name of a request.
type leaf struct {
	where  string // "request_data.body"
	path   string // in request_data, as a JSON pointer
	top    string // the member of request_data that holds it
	name   string // the last member, "" inside a list
	key    bool   // it is a member's name
	number bool
	text   string   // cleaned
	shown  string   // verbatim
	mask   maskMode // where it may be masked
	prose  bool     // it does not run
	before string   // in an argv: the element before it
}

// view is a text to search, with the leaves of its parts.
type view struct {
	text  string
	parts []part
}

type part struct {
	end  int // of the part, in the view's text
	leaf int
}

type builder struct {
	strings.Builder
	parts []part
}

func (b *builder) add(leaf int, texts ...string) {
	for _, t := range texts {
		b.WriteString(t)
	}
	b.parts = append(b.parts, part{b.Len(), leaf})
}

func (b *builder) view() view { return view{b.String(), b.parts} }

// leavesIn are the leaves of the bytes start to end. Parts with the same end share
// the text that was decoded from all of them.
func (v *view) leavesIn(start, end int) []int {
	var in []int
	begin, last := 0, 0
	for _, p := range v.parts {
		if p.end != last {
			begin, last = last, p.end
		}
		if begin < end && p.end > start {
			in = append(in, p.leaf)
		}
	}
	return in
}

const (
	maxDepth  = 3       // of nested encodings
	edge      = 256     // bytes of each neighbor that are searched for a split secret
	maxViewed = 4 << 20 // bytes in total; more is reported as a finding
)

// views are all readings of the leaves.
func views(leaves []leaf) []view {
	var context builder
	for i, l := range leaves {
		if l.name != "" {
			context.add(i, l.name, `: "`, l.text, "\"\n")
		} else {
			context.add(i, `"`, l.text, "\"\n")
		}
	}
	all := []view{context.view()}
	for _, keys := range []bool{false, true} {
		var joined, pairs builder
		last, n := 0, 0
		for i, l := range leaves {
			if l.key != keys {
				continue
			}
			joined.add(i, l.text)
			if n++; n > 1 {
				before := leaves[last].text
				pairs.add(last, tail(before))
				pairs.add(i, head(l.text), "\n")
				pairs.add(i, tail(l.text))
				pairs.add(last, head(before), "\n")
			}
			last = i
		}
		if n > 1 {
			all = append(all, joined.view(), pairs.view())
		}
	}
	for depth, from := 0, 0; depth < maxDepth; depth++ {
		to := len(all)
		for _, v := range all[from:to] {
			all = append(all, decoded(v)...)
		}
		from = to
	}
	return all
}

func head(s string) string { return s[:min(len(s), edge)] }
func tail(s string) string { return s[max(0, len(s)-edge):] }

// clean removes invisible characters and narrows look-alike forms.
func clean(s string) string {
	ascii := true
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf || s[i] < ' ' && s[i] != '\n' && s[i] != '\t' && s[i] != '\r' {
			ascii = false
			break
		}
	}
	if ascii {
		return s
	}
	return norm.NFKC.String(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return r
		case unicode.In(r, unicode.Cf, unicode.Cc, unicode.Mn, unicode.Me, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
			return -1
		case r == '\u2800' || r == '\u3164' || r == '\uffa0': // blanks in the category of letters
			return -1
		}
		return r
	}, s))
}

var (
	base64Run  = regexp.MustCompile(`[A-Za-z0-9+/_-]{14,}={0,2}`)
	hexRun     = regexp.MustCompile(`(?:[0-9A-Fa-f]{2}){10,}`)
	percentRun = regexp.MustCompile(`(?:[!-~]*%[0-9A-Fa-f]{2})+[!-~]*`)
)

// decoded are the views of v with encoded text decoded in place, one view for each
// encoding.
func decoded(v view) []view {
	var out []view
	if strings.ContainsRune(v.text, '%') {
		out = v.replaced(out, percentRun, func(s string) (string, bool) {
			t, err := url.PathUnescape(s)
			return t, err == nil && t != s
		})
	}
	out = v.replaced(out, base64Run, fromBase64)
	return v.replaced(out, hexRun, func(s string) (string, bool) {
		b, err := hex.DecodeString(s)
		return string(b), err == nil && readable(b)
	})
}

// replaced adds the view of v with all matches decoded, if any could be decoded.
func (v *view) replaced(to []view, x *regexp.Regexp, decode func(string) (string, bool)) []view {
	var b builder
	at, any := 0, false
	k := 0 // the part that contains at
	copyTo := func(end int) {
		for k < len(v.parts) && v.parts[k].end <= end {
			b.WriteString(v.text[at:v.parts[k].end])
			at = v.parts[k].end
			b.parts = append(b.parts, part{b.Len(), v.parts[k].leaf})
			k++
		}
		b.WriteString(v.text[at:end])
		at = end
	}
	for _, m := range x.FindAllStringIndex(v.text, -1) {
		text, ok := decode(v.text[m[0]:m[1]])
		if !ok {
			continue
		}
		any = true
		copyTo(m[0])
		b.WriteString(clean(text))
		// If several parts share an encoded text, each contains the complete text.
		for k < len(v.parts) && v.parts[k].end <= m[1] {
			b.parts = append(b.parts, part{b.Len(), v.parts[k].leaf})
			k++
		}
		if k < len(v.parts) && (k == 0 || v.parts[k-1].end < m[1]) {
			b.parts = append(b.parts, part{b.Len(), v.parts[k].leaf}) // it continues after the text
		}
		at = m[1]
	}
	if !any {
		return to
	}
	copyTo(len(v.text))
	return append(to, b.view())
}

func fromBase64(s string) (string, bool) {
	s = strings.TrimRight(s, "=")
	s = strings.NewReplacer("-", "+", "_", "/").Replace(s)
	s = s[:len(s)-len(s)%4+map[int]int{0: 0, 1: 0, 2: 2, 3: 3}[len(s)%4]]
	b, err := base64.RawStdEncoding.DecodeString(s)
	return string(b), err == nil && readable(b)
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
