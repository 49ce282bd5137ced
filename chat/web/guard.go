package web

import (
	"mime"
	"net/http"
	"slices"
	"strings"
)

const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// headers sets the headers of every HTTP response.
//
// Referrer-Policy is same-origin, not no-referrer: with no-referrer, browsers send
// "Origin: null" with our own forms (Fetch, "append a request Origin header"), and
// the guard refuses that. In both cases no URL of ours leaves this origin.
func headers(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}

// maxBody is more than the longest allowed text of a form.
const maxBody = 64 << 10

// guard checks every HTTP request first: Host is one of our names, the page is not
// in a frame, and a request that can change something comes from one of our pages.
func (s *Server) guard(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers(w.Header())
		switch {
		case !s.knownHost(r):
			s.refuse(w, r, http.StatusMisdirectedRequest, refusedHost)
		case framed(r):
			s.refuse(w, r, http.StatusForbidden, refusedFrame)
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			if r.ContentLength != 0 || !allowedGet(r) {
				s.refuse(w, r, http.StatusForbidden, refusedOrigin)
				return
			}
			next.ServeHTTP(w, r)
		case r.Method != http.MethodPost:
			s.refuse(w, r, http.StatusMethodNotAllowed, refusedMethod)
		case origins.Check(r) != nil || !sentByOwnPage(r):
			s.refuse(w, r, http.StatusForbidden, refusedOrigin)
		case !isForm(r):
			s.refuse(w, r, http.StatusUnsupportedMediaType, refusedForm)
		default:
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			next.ServeHTTP(w, r)
		}
	})
}

// knownHost refuses foreign host names: otherwise a page whose name was rebound to
// our address (DNS rebinding) would have the same origin as our pages.
func (s *Server) knownHost(r *http.Request) bool {
	return slices.Contains(s.Hosts, strings.ToLower(r.Host))
}

func framed(r *http.Request) bool {
	return slices.Contains([]string{"frame", "iframe", "embed", "object", "fencedframe"}, r.Header.Get("Sec-Fetch-Dest"))
}

// allowedGet accepts a GET from one of our pages, or for an address that the user
// typed. Other pages may only link to /, the login page, and where a notification leads.
func allowedGet(r *http.Request) bool {
	if r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/enter/") || strings.HasPrefix(r.URL.Path, "/r/") || r.URL.Path == "/open" {
		return true
	}
	return slices.Contains([]string{"", "none", "same-origin"}, r.Header.Get("Sec-Fetch-Site"))
}

// sentByOwnPage requires Origin or Sec-Fetch-Site to name one of our pages. Every
// browser sends one of them; other programs have the API.
func sentByOwnPage(r *http.Request) bool {
	origin, site := r.Header["Origin"], r.Header["Sec-Fetch-Site"]
	switch {
	case len(origin)+len(site) == 0, len(origin) > 1, len(site) > 1:
		return false
	case len(origin) == 1 && origin[0] != "http://"+strings.ToLower(r.Host) && origin[0] != "https://"+strings.ToLower(r.Host):
		return false
	case len(site) == 1 && site[0] != "same-origin":
		return false
	}
	return true
}

func isForm(r *http.Request) bool {
	given := r.Header["Content-Type"]
	if len(given) != 1 || r.Header.Get("Content-Encoding") != "" {
		return false
	}
	kind, params, err := mime.ParseMediaType(given[0])
	charset := params["charset"]
	delete(params, "charset")
	return err == nil && kind == "application/x-www-form-urlencoded" && len(params) == 0 &&
		(charset == "" || strings.EqualFold(charset, "utf-8"))
}
