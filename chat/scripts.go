package chat

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// span is a range of code points of one script.
type span struct {
	lo, hi rune
	script string
}

// scriptSpans lists the ranges in order. One search replaces one per each of the
// 160 tables: an agent may send a long text of many scripts.
var scriptSpans = sync.OnceValue(func() []span {
	var all []span
	add := func(lo, hi, stride rune, script string) {
		if stride == 1 {
			all = append(all, span{lo, hi, script})
			return
		}
		for r := lo; r <= hi; r += stride {
			all = append(all, span{r, r, script})
		}
	}
	for name, t := range unicode.Scripts {
		if name == "Common" || name == "Inherited" {
			continue
		}
		for _, r := range t.R16 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride), name)
		}
		for _, r := range t.R32 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride), name)
		}
	}
	slices.SortFunc(all, func(a, b span) int { return int(a.lo - b.lo) })
	return all
})

// scriptOf names r's script, "" for characters that all scripts share.
func scriptOf(r rune) string {
	if r < 0x80 {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return "Latin"
		}
		return ""
	}
	spans := scriptSpans()
	i, found := slices.BinarySearchFunc(spans, r, func(s span, r rune) int {
		switch {
		case r < s.lo:
			return 1
		case r > s.hi:
			return -1
		}
		return 0
	})
	if !found {
		return ""
	}
	return spans[i].script
}

const (
	maxFlagged = 3  // words named in one flag
	maxWord    = 40 // characters shown of each
)

// mixedWords finds words with letters of scripts that no language mixes, such as a
// Latin word with one Cyrillic letter. joined holds characters that do not end a
// word here: dots, for a host name.
func mixedWords(s, joined string) []string {
	var found []string
	words := strings.FieldsFuncSeq(s, func(r rune) bool {
		// An invisible character does not end a word: it would hide the mixture.
		return !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.Cf) && r != '_' && !strings.ContainsRune(joined, r)
	})
	for w := range words {
		scripts := scriptsOf(w)
		if len(scripts) < 2 {
			continue
		}
		word := Quote(clip(w, maxWord)) + " (" + strings.Join(scripts, ", ") + ")"
		if !slices.Contains(found, word) {
			found = append(found, word)
		}
		if len(found) == maxFlagged {
			break
		}
	}
	return found
}

// scriptsOf lists the scripts of a word in order of appearance. The scripts of
// Chinese, Japanese and Korean count as one, which may be mixed with Latin.
func scriptsOf(word string) []string {
	var scripts []string
	for _, r := range word {
		name := scriptOf(r)
		switch name {
		case "":
			continue
		case "Hiragana", "Katakana", "Bopomofo", "Hangul":
			name = "Han"
		}
		if !slices.Contains(scripts, name) {
			scripts = append(scripts, name)
		}
	}
	if len(scripts) == 2 && slices.Contains(scripts, "Han") && slices.Contains(scripts, "Latin") {
		return nil
	}
	return scripts
}

// rightToLeft says whether s has right-to-left letters. They also reorder the
// digits and signs beside them.
func rightToLeft(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		switch {
		case r < 0x590:
			return false
		case r <= 0x8FF, r >= 0xFB1D && r <= 0xFDFF, r >= 0xFE70 && r <= 0xFEFE:
			return true
		}
		return r >= 0x10800 && r <= 0x10FFF || r >= 0x1E800 && r <= 0x1EFFF
	})
}

// stringsIn returns the decoded strings of a JSON value, one per line: a letter may
// be written \u041d there.
func stringsIn(raw []byte) string {
	var b strings.Builder
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	for {
		tok, err := dec.Token()
		if err != nil {
			return b.String()
		}
		if s, ok := tok.(string); ok {
			b.WriteString(s)
			b.WriteByte('\n')
		}
	}
}

// clip keeps the first n characters of s.
func clip(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
