package web

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

//go:embed templates static
var files embed.FS

// templates are parsed once. Tests find mistakes in them, so it panics.
var templates = sync.OnceValue(func() *template.Template {
	funcs := template.FuncMap{
		"withoutSign":  withoutSign,
		"sourceClass":  sourceClass,
		"changeClass":  changeClass,
		"format":       chat.Format,
		"itoa":         strconv.Itoa,
		"escape":       chat.Escape,
		"short":        approval.ShortID,
		"path":         pathOf,
		"duration":     formatDuration,
		"seconds":      secondsOrDash,
		"share":        share,
		"kib":          func(bytes int) int { return bytes >> 10 },
		"mib":          func(bytes int64) string { return strconv.FormatInt(bytes>>20, 10) },
		"inc":          func(i int) int { return i + 1 },
		"languageName": func(language string) string { return catalog(language).LanguageName },
	}
	return template.Must(template.New("").Option("missingkey=error").Funcs(funcs).ParseFS(files, "templates/*.html"))
})

// withoutSign removes the sign at the start of a card's head: the pages have their own.
func withoutSign(head string) string {
	return strings.TrimLeftFunc(head, func(r rune) bool { return !unicode.IsLetter(r) })
}

// sourceClass is the CSS class of evidence by its source. What a plan says begins with its own mark.
func sourceClass(k chat.Known) string {
	switch mark, _ := utf8.DecodeRuneInString(k.Text); {
	case strings.ContainsRune("✓✗?", mark):
		return "marked"
	case k.From == chat.FromProver:
		return "prover"
	}
	return "unknown"
}

// kinds are the types of static files, whatever the machine's own table says.
var kinds = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	".png": "image/png", ".webmanifest": "application/manifest+json",
}

// static serves a file that needs no session.
func static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	b, err := files.ReadFile("static/" + name)
	if kinds[path.Ext(name)] == "" || err != nil {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "private, no-cache")
	h.Set("ETag", `"`+approval.Digest(b)[:16]+`"`)
	h.Set("Content-Type", kinds[path.Ext(name)])
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(b))
}
