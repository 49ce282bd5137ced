package secrets

import (
	"cmp"
	"compress/gzip"
	"iter"
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
	alone  bool     // it is no part of a secret that is split over several
	before string   // in an argv: the element before it
}

// view is a text to search, with the leaves of its parts.
type view struct {
	text     string
	parts    []part
	reversed bool
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

func (b *builder) view() view { return view{text: b.String(), parts: b.parts} }

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
	neighbors = 3       // of the values before, with each of which a value is joined
	maxApart  = 64      // values; after so many, only with the last one
	edge      = 256     // bytes of each neighbor that are searched for a split secret
	maxViewed = 4 << 20 // bytes in total; more is reported as a finding
)

// plainViews are the readings of the leaves without decoding.
func plainViews(leaves []leaf) []view {
	var context, backward builder
	for i, l := range leaves {
		if l.name != "" {
			context.add(i, l.name, `: "`, l.text, "\"\n")
		} else {
			context.add(i, `"`, l.text, "\"\n")
		}
		backward.add(i, `"`, backwards(l.text), "\"\n")
	}
	reversed := backward.view()
	reversed.reversed = true
	return append([]view{context.view(), reversed}, append(joinedViews(leaves, false), joinedViews(leaves, true)...)...)
}

// joinedViews are the values in their order, or the names, and each with its neighbors, in both
// orders.
func joinedViews(leaves []leaf, keys bool) []view {
	var joined, pairs builder
	var before []int
	for i, l := range leaves {
		if l.key != keys || l.alone {
			continue
		}
		joined.add(i, l.text)
		near := neighbors
		if len(before) > maxApart {
			near = 1
		}
		for _, k := range before[max(0, len(before)-near):] {
			pairs.add(k, tail(leaves[k].text))
			pairs.add(i, head(l.text), "\n")
			pairs.add(i, tail(l.text))
			pairs.add(k, head(leaves[k].text), "\n")
		}
		before = append(before, i)
	}
	if len(pairs.parts) == 0 {
		return nil
	}
	return []view{joined.view(), pairs.view()}
}

// backwards is s from its end, rune by rune.
func backwards(s string) string {
	b := make([]byte, len(s))
	for at := 0; at < len(s); {
		n := 1
		if s[at] >= utf8.RuneSelf {
			_, n = utf8.DecodeRuneInString(s[at:])
		}
		copy(b[len(s)-at-n:], s[at:at+n])
		at += n
	}
	return string(b)
}

// views yields all readings of the leaves. Decoded ones are computed when they are
// needed.
func views(leaves []leaf, d *decoder) iter.Seq2[int, view] {
	return func(yield func(int, view) bool) {
		level := plainViews(leaves)
		seen := map[string]bool{}
		n := 0
		for depth := 0; len(level) > 0; depth++ {
			var next []view
			for _, v := range level {
				if !yield(n, v) {
					return
				}
				n++
				if depth == maxDepth || v.reversed {
					continue
				}
				for _, w := range d.decoded(v) {
					if !seen[w.text] {
						seen[w.text] = true
						next = append(next, w)
					}
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
		case ' ' <= r && r < 0x7f || r == '\n' || r == '\t' || r == '\r':
			return r
		case unicode.In(r, unicode.Cf, unicode.Cc, unicode.Mn, unicode.Me, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
			return -1
		case r == '\u2800' || r == '\u3164' || r == '\uffa0': // blanks in the category of letters
			return -1
		}
		return r
	}, s))
}

// decoder decodes the texts of one scan.
type decoder struct {
	gzip     gzip.Reader
	inflated int // bytes
}

// decoded are the views of v with encoded text decoded in place: one with what is written with
// escapes, one with base64, one with hexadecimal.
func (d *decoder) decoded(v view) []view {
	var out []view
	if strings.ContainsAny(v.text, `%&\`) {
		out = v.replaced(out, escapedRuns, unescape)
	}
	out = v.replaced(out, wrapped(base64Runs), d.fromBase64)
	return v.replaced(out, wrapped(hexRuns), d.fromHex)
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

// wrapped merges the places of encoded text that are lines of one.
func wrapped(runs func(string) [][2]int) func(string) [][2]int {
	return func(text string) [][2]int {
		all := runs(text)
		merged := all[:0]
		for _, run := range all {
			if n := len(merged); n > 0 && run[0]-merged[n-1][1] <= maxIndent && isLineBreak(text[merged[n-1][1]:run[0]]) {
				merged[n-1][1] = run[1]
			} else {
				merged = append(merged, run)
			}
		}
		return merged
	}
}

const maxIndent = 10 // bytes of a line break and of the spaces after it

func isLineBreak(s string) bool {
	return strings.ContainsRune(s, '\n') && strings.Trim(s, " \t\r\n") == ""
}

// escapedRuns are the words of text that have an escape.
func escapedRuns(text string) (all [][2]int) {
	for start, end := range printable.runs(text) {
		if word := text[start:end]; strings.ContainsAny(word, `%&\`) && escape().MatchString(word) {
			all = append(all, [2]int{start, end})
		}
	}
	return all
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
