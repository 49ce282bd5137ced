package web

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// Via is how decisions that were made in a browser are marked.
const Via = "web"

// User is whom a session belongs to.
type User struct {
	Person   approval.Person
	Operator bool // the link was asked for by somebody who can read the gate's own files
}

// Rights is what a guest may at this moment.
type Rights struct {
	Name     string   // by which others are told of them
	See      []string // workspaces whose requests they may look at; none: a stranger
	Decide   []string // those in which they may decide
	Language string
	Operator bool // they may pause and resume, and see what belongs to no workspace
}

// Viewer reads verified documents; those that are not there are nil.
type Viewer interface {
	chat.Viewer
	Pending(k approval.Key) (*approval.Waiting, error)
	Record(ctx context.Context, k approval.Key) (*approval.Record, error)
	Decision(k approval.Key, raw approval.Raw) *approval.Decision
	Asked(k approval.Key, raw approval.Raw) *approval.Pending
	// Decided is the valid decision in the slot of a pending.
	Decided(w approval.Waiting) *approval.Decision
}

// People says who may what.
type People interface {
	Rights(g User) Rights
	// May says whether the guest may decide, and so see, this pending.
	May(g User, workspace string, p *approval.Pending) bool
	// Interceptor decides for the guest, and refuses whatever they may not.
	Interceptor(g User) *chat.Interceptor
}

// Server serves the pages. Fill the fields in, then call Run; without People or
// Viewer it refuses everything.
type Server struct {
	People     People
	Viewer     Viewer
	Style      func(language string) chat.Style // nil: the zero Style of that language
	Workspaces func() []string                  // all that are configured
	Backend    Backend                          // what else can be seen

	Hosts []string         // names that a request may be meant for, with their ports
	Home  string           // where links lead: "http://127.0.0.1:8766"
	Now   func() time.Time // nil: time.Now
	Log   func(error)      // what is wrong with the disk; never what a browser sent; may be nil

	Connections int           // at once; 0: DefaultConnections
	IOTimeout   time.Duration // for headers, for a body, and with who does not read; 0: DefaultIOTimeout
	LinkLife    time.Duration // 0: DefaultLinkLife
	Idle        time.Duration // after which a session without an open page ends; 0: DefaultIdle
	SessionLife time.Duration // after which every session ends; 0: DefaultSessionLife

	once     sync.Once
	quit     chan struct{} // closed when the pages are served no more
	sessions sessions
	shelf    shelf
	rows     rows
	readers  chan struct{} // who reads the log, which may be long
}

// maxReaders is how many pages are made from the log at once, so that nobody who
// looks for something keeps the gate from its work.
const maxReaders = 2

// What a Server has where nothing else is said.
const (
	DefaultConnections = 4096
	DefaultIOTimeout   = 10 * time.Second
	DefaultLinkLife    = time.Minute
	DefaultIdle        = time.Hour
	DefaultSessionLife = 12 * time.Hour
)

func (s *Server) init() {
	s.once.Do(func() {
		s.quit = make(chan struct{})
		orElse(&s.Connections, DefaultConnections)
		orElse(&s.IOTimeout, DefaultIOTimeout)
		orElse(&s.LinkLife, DefaultLinkLife)
		orElse(&s.Idle, DefaultIdle)
		orElse(&s.SessionLife, DefaultSessionLife)
		if s.Now == nil {
			s.Now = time.Now
		}
		if s.Style == nil {
			s.Style = func(language string) chat.Style { return chat.Style{Language: language} }
		}
		s.shelf.init()
		s.readers = make(chan struct{}, maxReaders)
	})
}

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Changed tells open pages that something may have happened to a request; the
// zero key means to any. It never blocks.
func (s *Server) Changed(k approval.Key) {
	s.init()
	s.shelf.stir(k)
}

// Run serves on the listener until ctx ends. Sessions end with it.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	s.init()
	web := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: s.IOTimeout,
		ReadTimeout:       2 * s.IOTimeout,
		WriteTimeout:      6 * s.IOTimeout, // a stream sets its own, line by line
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		Protocols:         new(http.Protocols),
		ErrorLog:          log.New(io.Discard, "", 0), // a stranger's bytes would stand there
	}
	web.Protocols.SetHTTP1(true)
	errs := make(chan error, 1)
	go func() { errs <- web.Serve(&limited{Listener: l, most: s.Connections}) }()
	var wg sync.WaitGroup
	warming, stop := context.WithCancel(ctx)
	wg.Go(func() { s.warm(warming) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-errs:
	}
	stop()
	close(s.quit)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if web.Shutdown(last) != nil {
		_ = web.Close() // whoever is left has had time enough
	}
	wg.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// complete says that there is somebody to ask; otherwise nobody is let in.
func (s *Server) complete() bool { return s.People != nil && s.Viewer != nil && s.Workspaces != nil }

func (s *Server) log(err error) {
	if s.Log != nil && err != nil {
		s.Log(err)
	}
}

// limited closes what comes beyond most at once: to let it wait would let
// everybody behind it wait too.
type limited struct {
	net.Listener
	most int

	mu sync.Mutex
	n  int
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.add(1) {
			return &counted{Conn: c, leave: sync.OnceFunc(func() { l.add(-1) })}, nil
		}
		_ = c.Close()
	}
}

func (l *limited) add(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 0 && l.n >= l.most {
		return false
	}
	l.n += n
	return true
}

type counted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}
