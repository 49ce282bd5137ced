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

// Limits of what the daemon keeps in memory for browsers.
const (
	maxLinks         = 64
	maxSessions      = 64
	maxStreams       = 256
	maxSessionStream = 24
	maxNotes         = 32
)

const cookieName = "permesso_ui"

// session is one browser of one logged-in user.
type session struct {
	key       string // in its path
	secret    string // in its cookie
	user      User
	startedAt time.Time

	mu        sync.Mutex
	usedAt    time.Time
	streams   int
	notes     map[int]note // shown after an action, by number: the newest maxNotes
	noteCount int          // all notes so far
	revealed  reveal       // the last one that no page has used
	ended     chan struct{}
}

// reveal lets one page show what the card of a request masks.
type reveal struct {
	token string // "": none
	key   approval.Key
}

// allowReveal returns the token of a page that may show what the card of a request masks.
func (se *session) allowReveal(k approval.Key) (token string) {
	se.mu.Lock()
	defer se.mu.Unlock()
	se.revealed = reveal{randomHex(16), k}
	return se.revealed.token
}

// useReveal reports whether a page has the token, and makes it void.
func (se *session) useReveal(k approval.Key, token string) bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	ok := token != "" && se.revealed == reveal{token, k}
	if ok {
		se.revealed = reveal{}
	}
	return ok
}

// note tells the user the result of an action.
type note struct {
	text  string
	Acted bool         // it was done: a decision was recorded
	Key   approval.Key // the request that was decided, if one was
	Path  string       // of its page, on the page of another; "": none
	Undo  bool         // the user can revoke the grant that the decision gave
	Told  string       // what the text says of an approved request since then, as read.Story.Aftermath; "": nothing

	Number int // in the address
}

// sessions holds all sessions, and the links that can start more.
type sessions struct {
	mu      sync.Mutex
	links   map[string]link // by the digest of their token: lookup time tells nothing about the token
	open    map[string]*session
	streams int
}

type link struct {
	user  User
	until time.Time
}

// ErrFull reports too many unused links.
var ErrFull = errors.New("too many unused login links: wait a minute")

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Link returns an address that starts a session for the user. It works once, for
// the time life.
func (s *Server) Link(u User) (address string, life time.Duration, err error) {
	s.init()
	token := randomHex(32)
	now := s.Now()
	x := &s.sessions
	x.mu.Lock()
	defer x.mu.Unlock()
	s.removeExpired(now)
	if len(x.links) >= maxLinks {
		return "", 0, ErrFull
	}
	if x.links == nil {
		x.links = map[string]link{}
	}
	x.links[approval.Digest([]byte(token))] = link{u, now.Add(s.LinkLife)}
	s.cache.wake() // prerender the list: the user will open it next
	return s.BaseURL + "/enter/" + token, s.LinkLife, nil
}

// redeemLink starts a session for a token, nil if the token is not valid. A token
// works once.
func (s *Server) redeemLink(token string) *session {
	now := s.Now()
	x := &s.sessions
	x.mu.Lock()
	defer x.mu.Unlock()
	s.removeExpired(now) // also this link, if it is too old
	hash := approval.Digest([]byte(token))
	l, ok := x.links[hash]
	if !ok {
		return nil
	}
	delete(x.links, hash)
	if len(x.open) >= maxSessions {
		x.end(x.leastRecentlyUsed())
	}
	if x.open == nil {
		x.open = map[string]*session{}
	}
	se := &session{
		key: randomHex(16), secret: randomHex(32), user: l.user, startedAt: now, usedAt: now,
		notes: map[int]note{}, ended: make(chan struct{}),
	}
	x.open[se.key] = se
	return se
}

// leastRecentlyUsed returns the session that was unused for the longest time.
func (x *sessions) leastRecentlyUsed() (oldest *session) {
	for _, se := range x.open {
		if oldest == nil || se.lastUsed().Before(oldest.lastUsed()) {
			oldest = se
		}
	}
	return oldest
}

// end closes a session and its streams. The caller holds the lock.
func (x *sessions) end(se *session) {
	if x.open[se.key] == se {
		delete(x.open, se.key)
		close(se.ended)
	}
}

func (se *session) lastUsed() time.Time {
	se.mu.Lock()
	defer se.mu.Unlock()
	return se.usedAt
}

// sessionExpired reports whether a session must end. An open page counts as use.
func (s *Server) sessionExpired(se *session, now time.Time) bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	return now.Sub(se.startedAt) >= s.SessionLife || se.streams == 0 && now.Sub(se.usedAt) >= s.Idle
}

// findSession returns the session that the path names, if the cookie proves it.
func (s *Server) findSession(r *http.Request) *session {
	now := s.Now()
	x := &s.sessions
	x.mu.Lock()
	defer x.mu.Unlock()
	se := x.open[r.PathValue("key")]
	if se == nil || !hasCookie(r, se.secret) {
		return nil
	}
	if s.sessionExpired(se, now) {
		x.end(se)
		return nil
	}
	se.mu.Lock()
	defer se.mu.Unlock()
	se.usedAt = now
	return se
}

// hasCookie checks all cookies of our name: a server at another port of this host
// may have set one as well.
func hasCookie(r *http.Request, secret string) bool {
	found := 0
	for _, c := range r.CookiesNamed(cookieName) {
		found |= subtle.ConstantTimeCompare([]byte(c.Value), []byte(secret))
	}
	return found == 1
}

func (s *Server) endSession(se *session) {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	s.sessions.end(se)
}

// inUse reports whether there is a session, or a link to start one.
func (s *Server) inUse() bool {
	x := &s.sessions
	x.mu.Lock()
	defer x.mu.Unlock()
	s.removeExpired(s.Now())
	return len(x.open)+len(x.links) > 0
}

// removeExpired ends expired sessions and removes expired links. The caller holds
// the lock.
func (s *Server) removeExpired(now time.Time) {
	x := &s.sessions
	for _, old := range x.open {
		if s.sessionExpired(old, now) {
			x.end(old)
		}
	}
	for hash, l := range x.links {
		if !now.Before(l.until) {
			delete(x.links, hash)
		}
	}
}

// openStream counts an event stream. ok is false if there are too many. If it is
// true, the caller must call release.
func (s *Server) openStream(se *session) (release func(), ok bool) {
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
		se.usedAt = s.Now()
	}, true
}

func sessionCookie(se *session) *http.Cookie {
	//nolint:gosec // no Secure: there is no TLS on loopback, and some browsers would not send the cookie back
	return &http.Cookie{Name: cookieName, Value: se.secret, Path: "/s/" + se.key + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// addNote keeps a note for the next page, and returns its number.
func (se *session) addNote(n note) int {
	se.mu.Lock()
	defer se.mu.Unlock()
	se.noteCount++
	se.notes[se.noteCount] = n
	delete(se.notes, se.noteCount-maxNotes)
	return se.noteCount
}

// noteAt returns the note with a number, nil if it is not kept any more.
func (se *session) noteAt(number int) *note {
	se.mu.Lock()
	defer se.mu.Unlock()
	if n, ok := se.notes[number]; ok {
		return &n
	}
	return nil
}
