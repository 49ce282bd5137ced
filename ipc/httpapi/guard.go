package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// guard checks every request first. The request must have a known host, must not come
// from a browser page, and must have a key if one is needed, and a body of the right type
// and size.
func (s *Server) guard(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := s.Now()
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		if p := s.strangers(origins, r); p != nil {
			p.write(w)
			return
		}
		if open(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		k, p := s.keyOf(r)
		if p != nil {
			p.write(w)
			return
		}
		if !s.busy.enter(k.ID, s.Connections/2) {
			problem(http.StatusTooManyRequests, "too many concurrent requests with this key").retry(time.Second).write(w)
			return
		}
		defer s.busy.leave(k.ID)
		if p := s.takeBody(w, r, k); p != nil {
			w.Header().Set("Connection", "close") // the rest of the body is not read
			p.write(w)
			return
		}
		if id, wait, ok := patient(r, k); ok {
			s.waitFor(w, r, k, id, wait)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), caller{}, k)))
		if r.URL.Path != eventsPath { // an event stream lasts as long as its client
			s.Metrics.took(s.Now().Sub(began))
		}
	})
}

// needsNoKey reports whether a path needs no key, because it reveals nothing.
func open(path string) bool {
	return slices.Contains([]string{"/healthz", "/readyz", "/openapi.json"}, path)
}

// checkOrigin refuses requests for another host and requests from a browser page.
func (s *Server) strangers(origins *http.CrossOriginProtection, r *http.Request) *Problem {
	switch {
	case !s.ours(r):
		return problem(http.StatusForbidden, "host name not allowed: see listen_hosts in permesso.toml")
	case origins.Check(r) != nil, r.Header.Get("Origin") != "", !slices.Contains([]string{"", "none", "same-origin"}, r.Header.Get("Sec-Fetch-Site")):
		return problem(http.StatusForbidden, "browser requests are refused")
	}
	return nil
}

// hostAllowed reports whether a request is for this host. A Unix socket cannot be reached
// through a DNS name.
func (s *Server) ours(r *http.Request) bool {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(interface{ Network() string })
	if addr != nil && addr.Network() == "unix" {
		return true
	}
	return slices.Contains(s.Hosts, strings.ToLower(r.Host))
}

// keyContext is the key's place in a request's context.
type caller struct{}

func keyIn(ctx context.Context) *approval.APIKey {
	k, _ := ctx.Value(caller{}).(*approval.APIKey)
	return k
}

const (
	bearer     = "bearer "
	longestKey = 256
)

// keyOf finds the key of a request by its hash, so that no comparison reveals how much of
// it was right.
func (s *Server) keyOf(r *http.Request) (*approval.APIKey, *Problem) {
	no := problem(http.StatusUnauthorized, sayBadKey)
	given := r.Header["Authorization"]
	if len(given) != 1 || len(given[0]) <= len(bearer) || len(given[0]) > longestKey || !strings.EqualFold(given[0][:len(bearer)], bearer) {
		return nil, no
	}
	k, err := s.Keys.Key(approval.Digest([]byte(given[0][len(bearer):])))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if s.thieves.allow(s.Now()) {
			s.Log.Warn().Str("via", "rest").Msg("unknown API key")
		}
		return nil, no
	case err != nil:
		s.complain("read API key failed", err)
		return nil, no
	case k == nil || !k.RevokedAt.IsZero():
		return nil, no
	}
	if _, known := s.Settings.WorkspaceInfo(k.Workspace); !known {
		return nil, problem(http.StatusForbidden, "the workspace of this key is not configured")
	}
	return k, nil
}

// stillValid reports whether a key that was valid when the request came still is.
func (s *Server) still(k *approval.APIKey) bool {
	now, err := s.Keys.Key(k.Hash)
	return err == nil && now != nil && now.RevokedAt.IsZero()
}

// bodyOverhead is the size of a body beyond the size of the request document.
const room = 16 << 10

// readBody reads the complete body, with a timeout and a size limit, so that no later
// code waits for a slow client.
func (s *Server) takeBody(w http.ResponseWriter, r *http.Request, k *approval.APIKey) *Problem {
	if r.Method != http.MethodPost {
		if r.ContentLength != 0 {
			return problem(http.StatusBadRequest, r.Method+" must not have a body")
		}
		return nil
	}
	if p := kindOf(r); p != nil {
		return p
	}
	place, _ := s.Settings.WorkspaceInfo(k.Workspace)
	most := int64(place.MaxSize + room)
	tooLarge := problem(http.StatusRequestEntityTooLarge, "the body is too large")
	if r.ContentLength > most {
		return tooLarge
	}
	in := http.NewResponseController(w)
	_ = in.SetReadDeadline(time.Now().Add(s.IOTimeout))
	b, err := io.ReadAll(io.LimitReader(r.Body, most+1))
	// The deadline stays, because the library reads a little more of a refused body
	// before it closes the connection.
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem(http.StatusRequestTimeout, "timeout while reading the body")
	case err != nil:
		return problem(http.StatusBadRequest, "the body is incomplete")
	case int64(len(b)) > most:
		return tooLarge
	}
	_ = in.SetReadDeadline(time.Time{})
	r.Body = io.NopCloser(bytes.NewReader(b))
	r.ContentLength = int64(len(b))
	return nil
}

const (
	jsonType = "application/json"
	mailType = "message/rfc822"
)

// checkContentType refuses other types than JSON. A page can make a browser send other
// types without a CORS preflight.
func kindOf(r *http.Request) *Problem {
	given := r.Header["Content-Type"]
	if len(given) != 1 {
		given = []string{""}
	}
	kind, params, err := mime.ParseMediaType(given[0])
	charset := params["charset"]
	delete(params, "charset")
	switch {
	case err != nil, len(params) > 0, r.Header.Get("Content-Encoding") != "":
	case kind == jsonType && (charset == "" || strings.EqualFold(charset, "utf-8")):
		return nil
	case kind == mailType && r.URL.Path == inboxPath:
		return nil
	}
	return problem(http.StatusUnsupportedMediaType, "the body must be "+jsonType+" in UTF-8, declared in Content-Type")
}

// busyKeys counts the requests in progress per key, so that no client uses all
// connections.
type busyKeys struct {
	mu sync.Mutex
	n  map[string]int
}

func (b *busyKeys) enter(id string, most int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n == nil {
		b.n = map[string]int{}
	}
	if b.n[id] >= most {
		return false
	}
	b.n[id]++
	return true
}

func (b *busyKeys) leave(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n[id]--; b.n[id] == 0 {
		delete(b.n, id)
	}
}

// recoverPanics answers for a handler that panicked. Other requests continue.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler { //nolint:errorlint // net/http panics with exactly this value
					panic(v)
				}
				s.complain("HTTP API handler panicked", errors.New("panic"))
				problem(http.StatusInternalServerError, "internal error: see the daemon's log").write(w)
			}
		}()
		next.ServeHTTP(w, r)
	})
}
