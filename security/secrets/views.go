package secrets

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"iter"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// leaf is one string, number or name of a request.
type leaf struct {
	where  string // "request_data.body"
	depth  int    // below request_data, 0 for other texts
	first  bool   // it is the member or element 0
	top    string // the member of request_data that holds it
	name   string // the last member, "" inside a list
	key    bool   // it is a member's name
	number bool
	text   string   // cleaned
	shown  string   // verbatim
	mask   maskMode // where it may be masked
	prose  bool     // it does not run
	place  bool     // its type says where the request goes
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
	k, _ := slices.BinarySearchFunc(v.parts, start+1, func(p part, at int) int { return cmp.Compare(p.end, at) })
	begin, last := 0, 0
	if k > 0 {
		last = v.parts[k-1].end
	}
	for _, p := range v.parts[k:] {
		if p.end != last {
			begin, last = last, p.end
		}
		if begin >= end {
			break
		}
		in = append(in, p.leaf)
	}
	return in
}

const (
	maxDepth  = 3       // of nested encodings
	edge      = 256     // bytes of each neighbor that are searched for a split secret
	maxViewed = 4 << 20 // bytes in total; more is reported as a finding
)

// plainViews are the readings of the leaves without decoding.
func plainViews(leaves []leaf) []view {
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
	return all
}

// views yields all readings of the leaves. Decoded ones are computed when they are
// needed.
func views(leaves []leaf) iter.Seq2[int, view] {
	return func(yield func(int, view) bool) {
		level := plainViews(leaves)
		n := 0
		for depth := 0; len(level) > 0; depth++ {
			var next []view
			for _, v := range level {
				if !yield(n, v) {
					return
				}
				if n++; depth < maxDepth {
					next = append(next, decoded(v)...)
				}
			}
			level = next
		}
	}
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

// decoded are the views of v with encoded text decoded in place, one view for each
// encoding.
func decoded(v view) []view {
	var out []view
	if strings.ContainsRune(v.text, '%') {
		out = v.replaced(out, percentRuns, func(s string) (string, bool) {
			t, err := url.PathUnescape(s)
			return t, err == nil && t != s
		})
	}
	out = v.replaced(out, base64Runs, fromBase64)
	return v.replaced(out, hexRuns, func(s string) (string, bool) {
		b, err := hex.DecodeString(s)
		return string(b), err == nil && readable(b)
	})
}

// byteSet says which bytes are in a set.
type byteSet [256]bool

func newByteSet(in func(c byte) bool) *byteSet {
	var set byteSet
	for c := range set {
		set[c] = in(byte(c))
	}
	return &set
}

var (
	base64Bytes = newByteSet(func(c byte) bool { return isNamed(c) && c != '=' || c == '/' })
	hexBytes    = newByteSet(isHex)
	printable   = newByteSet(func(c byte) bool { return '!' <= c && c <= '~' })
	tokenBytes  = newByteSet(isToken)
)

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'F' || 'a' <= c && c <= 'f'
}

// runs yields the longest parts of text with only bytes of the set.
func (set *byteSet) runs(text string) func(yield func(start, end int) bool) {
	return func(yield func(start, end int) bool) {
		for at := 0; at < len(text); at++ {
			start := at
			for at < len(text) && set[text[at]] {
				at++
			}
			if at > start && !yield(start, at) {
				return
			}
		}
	}
}

// base64Runs are the places of text that may be base64: at least 14 characters and
// their padding.
func base64Runs(text string) (all [][2]int) {
	for start, end := range base64Bytes.runs(text) {
		if end-start >= minRun {
			padding := min(2, len(text)-end)
			for padding > 0 && text[end:end+padding] != "=="[:padding] {
				padding--
			}
			all = append(all, [2]int{start, end + padding})
		}
	}
	return all
}

// hexRuns are the places of text that may be hexadecimal: at least ten pairs.
func hexRuns(text string) (all [][2]int) {
	for start, end := range hexBytes.runs(text) {
		if end-start >= 20 {
			all = append(all, [2]int{start, end - (end-start)%2})
		}
	}
	return all
}

// percentRuns are the words of text that have percent encoding.
func percentRuns(text string) (all [][2]int) {
	for start, end := range printable.runs(text) {
		if isPercentEncoded(text[start:end]) {
			all = append(all, [2]int{start, end})
		}
	}
	return all
}

func isPercentEncoded(word string) bool {
	for i := 0; i+2 < len(word); i++ {
		if word[i] == '%' && isHex(word[i+1]) && isHex(word[i+2]) {
			return true
		}
	}
	return false
}

// replaced adds the view of v with all matches decoded, if any could be decoded.
func (v *view) replaced(to []view, runs func(string) [][2]int, decode func(string) (string, bool)) []view {
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
	for _, m := range runs(v.text) {
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
