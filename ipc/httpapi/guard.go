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

// guard stands before everything else: what comes past it was meant for us, was
// not sent by a page in a browser, has a key where one is needed, and a body of
// the right kind and size.
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
			problem(http.StatusTooManyRequests, "too many requests of this key are under way").retry(time.Second).write(w)
			return
		}
		defer s.busy.leave(k.ID)
		if p := s.takeBody(w, r, k); p != nil {
			w.Header().Set("Connection", "close") // what is left of the body is not worth reading
			p.write(w)
			return
		}
		if id, wait, ok := patient(r, k); ok {
			s.waitFor(w, r, k, id, wait)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), caller{}, k)))
		if r.URL.Path != eventsPath { // that lasts as long as somebody listens
			s.Metrics.took(s.Now().Sub(began))
		}
	})
}

// open says that a path needs no key: it tells nothing.
func open(path string) bool {
	return slices.Contains([]string{"/healthz", "/readyz", "/openapi.json"}, path)
}

// strangers refuses what was meant for another host, or sent by a page.
func (s *Server) strangers(origins *http.CrossOriginProtection, r *http.Request) *Problem {
	switch {
	case !s.ours(r):
		return problem(http.StatusForbidden, "this name is not ours: see listen_hosts in permesso.toml")
	case origins.Check(r) != nil, r.Header.Get("Origin") != "", !slices.Contains([]string{"", "none", "same-origin"}, r.Header.Get("Sec-Fetch-Site")):
		return problem(http.StatusForbidden, "nothing here is for pages in a browser")
	}
	return nil
}

// ours says whether a request is meant for us. Whoever reached a Unix socket
// cannot have been led there by a name.
func (s *Server) ours(r *http.Request) bool {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(interface{ Network() string })
	if addr != nil && addr.Network() == "unix" {
		return true
	}
	return slices.Contains(s.Hosts, strings.ToLower(r.Host))
}

// caller is the place of the key in a request's context.
type caller struct{}

func keyIn(ctx context.Context) *approval.APIKey {
	k, _ := ctx.Value(caller{}).(*approval.APIKey)
	return k
}

const (
	bearer     = "bearer "
	longestKey = 256
)

// keyOf finds the key that a request carries. Its hash is what is looked up, so
// that no comparison tells how much of it was right.
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
			s.Log.Warn().Str("via", "rest").Msg("a key that does not exist was tried")
		}
		return nil, no
	case err != nil:
		s.complain("read key", err)
		return nil, no
	case k == nil || !k.RevokedAt.IsZero():
		return nil, no
	}
	if _, known := s.Settings.WorkspaceInfo(k.Workspace); !known {
		return nil, problem(http.StatusForbidden, "the workspace of this key is not configured")
	}
	return k, nil
}

// still says whether a key that was good when a request came is so yet.
func (s *Server) still(k *approval.APIKey) bool {
	now, err := s.Keys.Key(k.Hash)
	return err == nil && now != nil && now.RevokedAt.IsZero()
}

// room is what a body may have besides a request's own bytes.
const room = 16 << 10

// takeBody reads the whole body, in time and no more of it than is allowed, so
// that nobody behind it meets a slow client.
func (s *Server) takeBody(w http.ResponseWriter, r *http.Request, k *approval.APIKey) *Problem {
	if r.Method != http.MethodPost {
		if r.ContentLength != 0 {
			return problem(http.StatusBadRequest, "a "+r.Method+" has no body here")
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
	// Of a body that is refused the library reads on a little, before it closes the
	// line: the deadline stays for that.
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem(http.StatusRequestTimeout, "the body came too slowly")
	case err != nil:
		return problem(http.StatusBadRequest, "the body broke off")
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

// kindOf refuses what is not called JSON. A page can make a browser send other
// types without asking anybody.
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
	return problem(http.StatusUnsupportedMediaType, "the body must be "+jsonType+", in UTF-8, and say so in Content-Type")
}

// busyKeys counts what is under way with each key, so that no client takes all
// the places there are.
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

// recovered answers for a handler that panicked: the others go on.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler { //nolint:errorlint // net/http's own word, given as it is
					panic(v)
				}
				s.complain("a handler of the HTTP door broke", errors.New("panic"))
				problem(http.StatusInternalServerError, "something went wrong here; the log says what").write(w)
			}
		}()
		next.ServeHTTP(w, r)
	})
}
