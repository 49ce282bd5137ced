package web

// Words are the texts that the code chooses.
type Words = words

// Files are the templates and the static files.
var Files = files

// SessionRoutes lists the patterns of the routes that need a session.
func SessionRoutes() (patterns []string) {
	for _, r := range sessionRoutes() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}
