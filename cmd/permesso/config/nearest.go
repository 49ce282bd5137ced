package config

import (
	"strings"

	"github.com/agext/levenshtein"
)

// nearest returns the known word that is most similar to s, or "". A third of the
// word may differ, or two letters of a short one. A part of a word also matches:
// timeout for approval_timeout, warning for warn.
func nearest(s string, known []string) string {
	const maxLen = 64
	if len(s) > maxLen {
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

// didYouMean returns a hint for s, or the fallback.
func didYouMean(s string, known []string, fallback string) string {
	if n := nearest(s, known); n != "" {
		return "did you mean " + quote(n) + "?"
	}
	return fallback
}
