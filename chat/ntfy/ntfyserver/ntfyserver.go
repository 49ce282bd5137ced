// Package ntfyserver simulates a server of ntfy for tests. It refuses what the real one refuses, and more: what the
// real one would turn into something else, such as a long message into an attachment.
package ntfyserver

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/permesso-dev/permesso/chat/deliver/channeltest"
)

// Message is a message as subscribers see it now.
type Message struct {
	Sequence, Title, Text, Click string
	Priority                     int
}

// Server is a server with one topic. Set its fields before the first call.
type Server struct {
	URL   string
	Topic string
	Token string // "": all may write
	Old   bool   // it cannot replace messages: it is older than 2.16

	channeltest.Calls[Message] // what subscribers see now
}

// New starts a server on loopback, which ends with the test.
func New(t *testing.T, topic string) *Server {
	s := &Server{Topic: topic}
	web := httptest.NewServer(s)
	s.URL = web.URL
	t.Cleanup(web.Close)
	return s
}

var (
	oneName  = regexp.MustCompile(`^/([-_A-Za-z0-9]{1,64})$`)
	twoNames = regexp.MustCompile(`^/([-_A-Za-z0-9]{1,64})/([-_A-Za-z0-9]{1,64})$`)
)

// maxMessage is the server's limit for the text of a message in bytes.
const maxMessage = 4096

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Lock()
	defer s.Unlock()
	code, why := s.Take(func() (int, string) { return s.take(r) })
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"http":%d,"error":%q}`+"\n", code, why)
}

// take handles one call.
func (s *Server) take(r *http.Request) (code int, why string) {
	m := Message{Sequence: r.Header.Get("X-Sequence-ID")}
	at := oneName.FindStringSubmatch(r.URL.Path)
	if two := twoNames.FindStringSubmatch(r.URL.Path); two != nil && !s.Old {
		at, m.Sequence = two, two[2]
	}
	switch {
	case r.Method != http.MethodPost && r.Method != http.MethodPut, at == nil, at[1] != s.Topic:
		return http.StatusNotFound, "page not found"
	case s.Token != "" && r.Header.Get("Authorization") == "":
		return http.StatusForbidden, "forbidden"
	case s.Token != "" && r.Header.Get("Authorization") != "Bearer "+s.Token:
		return http.StatusUnauthorized, "unauthorized"
	case s.Old:
		m.Sequence = ""
	}
	if why = m.read(r); why != "" {
		return http.StatusBadRequest, why
	}
	s.put(m)
	return http.StatusOK, ""
}

// read reads the message, or says why it is refused.
func (m *Message) read(r *http.Request) (why string) {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxMessage+1))
	m.Text, m.Click = string(text), r.Header.Get("Click")
	m.Priority, _ = strconv.Atoi(r.Header.Get("Priority"))
	title := r.Header.Get("Title")
	ascii := !slices.ContainsFunc([]byte(title), func(b byte) bool { return b < ' ' || b > '~' })
	switch m.Title, _ = new(mime.WordDecoder).DecodeHeader(title); {
	case err != nil || len(text) > maxMessage || !utf8.Valid(text):
		return "the message would become an attachment"
	case !ascii || !utf8.ValidString(m.Title):
		return "the title is not encoded"
	case m.Priority < 1 || m.Priority > 5:
		return "priority is invalid"
	case m.Sequence != "" && !oneName.MatchString("/"+m.Sequence):
		return "sequence ID is invalid"
	}
	if u, err := url.Parse(m.Click); err != nil || m.Click != "" && u.Host == "" {
		return "click is no URL"
	}
	return ""
}

// put shows a message, in the place of the one with its sequence ID.
func (s *Server) put(m Message) {
	if i := slices.IndexFunc(s.Kept, func(old Message) bool { return m.Sequence != "" && old.Sequence == m.Sequence }); i >= 0 {
		s.Kept[i] = m
		return
	}
	s.Kept = append(s.Kept, m)
}
