package web

// Words are the texts of the pages.
type Words = words

// SessionRoutes lists the patterns of the routes that need a session.
func SessionRoutes() (patterns []string) {
	for _, r := range sessionRoutes() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}
