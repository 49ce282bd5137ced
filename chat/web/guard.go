package web

import (
	"mime"
	"net/http"
	"slices"
	"strings"
)

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// headers go with every answer.
//
// Referrer-Policy is same-origin, not no-referrer: under that one browsers send
// "Origin: null" with our own forms, too (Fetch, "append a request Origin
// header"), which we refuse. No address of ours leaves this origin either way.
func headers(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}

// maxBody is more than the longest note that anybody types.
const maxBody = 64 << 10

// guard stands before everything else: what comes past it was meant for us, is
// in no frame, and was sent by a page of ours where it could change something.
func (s *Server) guard(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers(w.Header())
		switch {
		case !s.meantForUs(r):
			s.refuse(w, r, http.StatusMisdirectedRequest, refusedHost)
		case framed(r):
			s.refuse(w, r, http.StatusForbidden, refusedFrame)
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			if r.ContentLength != 0 || !fromHere(r) {
				s.refuse(w, r, http.StatusForbidden, refusedOrigin)
				return
			}
			next.ServeHTTP(w, r)
		case r.Method != http.MethodPost:
			s.refuse(w, r, http.StatusMethodNotAllowed, refusedMethod)
		case origins.Check(r) != nil || !sentByUs(r):
			s.refuse(w, r, http.StatusForbidden, refusedOrigin)
		case !isForm(r):
			s.refuse(w, r, http.StatusUnsupportedMediaType, refusedForm)
		default:
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			next.ServeHTTP(w, r)
		}
	})
}

// meantForUs refuses names that are not ours: a page whose name was bound to
// our address anew would be of one origin with us otherwise.
func (s *Server) meantForUs(r *http.Request) bool {
	return slices.Contains(s.Hosts, strings.ToLower(r.Host))
}

func framed(r *http.Request) bool {
	return slices.Contains([]string{"frame", "iframe", "embed", "object", "fencedframe"}, r.Header.Get("Sec-Fetch-Dest"))
}

// fromHere lets a page of ours, or a person who typed the address, look. Only
// the door itself may be reached from elsewhere: a link in a file leads there.
func fromHere(r *http.Request) bool {
	if r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/enter/") {
		return true
	}
	return slices.Contains([]string{"", "none", "same-origin"}, r.Header.Get("Sec-Fetch-Site"))
}

// sentByUs wants it said that a page of ours sent a form. A browser that says
// nothing at all is none; programs have other doors.
func sentByUs(r *http.Request) bool {
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
