package config

import (
	"strings"

	"github.com/agext/levenshtein"
)

// nearest is the known word that s was probably meant to be, or "". A third of
// a word may be wrong, or two letters of a short one; or one of the two is a
// part of the other: timeout for approval_timeout, warning for warn.
func nearest(s string, known []string) string {
	const longest = 64
	if len(s) > longest {
		return ""
	}
	s = strings.ToLower(s)
	best, least := "", max(2, len(s)/3)+1
	for _, k := range known {
		d := levenshtein.Distance(s, strings.ToLower(k), nil)
		if d < least && d < len(k) && d < len(s) {
			best, least = k, d
		}
	}
	for _, k := range known {
		if best == "" && (partOf(s, k) || partOf(k, s)) {
			best = k
		}
	}
	return best
}

func partOf(part, word string) bool {
	return len(part) > 2 && (strings.HasPrefix(word, part) || strings.HasSuffix(word, "_"+part))
}

// didYouMean is the hint for s, or otherwise.
func didYouMean(s string, known []string, otherwise string) string {
	if n := nearest(s, known); n != "" {
		return "did you mean " + quote(n) + "?"
	}
	return otherwise
}
