package web

// Catalogues are the words of every language, for their test.
func Catalogues() map[string]*words {
	return map[string]*words{"en": english(), "it": italian()}
}

// Inside lists the patterns of all routes that need a session.
func Inside() (patterns []string) {
	for _, r := range inside() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}
