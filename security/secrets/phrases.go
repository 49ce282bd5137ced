package secrets

import (
	"crypto/sha256"
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// seedWords are the 2,048 English words of BIP-39, in their order, MIT license beside them.
//
//go:embed seed_words.txt
var seedWords string

// seedNumbers are the words' numbers, of 11 bits.
var seedNumbers = sync.OnceValue(func() map[string]int {
	all := map[string]int{}
	for i, w := range strings.Fields(seedWords) {
		all[w] = i
	}
	return all
})

// What stands between two words of a phrase: spaces, punctuation, the number in a list.
const (
	maxGap    = 12 // bytes
	minPhrase = 12 // words
	maxPhrase = 24
)

var (
	letterBytes = newByteSet(func(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' })
	gapBytes    = newByteSet(func(c byte) bool { return strings.IndexByte(" \t\r\n,.;:)\"'0123456789|-", c) >= 0 })
)

// are says whether all bytes of s are in the set.
func (set *byteSet) are(s string) bool {
	for i := range len(s) {
		if !set[s[i]] {
			return false
		}
	}
	return true
}

// seedWord is a word in a text.
type seedWord struct{ start, end, number int }

// findPhrases finds seed phrases: 12, 15, 18, 21 or 24 words of the list in a row, of which the last
// bits are right.
func findPhrases(text string, found func(place)) {
	var row []seedWord // words that may be on the list; numbers are looked up when there are enough
	flush := func() {
		if len(row) >= minPhrase {
			phrasesIn(text, row, found)
		}
		row = row[:0]
	}
	for start, end := range letterBytes.runs(text) {
		if n := len(row); n > 0 && (start-row[n-1].end > maxGap || !gapBytes.are(text[row[n-1].end:start])) {
			flush()
		}
		if end-start < 3 || end-start > 8 {
			flush()
			continue
		}
		row = append(row, seedWord{start, end, 0})
	}
	flush()
}

// phrasesIn searches a row of words for those of the list, and these for phrases.
func phrasesIn(text string, row []seedWord, found func(place)) {
	first := 0
	for i := 0; i <= len(row); i++ {
		if i < len(row) {
			n, known := seedNumbers()[lower(text[row[i].start:row[i].end])]
			if row[i].number = n; known {
				continue
			}
		}
		for from := first; from+minPhrase <= i; {
			n := phraseAt(row[from:i])
			if n == 0 {
				from++
				continue
			}
			found(place{row[from].start, row[from+n-1].end, row[from].start})
			from += n
		}
		first = i + 1
	}
}

// phraseAt is the number of words of the longest phrase at the start of row, 0 if there is none. The
// last bits of a phrase, one of 33, are the first ones of the SHA-256 of those before.
func phraseAt(row []seedWord) int {
	if !isVaried(row[:minPhrase]) {
		return 0
	}
	row = row[:min(len(row), maxPhrase)]
	var bits [maxPhrase*11/8 + 1]byte
	for i, w := range row {
		for b := range 11 {
			at := 11*i + b
			bits[at/8] |= byte(w.number>>(10-b)&1) << (7 - at%8)
		}
	}
	for n := len(row) / 3 * 3; n >= minPhrase; n -= 3 {
		entropy, rest := n*4/3, 8-n/3 // bytes of random bits; bits of the next byte that are no check
		if sum := sha256.Sum256(bits[:entropy]); bits[entropy]>>rest == sum[0]>>rest {
			return n
		}
	}
	return 0
}

// isVaried says whether words are not the same ones again and again, as those of a text may be.
func isVaried(row []seedWord) bool {
	different := 0
	for i, w := range row {
		if !slices.ContainsFunc(row[:i], func(before seedWord) bool { return before.number == w.number }) {
			different++
		}
	}
	return different > len(row)/2
}
