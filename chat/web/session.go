package web

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// What one gate keeps in memory for browsers at most.
const (
	maxLinks         = 64
	maxSessions      = 64
	maxStreams       = 256
	maxSessionStream = 24
	maxNotes         = 32
)

const cookieName = "permesso_ui"

// session is one browser of one person.
type session struct {
	key    string // of its path
	secret string // of its cookie
	guest  User
	began  time.Time

	mu      sync.Mutex
	used    time.Time
	streams int
	notes   []note // what was said, the newest last
	said    int    // how many there have been
	over    chan struct{}
}

// note is what a person was told of something that they did.
type note struct {
	about approval.Key
	text  string
	acted bool
}

// sessions are all that there are, and the links to more.
type sessions struct {
	mu      sync.Mutex
	links   map[string]link // by the digest of their token: a map's look-up tells nobody how much was right
	open    map[string]*session
	streams int
}

type link struct {
	guest User
	until time.Time
}

// ErrFull says that there are too many links or sessions at once.
var ErrFull = errors.New("too many links were asked for: wait a minute")

func random(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Link is an address that opens the pages for the guest: once, and soon.
func (s *Server) Link(g User) (address string, life time.Duration, err error) {
	s.init()
	token := random(32)
	now := s.Now()
	x := &s.sessions
	x.mu.Lock()
	defer x.mu.Unlock()
	s.sweep(now)
	if len(x.links) >= maxLinks {
		return "", 0, ErrFull
	}
	if x.links == nil {
		x.links = map[string]link{}
	}
	x.links[approval.Digest([]byte(token))] = link{g, now.Add(s.LinkLife)}
	s.shelf.wake() // whoever asks for a link will look at the list
	return s.Home + "/enter/" + token, s.LinkLife, nil
}

// enter makes a session of a token, which is used up whatever comes of it.
func (s *Server) enter(token string) *session {
	now := s.Now()
	x := &s.sessions
	x.mu.Lock()
	defer x.mu.Unlock()
	s.sweep(now) // takes away what is too old, this link too
	hash := approval.Digest([]byte(token))
	l, ok := x.links[hash]
	if !ok {
		return nil
	}
	delete(x.links, hash)
	if len(x.open) >= maxSessions {
		x.end(x.oldest())
	}
	if x.open == nil {
		x.open = map[string]*session{}
	}
	se := &session{key: random(16), secret: random(32), guest: l.guest, began: now, used: now, over: make(chan struct{})}
	x.open[se.key] = se
	return se
}

// oldest is the one that was used least recently.
func (x *sessions) oldest() (oldest *session) {
	for _, se := range x.open {
		if oldest == nil || se.lastUsed().Before(oldest.lastUsed()) {
			oldest = se
		}
	}
	return oldest
}

// end closes a session, with its streams; the caller holds the lock.
func (x *sessions) end(se *session) {
	if x.open[se.key] == se {
		delete(x.open, se.key)
		close(se.over)
	}
}

func (se *session) lastUsed() time.Time {
	se.mu.Lock()
	defer se.mu.Unlock()
	return se.used
}

// stale says that a session has lasted long enough. An open page is in use.
func (s *Server) stale(se *session, now time.Time) bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	return now.Sub(se.began) >= s.SessionLife || se.streams == 0 && now.Sub(se.used) >= s.Idle
}

// sessionOf is the session that a request belongs to: its path names it, its
// cookie proves it.
func (s *Server) sessionOf(r *http.Request) *session {
	now := s.Now()
	x := &s.sessions
	x.mu.Lock()
	defer x.mu.Unlock()
	se := x.open[r.PathValue("key")]
	if se == nil || !carries(r, se.secret) {
		return nil
	}
	if s.stale(se, now) {
		x.end(se)
		return nil
	}
	se.mu.Lock()
	defer se.mu.Unlock()
	se.used = now
	return se
}

// carries looks through all cookies of our name: another port of this host may
// have set one as well.
func carries(r *http.Request, secret string) bool {
	found := 0
	for _, c := range r.CookiesNamed(cookieName) {
		found |= subtle.ConstantTimeCompare([]byte(c.Value), []byte(secret))
	}
	return found == 1
}

func (s *Server) leave(se *session) {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	s.sessions.end(se)
}

// anybody says whether somebody looks, or is about to.
func (s *Server) anybody() bool {
	x := &s.sessions
	x.mu.Lock()
	defer x.mu.Unlock()
	s.sweep(s.Now())
	return len(x.open)+len(x.links) > 0
}

// sweep ends what has lasted long enough; the caller holds the lock.
func (s *Server) sweep(now time.Time) {
	x := &s.sessions
	for _, old := range x.open {
		if s.stale(old, now) {
			x.end(old)
		}
	}
	for hash, l := range x.links {
		if !now.Before(l.until) {
			delete(x.links, hash)
		}
	}
}

// join counts a stream; ok is false where there are too many. leave must be
// called where it is true.
func (s *Server) join(se *session) (leave func(), ok bool) {
	x := &s.sessions
	x.mu.Lock()
	defer x.mu.Unlock()
	se.mu.Lock()
	defer se.mu.Unlock()
	if x.streams >= maxStreams || se.streams >= maxSessionStream {
		return nil, false
	}
	x.streams++
	se.streams++
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		se.mu.Lock()
		defer se.mu.Unlock()
		x.streams--
		se.streams--
		se.used = s.Now()
	}, true
}

func cookieOf(se *session) *http.Cookie {
	//nolint:gosec // Secure is for lines with TLS: on loopback not every browser would send it back
	return &http.Cookie{Name: cookieName, Value: se.secret, Path: "/s/" + se.key + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// tell keeps what a person is to read on the next page, and gives its number.
func (se *session) tell(n note) int {
	se.mu.Lock()
	defer se.mu.Unlock()
	se.notes = append(se.notes, n)
	se.said++
	if len(se.notes) > maxNotes {
		se.notes = se.notes[1:]
	}
	return se.said
}

// told is the note of a number, as long as it is kept.
func (se *session) told(number int) *note {
	se.mu.Lock()
	defer se.mu.Unlock()
	i := number - 1 - (se.said - len(se.notes))
	if i < 0 || i >= len(se.notes) {
		return nil
	}
	n := se.notes[i]
	return &n
}
