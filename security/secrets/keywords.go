package secrets

// keywords finds many words in a text in one pass (Aho and Corasick, 1975). Upper
// case counts as lower case.
type keywords struct {
	class [256]uint8 // class of each letter in use; 0 for other bytes
	width int
	next  []int32 // state*width + class
	out   [][]int // words that end in a state
}

func newKeywords(words []string) *keywords {
	k := &keywords{width: 1}
	for _, w := range words {
		for i := range len(w) {
			if c := w[i]; k.class[c] == 0 {
				k.class[c] = uint8(k.width)
				k.width++
			}
		}
	}
	for c := byte('a'); c <= 'z'; c++ {
		k.class[c-'a'+'A'] = k.class[c]
	}
	k.add()
	for n, w := range words {
		s := int32(0)
		for i := range len(w) {
			at := int(s)*k.width + int(k.class[w[i]])
			if k.next[at] == 0 {
				k.next[at] = k.add()
			}
			s = k.next[at]
		}
		k.out[s] = append(k.out[s], n)
	}
	k.link()
	return k
}

func (k *keywords) add() int32 {
	k.next = append(k.next, make([]int32, k.width)...)
	k.out = append(k.out, nil)
	return int32(len(k.out) - 1)
}

// link adds the transitions after a mismatch: to the longest suffix of the text
// read so far that begins another word.
func (k *keywords) link() {
	fail := make([]int32, len(k.out))
	var queue []int32
	for c := range k.width {
		if s := k.next[c]; s != 0 {
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		k.out[s] = append(k.out[s], k.out[fail[s]]...)
		for c := range k.width {
			at := int(s)*k.width + c
			onFail := k.next[int(fail[s])*k.width+c]
			if t := k.next[at]; t != 0 {
				fail[t] = onFail
				queue = append(queue, t)
			} else {
				k.next[at] = onFail
			}
		}
	}
}

// in calls found with each word that occurs and its end, ordered by the end.
func (k *keywords) in(text string, found func(word, end int)) {
	s := int32(0)
	for i := range len(text) {
		s = k.next[int(s)*k.width+int(k.class[text[i]])]
		for _, w := range k.out[s] {
			found(w, i+1)
		}
	}
}
