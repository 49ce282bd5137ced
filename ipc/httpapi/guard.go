package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
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
		if p := s.checkOrigin(origins, r); p != nil {
			p.write(w)
			return
		}
		if needsNoKey(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		identify := s.keyOf
		if c := CallerFrom(r.Context()); c != nil {
			identify = func(r *http.Request) (*apikey.Key, *Problem) { return s.localKey(c, r) }
		}
		k, p := identify(r)
		if p != nil {
			p.write(w)
			return
		}
		if !s.busy.acquire(k.ID, s.Connections/2) {
			problem(http.StatusTooManyRequests, "too many concurrent requests with this key").retry(time.Second).write(w)
			return
		}
		defer s.busy.release(k.ID)
		if p := s.readBody(w, r, k); p != nil {
			w.Header().Set("Connection", "close") // the rest of the body is not read
			p.write(w)
			return
		}
		if id, wait, ok := parseWait(r, k); ok {
			s.waitFor(w, r, k, id, wait)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), keyContext{}, k)))
		if r.URL.Path != eventsPath { // an event stream lasts as long as its client
			s.Metrics.observe(s.Now().Sub(began))
		}
	})
}

// needsNoKey reports whether a path needs no key, because it reveals nothing.
func needsNoKey(path string) bool {
	return slices.Contains([]string{"/healthz", "/readyz", "/openapi.json"}, path)
}

// checkOrigin refuses requests for another host and requests from a browser page.
func (s *Server) checkOrigin(origins *http.CrossOriginProtection, r *http.Request) *Problem {
	switch {
	case !s.hostAllowed(r):
		return problem(http.StatusForbidden, "host name not allowed: the operator can allow it")
	case origins.Check(r) != nil, r.Header.Get("Origin") != "", !slices.Contains([]string{"", "none", "same-origin"}, r.Header.Get("Sec-Fetch-Site")):
		return problem(http.StatusForbidden, "browser requests are refused")
	}
	return nil
}

// hostAllowed reports whether a request is for this host. A Unix socket cannot be reached
// through a DNS name.
func (s *Server) hostAllowed(r *http.Request) bool {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(interface{ Network() string })
	if addr != nil && addr.Network() == "unix" {
		return true
	}
	return slices.Contains(s.Hosts, strings.ToLower(r.Host))
}

// keyContext is the key's place in a request's context.
type keyContext struct{}

func keyFrom(ctx context.Context) *apikey.Key {
	k, _ := ctx.Value(keyContext{}).(*apikey.Key)
	return k
}

const (
	bearer     = "bearer "
	longestKey = 256
)

// keyOf finds the key of a request by its hash, so that no comparison reveals how much of
// it was right.
func (s *Server) keyOf(r *http.Request) (*apikey.Key, *Problem) {
	unauthorized := problem(http.StatusUnauthorized, detailBadKey)
	header := r.Header["Authorization"]
	if len(header) != 1 || len(header[0]) <= len(bearer) || len(header[0]) > longestKey || !strings.EqualFold(header[0][:len(bearer)], bearer) {
		return nil, unauthorized
	}
	k, err := s.Keys.Key(approval.Digest([]byte(header[0][len(bearer):])))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if s.badKeyLimiter.AllowN(s.Now(), 1) {
			s.Log.Warn().Str("via", "rest").Msg("unknown API key")
		}
		return nil, unauthorized
	case err != nil:
		s.logError("read API key failed", err)
		return nil, unauthorized
	case k == nil || !k.RevokedAt.IsZero():
		return nil, unauthorized
	}
	if _, known := s.Settings.WorkspaceInfo(k.Workspace); !known {
		return nil, problem(http.StatusForbidden, "the workspace of this key is not configured")
	}
	return k, nil
}

// stillValid reports whether a key that was valid when the request came still is.
func (s *Server) stillValid(k *apikey.Key) bool {
	if k.CreatedBy == byConnection {
		return true
	}
	now, err := s.Keys.Key(k.Hash)
	return err == nil && now != nil && now.RevokedAt.IsZero()
}

// bodyOverhead is the size of a body beyond the size of the request document.
const bodyOverhead = 16 << 10

// readBody reads the complete body, with a timeout and a size limit, so that no later
// code waits for a slow client.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, k *apikey.Key) *Problem {
	if r.Method != http.MethodPost {
		if r.ContentLength != 0 {
			return problem(http.StatusBadRequest, r.Method+" must not have a body")
		}
		return nil
	}
	if p := checkContentType(r); p != nil {
		return p
	}
	limit := int64(maxLocalBody)
	if k.Workspace != "" {
		info, _ := s.Settings.WorkspaceInfo(k.Workspace)
		limit = int64(info.MaxSize + bodyOverhead)
	}
	tooLarge := problem(http.StatusRequestEntityTooLarge, "the body is too large")
	if r.ContentLength > limit {
		return tooLarge
	}
	in := http.NewResponseController(w)
	_ = in.SetReadDeadline(time.Now().Add(s.IOTimeout))
	b, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	// The deadline stays, because the library reads a little more of a refused body
	// before it closes the connection.
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem(http.StatusRequestTimeout, "timeout while reading the body")
	case err != nil:
		return problem(http.StatusBadRequest, "the body is incomplete")
	case int64(len(b)) > limit:
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
func checkContentType(r *http.Request) *Problem {
	header := r.Header["Content-Type"]
	if len(header) != 1 {
		header = []string{""}
	}
	kind, params, err := mime.ParseMediaType(header[0])
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

// busyKeys counts the requests in progress per key, or the connections per UID, so that no
// client uses all connections.
type busyKeys struct {
	mu sync.Mutex
	n  map[string]int
}

func (b *busyKeys) acquire(id string, limit int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n == nil {
		b.n = map[string]int{}
	}
	if b.n[id] >= limit {
		return false
	}
	b.n[id]++
	return true
}

func (b *busyKeys) release(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n[id]--; b.n[id] == 0 {
		delete(b.n, id)
	}
}

// recoverPanics answers for a handler that panicked. Other requests continue.
func (s *Server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler { //nolint:errorlint // net/http panics with exactly this value
					panic(v)
				}
				s.logError("HTTP API handler panicked", fmt.Errorf("panic: %s", debug.Stack()))
				problem(http.StatusInternalServerError, "internal error: see the daemon's log").write(w)
			}
		}()
		next.ServeHTTP(w, r)
	})
}
