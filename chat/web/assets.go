package web

import (
	"embed"
	"html/template"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"unicode"

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
		"format":       chat.Format,
		"itoa":         strconv.Itoa,
		"inc":          func(i int) int { return i + 1 },
		"languageName": func(language string) string { return catalog(language).LanguageName },
	}
	return template.Must(template.New("").Option("missingkey=error").Funcs(funcs).ParseFS(files, "templates/*.html"))
})

// withoutSign removes the sign at the start of a card's head: the pages have their own.
func withoutSign(head string) string {
	return strings.TrimLeftFunc(head, func(r rune) bool { return !unicode.IsLetter(r) })
}

// sourceClass is the CSS class of evidence by its source.
func sourceClass(s chat.Source) string {
	switch s {
	case chat.FromHost:
		return "host"
	case chat.FromProver:
		return "prover"
	default:
		return "unknown"
	}
}

// asset is a static file.
type asset struct {
	body, kind, tag string
}

var assets = sync.OnceValue(func() map[string]asset {
	kinds := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	all := map[string]asset{}
	list, err := files.ReadDir("static")
	if err != nil {
		return all
	}
	for _, f := range list {
		b, err := files.ReadFile("static/" + f.Name())
		if kind := kinds[path.Ext(f.Name())]; err == nil && kind != "" {
			all[f.Name()] = asset{string(b), kind, `"` + approval.Digest(b)[:16] + `"`}
		}
	}
	return all
})

// static serves files that need no session.
func static() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := assets()[r.PathValue("file")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Cache-Control", "private, no-cache")
		h.Set("ETag", a.tag)
		h.Set("Content-Type", a.kind)
		if r.Header.Get("If-None-Match") == a.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write([]byte(a.body))
	})
}
