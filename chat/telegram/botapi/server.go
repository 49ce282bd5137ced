package botapi

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// Token is the token of every Server.
const Token = "110201543:strict-fake-and-nobodys-token"

// Server is a strict fake of the Bot API for one bot. It is an http.Handler that can also listen by itself. The
// zero value is ready. Set the fields before the first request.
type Server struct {
	Now func() time.Time // nil: time.Now

	// CallbackTimeout is how long a tap may stay unanswered; 0: 15 seconds.
	CallbackTimeout time.Duration
	// ConflictPause is the delay of the second and later 409 within that time; 0: 3 seconds.
	ConflictPause time.Duration
	// Limits enables Telegram's rate limits on messages and edits, from its FAQ for bots: one a second to a chat,
	// five at once after a pause; 20 a minute to a group; 30 a second in total.
	Limits bool
	// Privacy is the privacy mode of a new bot: in groups it gets only commands, replies to it, and messages
	// that mention it.
	Privacy bool
	// Local allows webhooks over plain HTTP at any port, like the real server's --local.
	Local bool

	// URL is set by Listen, for bot.WithServerURL.
	URL string

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change; nil: no change yet
	closing chan struct{}
	http    *http.Server

	users    map[int64]User
	chats    map[int64]*chatState
	taps     map[string]*Tap
	commands map[string][]BotCommand // by language
	queue    queue
	hook     webhook
	limiter  limiter
	faults   map[string]*Fault // by method in lower case; "": every method
	calls    []Call
}

// Call is an API request, answered or failed by a Fault.
type Call struct {
	Method      string
	Params      map[string]string
	At          time.Time // when it came
	Code        int       // 200, an error code, or 0 if there was no answer
	Description string
}

// Start runs a server until the end of the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Listen serves on a free loopback port, or after Close on the same port again.
func (s *Server) Listen() error {
	address := "127.0.0.1:0"
	if s.URL != "" {
		address = strings.TrimPrefix(s.URL, "http://")
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	s.URL = "http://" + l.Addr().String()
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	s.mu.Lock()
	s.http, s.closing = server, make(chan struct{})
	s.startWebhook()
	s.mu.Unlock()
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}()
	return nil
}

// Close closes every connection. The state stays, and Listen continues with it.
func (s *Server) Close() {
	s.mu.Lock()
	server := s.http
	if server != nil {
		close(s.closing)
	}
	s.http = nil
	s.mu.Unlock()
	if server != nil {
		_ = server.Close()
	}
}

// method is a supported method.
type method struct {
	params []string
	do     func(s *Server, c *call) (result any)
}

var methods = map[string]method{
	"getme":                  {nil, (*Server).getMe},
	"setwebhook":             {[]string{"url", "secret_token", "allowed_updates"}, (*Server).setWebhook},
	"deletewebhook":          {nil, (*Server).deleteWebhook},
	"sendmessage":            {append([]string{"text", "entities", "link_preview_options", "parse_mode"}, sending...), (*Server).sendMessage},
	"senddocument":           {append([]string{"document", "caption", "caption_entities", "parse_mode"}, sending...), (*Server).sendDocument},
	"editmessagetext":        {[]string{"chat_id", "message_id", "text", "entities", "link_preview_options", "reply_markup", "parse_mode"}, (*Server).editMessageText},
	"editmessagereplymarkup": {[]string{"chat_id", "message_id", "reply_markup"}, (*Server).editMessageReplyMarkup},
	"answercallbackquery":    {[]string{"callback_query_id", "text", "show_alert"}, (*Server).answerCallbackQuery},
	"setmycommands":          {[]string{"commands", "language_code"}, (*Server).setMyCommands},
}

// sending are the parameters of all methods that send a message.
var sending = []string{"chat_id", "message_thread_id", "disable_notification", "reply_parameters", "reply_markup"}

var tokenForm = regexp.MustCompile(`^\d+:[\w-]{20,}$`)

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, refused := route(r.URL.Path)
	if refused != nil {
		reply(w, nil, refused)
		return
	}
	fault := s.takeFault(name)
	if fault != nil && fault.fail(s, w, r) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.record(&call{method: name}, s.now(), fault.Kind.code(), "fault: "+fault.Kind.String())
		return
	}
	result, refused := s.do(name, r)
	if fault != nil && fault.Kind == AnswerHangs {
		s.hang(w, r)
		return
	}
	if fault != nil && fault.Kind == AnswerLost || refused != nil && refused.Code == 0 {
		closeConnection(w)
		return
	}
	reply(w, result, refused)
}

// route reads /botTOKEN/METHOD.
func route(path string) (name string, refused *refusal) {
	notFound := &refusal{Code: http.StatusNotFound, Description: "Not Found"}
	rest, ok := strings.CutPrefix(path, "/bot")
	token, name, ok2 := strings.Cut(rest, "/")
	switch {
	case !ok || !ok2 || !tokenForm.MatchString(token):
		return "", notFound
	case token != Token:
		return "", &refusal{Code: http.StatusUnauthorized, Description: "Unauthorized"}
	}
	return name, nil
}

// do reads and executes a call. What refuses it, however deep, panics with the *refusal, and only do recovers.
func (s *Server) do(name string, r *http.Request) (result any, refused *refusal) {
	c, at, locked := &call{method: name}, s.now(), false
	defer func() {
		if !locked {
			s.mu.Lock()
		}
		defer s.mu.Unlock()
		code, description := http.StatusOK, ""
		if why := recover(); why != nil {
			refused = why.(*refusal) // any other panic is a bug
			code, description = refused.Code, refused.Description
		}
		s.record(c, at, code, description)
	}()
	c = readCall(name, r)
	if name = strings.ToLower(name); name == "getupdates" {
		return s.getUpdates(r.Context(), c), nil
	}
	m, ok := methods[name]
	if !ok {
		panic(&refusal{Code: http.StatusNotFound, Description: "Not Found: method not found"})
	}
	c.refuseUnknown(m.params)
	s.mu.Lock()
	locked = true // until the call is recorded: who sees what it did sees the call
	return m.do(s, c), nil
}

// record records a call, and notifies waiters. s.mu is held.
func (s *Server) record(c *call, at time.Time, code int, description string) {
	s.calls = append(s.calls, Call{c.method, c.params, at, code, description})
	s.notify()
}

func reply(w http.ResponseWriter, result any, refused *refusal) {
	code, body := http.StatusOK, any(map[string]any{"ok": true, "result": result})
	if refused != nil {
		code, body = refused.Code, refused
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *Server) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// notify wakes the waiters for a change. It needs s.mu.
func (s *Server) notify() {
	if s.changed != nil {
		close(s.changed)
	}
	s.changed = make(chan struct{})
}

// change returns a channel that is closed at the next change. It needs s.mu.
func (s *Server) change() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// thisBot is the bot's user.
var thisBot = User{ID: 110201543, IsBot: true, FirstName: "Permesso", Username: "permesso_bot"}
