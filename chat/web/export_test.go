package web

// Catalogs returns the texts of every language.
func Catalogs() map[string]*words {
	return map[string]*words{"en": english(), "it": italian()}
}

// SessionRoutes lists the patterns of the routes that need a session.
func SessionRoutes() (patterns []string) {
	for _, r := range sessionRoutes() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}
