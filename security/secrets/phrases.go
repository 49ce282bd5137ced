package secrets

import (
	"crypto/sha256"
	_ "embed"
	"strings"
)

// seedWords are the 2,048 English words of BIP-39, in their order, MIT license beside them.
//
//go:embed seed_words.txt
var seedWords string

// seedNumbers are the words' numbers, of 11 bits.
var seedNumbers = func() map[string]int {
	all := map[string]int{}
	for i, w := range strings.Fields(seedWords) {
		all[w] = i
	}
	return all
}()

// What stands between two words of a phrase: spaces, punctuation, the number in a list.
const (
	maxGap    = 12 // bytes
	minPhrase = 12 // words
	maxPhrase = 24
)

var letterBytes = newByteSet(func(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' })

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
		if n := len(row); n > 0 && (start-row[n-1].end > maxGap || strings.Trim(text[row[n-1].end:start], " \t\r\n,.;:)\"'0123456789|-") != "") {
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
			n, known := seedNumbers[lower(text[row[i].start:row[i].end])]
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

// phraseAt is the number of words of the longest phrase at the start of row, 0 if there is none.
func phraseAt(row []seedWord) int {
	for n := min(len(row)/3*3, maxPhrase); n >= minPhrase; n -= 3 {
		if isPhrase(row[:n]) {
			return n
		}
	}
	return 0
}

// isPhrase compares the last bits of a phrase, one of 33, with the SHA-256 of those before.
func isPhrase(row []seedWord) bool {
	var bits [maxPhrase*11/8 + 1]byte
	for i, w := range row {
		for b := range 11 {
			if w.number>>(10-b)&1 != 0 {
				at := 11*i + b
				bits[at/8] |= 0x80 >> (at % 8)
			}
		}
	}
	entropy := len(row) * 4 / 3 // bytes
	check := len(row) / 3       // bits
	sum := sha256.Sum256(bits[:entropy])
	return bits[entropy]>>(8-check) == sum[0]>>(8-check)
}
