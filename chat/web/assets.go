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

// templates are parsed once; a mistake in them is one of ours, and a test's to
// find.
var templates = sync.OnceValue(func() *template.Template {
	funcs := template.FuncMap{
		"bare": bare,
		"from": sourceClass,
		"say":  say,
		"itoa": strconv.Itoa,
		"inc":  func(i int) int { return i + 1 },
	}
	return template.Must(template.New("").Funcs(funcs).ParseFS(files, "templates/*.html"))
})

// bare is the head of a card without the sign before it, for which a page has its own.
func bare(head string) string {
	return strings.TrimLeftFunc(head, func(r rune) bool { return !unicode.IsLetter(r) })
}

// sourceClass is how a style sheet calls where something is known from.
func sourceClass(s chat.Source) string {
	switch s {
	case chat.FromHost:
		return "host"
	case chat.FromProver:
		return "prover"
	default:
		return "nobody"
	}
}

// asset is one file of ours that pages load.
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

// static serves our own files; they tell nothing.
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
