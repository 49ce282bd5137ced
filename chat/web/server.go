package web

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// Via is how decisions that were made in a browser are marked.
const Via = "web"

// User is the logged-in user of a session.
type User struct {
	Person   approval.Person
	Operator bool // the link was requested by a process that can read HOME
}

// Rights is what a user may do at this moment.
type Rights struct {
	Name     string   // shown to other people
	See      []string // workspaces whose requests the user may see; none: no access
	Decide   []string // workspaces in which the user may decide
	Language string
	Operator bool // may pause and resume, and see entries without a workspace
}

// viewer reads verified documents. A missing document is nil.
type viewer interface {
	Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error)
	Story(ctx context.Context, k approval.Key) (read.Story, error)
	// Decided returns the valid decision in the slot of a pending, or nil.
	Decided(ctx context.Context, w approval.StoredPending) (*approval.Decision, error)
	// Requests finds requests, the newest first. more is true if older ones match too.
	Requests(q read.Query) (list []*read.Request, more bool, err error)
}

// people gives the rights of users.
type people interface {
	Rights(u User) Rights
	// May reports whether the user may decide, and so see, this pending.
	May(u User, workspace string, p *approval.Pending) bool
	// Interceptor decides in the user's name and refuses what the user may not do.
	Interceptor(u User) *chat.Interceptor
}

// Server serves the pages. Set the fields, then call Run. Without people, viewer
// or Workspaces it refuses every request.
type Server struct {
	People     people
	Viewer     viewer
	Style      func(language string) chat.Style // nil: the zero Style of that language
	Workspaces func() []string                  // all configured workspaces
	Backend    Backend                          // data of the other pages

	Hosts   []string         // accepted Host headers, with their ports
	BaseURL string           // base URL of links: "http://127.0.0.1:8766"
	Now     func() time.Time // nil: time.Now
	Log     func(error)      // gets errors of the daemon, never what a browser sent; may be nil

	Connections int           // at the same time; 0: defaultConnections
	IOTimeout   time.Duration // for reading headers, reading a body, and writing; 0: defaultIOTimeout
	LinkLife    time.Duration // 0: defaultLinkLife
	Idle        time.Duration // after which a session without an open page ends; 0: defaultIdle
	SessionLife time.Duration // after which every session ends; 0: defaultSessionLife

	once        sync.Once
	quit        chan struct{} // closed when Run ends
	connections atomic.Int64
	sessions    sessions
	cache       pendingCache
	rowCache    rowCache
	logReaders  chan struct{} // slots for reading the audit log
}

// maxLogReaders limits the pages that read the audit log at the same time, so that
// searches do not slow the gate down.
const maxLogReaders = 2

// Defaults of a Server.
const (
	defaultConnections = 4096
	defaultIOTimeout   = 10 * time.Second
	defaultLinkLife    = time.Minute
	defaultIdle        = time.Hour
	defaultSessionLife = 12 * time.Hour
)

func (s *Server) init() {
	s.once.Do(func() {
		s.quit = make(chan struct{})
		s.Connections = cmp.Or(s.Connections, defaultConnections)
		s.IOTimeout = cmp.Or(s.IOTimeout, defaultIOTimeout)
		s.LinkLife = cmp.Or(s.LinkLife, defaultLinkLife)
		s.Idle = cmp.Or(s.Idle, defaultIdle)
		s.SessionLife = cmp.Or(s.SessionLife, defaultSessionLife)
		if s.Now == nil {
			s.Now = time.Now
		}
		if s.Style == nil {
			s.Style = func(language string) chat.Style { return chat.Style{Language: language} }
		}
		s.cache.init()
		s.logReaders = make(chan struct{}, maxLogReaders)
	})
}

// Changed makes open pages check a request again. The zero key stands for all
// requests. It never blocks.
func (s *Server) Changed(k approval.Key) {
	s.init()
	s.cache.touch(k)
}

// Run serves on the listener until ctx ends. All sessions end with it.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	s.init()
	web := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: s.IOTimeout,
		ReadTimeout:       2 * s.IOTimeout,
		WriteTimeout:      6 * s.IOTimeout, // an event stream sets its own deadline for each write
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnState:         s.limitConnections,
		Protocols:         new(http.Protocols),
	}
	web.Protocols.SetHTTP1(true)
	errs := make(chan error, 1)
	go func() { errs <- web.Serve(l) }()
	var wg sync.WaitGroup
	warming, stop := context.WithCancel(ctx)
	wg.Go(func() { s.prerender(warming) })
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
		_ = web.Close() // the remaining connections have had a second to finish
	}
	wg.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// configured reports whether rights can be checked. If not, access is refused.
func (s *Server) configured() bool { return s.People != nil && s.Viewer != nil && s.Workspaces != nil }

func (s *Server) log(err error) {
	if s.Log != nil && err != nil {
		s.Log(err)
	}
}

// limitConnections closes connections beyond the limit at once: if the listener delayed one, it would delay all
// later ones too.
func (s *Server) limitConnections(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if s.connections.Add(1) > int64(s.Connections) {
			_ = c.Close()
		}
	case http.StateClosed:
		s.connections.Add(-1)
	}
}
