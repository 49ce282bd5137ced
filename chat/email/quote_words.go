package email

import (
	"slices"
	"strings"
	"unicode"
)

// The words that mail programs write around a quotation are in words.txt. A missing
// language is still recognized if the quotation is marked, or by an address or a date.

var (
	angled      = pattern(`<[^\s@<>]+@[^\s@<>]+>`)
	clock       = pattern(`(?:^|\D)\d{1,2}[:.h]\d{2}(?:\D|$)`)
	addressEnd  = pattern(`\S@[^\s@]+\s*[:：]$`)
	year        = pattern(`(?:^|\D)(?:(?:19|20)\d\d|\d{1,2}[./-]\d{1,2}[./-]\d{2})(?:\D|$)|[年년]`)
	clockOrYear = pattern(`(?:^|\D)(?:\d{1,2}[:.h]\d{2}|(?:19|20)\d\d|\d{1,2}[./-]\d{1,2}[./-]\d{2})(?:\D|$)|[年月日년월일]`)
)

func beginsAttribution(norm string) bool {
	return hasPrefixOf(strings.TrimLeft(norm, "-–— "), words("attribution starts"))
}

func endsAttribution(norm string) bool {
	norm = strings.TrimRight(norm, " -–—")
	if strings.Count(norm, "(") > strings.Count(norm, ")") {
		return false // inside parentheses
	}
	return strings.HasSuffix(norm, ":") || strings.HasSuffix(norm, "：")
}

// namesAuthor says whether a text names an author: by a verb, an address, or both date and
// time, which occur in no other sentence that ends with a colon.
func namesAuthor(norm string) bool {
	return hasVerb(norm) || addressEnd().MatchString(norm) || angled().MatchString(norm) || year().MatchString(norm) && clock().MatchString(norm)
}

func hasVerb(norm string) bool { return containsOf(norm, words("attribution verbs")) }

// hasDateOrAddress says whether a text may contain a date or an address.
func hasDateOrAddress(norm string) bool {
	return strings.ContainsFunc(norm, func(r rune) bool { return r == '@' || unicode.IsDigit(r) })
}

func isNumeral(s string) bool {
	for _, r := range s {
		return unicode.IsDigit(r)
	}
	return false
}

// forwardMark says whether a complete line is such a mark, with or without a colon.
func forwardMark(norm string) bool {
	if len(norm) > maxCompared/2 || !hasPrefixOf(norm, words("forward marks")) {
		return false
	}
	return endsAttribution(norm) || slices.Contains(words("forward marks"), norm)
}

// mobileSignature says whether a line is such a signature and nothing else.
func mobileSignature(norm string) bool {
	if len(norm) > maxCompared/2 || strings.ContainsAny(norm, "?!") {
		return false
	}
	if containsOf(norm, words("mobile ends")) {
		return true
	}
	norm = strings.TrimLeft(norm, "-–—_ ")
	for _, s := range []string{"나의", "내", "来自", "通过", "从我的", "從我的"} {
		if strings.HasPrefix(norm, s) { // too short to decide alone
			return containsOf(norm, []string{"보냄", "전송", "发送", "傳送", "寄出", "iphone", "ipad", "手机", "outlook"})
		}
	}
	return hasPrefixOf(norm, words("mobile starts"))
}

func isLabel(word string) bool {
	return isFromLabel(word) || slices.Contains(words("other labels"), word)
}

func isFromLabel(word string) bool { return slices.Contains(words("from labels"), word) }

// fieldLabel is the text before the colon of a line that looks like a header field,
// and whether the label is known.
func fieldLabel(norm string) (label string, known bool) {
	i := strings.IndexAny(norm, ":：")
	if i <= 0 || i > 60 {
		return "", false
	}
	label = strings.Trim(norm[:i], " -–—|")
	value := strings.TrimLeft(norm[i:], ":： ")
	if strings.HasPrefix(value, "//") || strings.ContainsFunc(label, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsMark(r) && !strings.ContainsRune(" -'’.", r)
	}) {
		return "", false
	}
	if isLabel(label) {
		return label, true
	}
	if value == "" {
		return "", false
	}
	return label, false
}

// isInlineHeader says whether a line contains a complete header.
func isInlineHeader(norm string) bool {
	pieces := strings.FieldsFunc(norm, func(r rune) bool { return r == ':' || r == '：' })
	if len(pieces) < 4 {
		return false
	}
	found, from := map[string]bool{}, false
	for _, p := range pieces[:len(pieces)-1] {
		words := strings.Fields(p)
		for n := 1; n <= 2 && n <= len(words); n++ {
			if w := strings.Join(words[len(words)-n:], " "); isLabel(w) {
				found[w] = true
				from = from || isFromLabel(w)
			}
		}
	}
	return from && len(found) >= 3
}
