package secrets

import "strings"

// keywords finds many words in a text in one pass. Upper case counts as lower case.
type keywords struct {
	words   []string
	byStart [][]int         // words by their first two letters; the first list is empty
	starts  [1 << 16]uint16 // two letters → index into byStart
}

func newKeywords(words []string) *keywords {
	k := &keywords{words: words, byStart: [][]int{nil}}
	for n, w := range words {
		at := &k.starts[int(w[0])<<8|int(w[1])]
		if *at == 0 {
			*at = uint16(len(k.byStart))
			k.byStart = append(k.byStart, nil)
		}
		k.byStart[*at] = append(k.byStart[*at], n)
	}
	return k
}

// in calls found with each word that occurs and its end.
func (k *keywords) in(text string, found func(word, end int)) {
	text = lower(text)
	for i := range max(0, len(text)-1) {
		for _, w := range k.byStart[k.starts[int(text[i])<<8|int(text[i+1])]] {
			if strings.HasPrefix(text[i:], k.words[w]) {
				found(w, i+len(k.words[w]))
			}
		}
	}
}

// lower changes only ASCII, so that places in the text stay the same.
func lower(text string) string {
	b := []byte(text)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
