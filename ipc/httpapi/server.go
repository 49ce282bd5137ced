package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/ipc/service"
)

// Decider writes a decision into the slot, or refuses with an *decide.Refusal. It
// checks whether the person may decide.
type Decider interface {
	Decide(ctx context.Context, a decide.Input) (*approval.Decision, error)
}

// Keys finds an API key by its hash. The error wraps fs.ErrNotExist if there is none. It
// may return a revoked key, which is refused.
type Keys interface {
	Key(hash string) (*apikey.Key, error)
}

// AuditFeed is the audit log as a client may follow it.
type AuditFeed interface {
	// Since calls each for every durable entry after the one numbered seq, in
	// order.
	Since(seq int64, each func(event.Entry) error) error
	// Moved returns the number of the newest durable entry, and a channel that is closed
	// when there is a newer one.
	Moved() (newest int64, moved <-chan struct{})
}

// Grants lists and revokes grants.
type Grants interface {
	// GrantsIn lists those of a workspace, the newest first.
	GrantsIn(workspace string) []grant.Use
	// RevokeGrant revokes one, durably. done is false if it was already revoked.
	RevokeGrant(id, by string) (done bool, err error)
}

// Receipts verifies and redeems receipts.
type Receipts interface {
	// Parse returns the contents of a receipt of this gate, even if it has expired.
	Parse(receipt string) (approval.ReceiptFacts, error)
	// Check says why a receipt is not valid for a tool and a digest of arguments; ""
	// requires nothing.
	Check(receipt, tool, argsSHA256 string, allowExpired bool) error
	// CheckSubset checks that the receipt covers used, a part of the approved arguments.
	CheckSubset(receipt string, approved, used []byte) error
	// Redeem marks it as used. The error wraps fs.ErrExist if that was done before, and
	// fs.ErrNotExist if the request has no record yet.
	Redeem(ctx context.Context, f approval.ReceiptFacts, by string) error
}

// InboxMail is a reply from an approver's mailbox: either a complete message, or its
// subject and body.
type InboxMail struct {
	Raw           []byte
	Subject, Body string
	From          string // as the caller says; "": it says nothing
	Approver      string // the owner of the key
	Authenticated bool   // the caller has authenticated that the owner wrote it
}

// InboxResult is the result of a mail.
type InboxResult struct {
	Key    approval.Key
	Status string // approved, denied, pending
}

// Inbox is the intake of the email channel. Take refuses with an *decide.Refusal, or
// with an error that wraps ErrInbox.
type Inbox interface {
	Take(ctx context.Context, m InboxMail) (InboxResult, error)
}

// Errors of an Inbox that takes no mail.
var (
	ErrNoInbox       = errors.New("email is not configured")
	ErrInboxStarting = errors.New("the email channel is starting: try again")
)

// ErrInbox is wrapped by errors about a mail that cannot be understood. The client gets
// the text after it.
var ErrInbox = errors.New("unclear")

// Check reports whether the gate makes progress and its disk works.
type Check func(ctx context.Context) error

// Server is the HTTP API of a Service. Set the fields, then call Run. Without Keys it
// refuses everything.
type Server struct {
	*service.Service
	Decider  Decider
	Keys     Keys
	Feed     AuditFeed
	Grants   Grants // nil: no grants
	Receipts Receipts
	Inbox    Inbox
	// MCP serves the Model Context Protocol to the client that ClientFrom finds; nil: not.
	MCP     http.Handler
	Ready   Check            // nil: never ready
	Metrics *Metrics         // nil: none
	Hosts   []string         // allowed Host headers, with ports
	Local   []LocalOperation // for a LocalServer
	Version string           // program version
	Log     zerolog.Logger
	Now     func() time.Time // nil: time.Now

	Connections int           // concurrent; 0: defaultConnections
	IOTimeout   time.Duration // for headers, and for a body; 0: defaultIOTimeout

	once          sync.Once
	quit          chan struct{} // closed at shutdown: waiting callers get an answer
	quitting      sync.Once
	handler       http.Handler
	busy          busyKeys
	readyCache    readyCache
	errorLimiter  *rate.Limiter // of log messages that clients can cause
	badKeyLimiter *rate.Limiter
}

// Defaults of a Server.
const (
	defaultConnections   = 4096
	defaultIOTimeout     = 10 * time.Second
	defaultSubmitTimeout = 10 * time.Second
	longestWait          = 60 * time.Second
)

func (s *Server) init() {
	s.once.Do(func() {
		s.quit = make(chan struct{})
		s.errorLimiter = rate.NewLimiter(rate.Every(10*time.Second), 10)
		s.badKeyLimiter = rate.NewLimiter(rate.Every(10*time.Second), 10)
		if s.Service == nil {
			s.Service = &service.Service{}
		}
		s.Connections = cmp.Or(s.Connections, defaultConnections)
		s.IOTimeout = cmp.Or(s.IOTimeout, defaultIOTimeout)
		s.SubmitTimeout = cmp.Or(s.SubmitTimeout, defaultSubmitTimeout)
		if s.Now == nil {
			s.Now = time.Now
		}
		if s.Metrics == nil {
			s.Metrics = NewMetrics()
		}
		s.handler = s.build()
	})
}

// stop answers callers that wait.
func (s *Server) stop() {
	s.init()
	s.quitting.Do(func() { close(s.quit) })
}

// Run serves the listeners until ctx ends. Then it accepts no new requests, answers
// callers that wait, and closes the listeners.
func (s *Server) Run(ctx context.Context, listeners ...net.Listener) error {
	s.init()
	web := s.newHTTP(s.Handler(), s.IOTimeout)
	web.WriteTimeout, web.IdleTimeout = longestWait+s.IOTimeout+s.SubmitTimeout, 2*time.Minute
	slots := make(chan struct{}, s.Connections)
	limited := make([]net.Listener, 0, len(listeners))
	for _, l := range listeners {
		limited = append(limited, &limitedListener{l, slots})
	}
	return s.serve(ctx, web, s.IOTimeout, func() {}, limited...)
}

// newHTTP returns a server with the settings that all listeners have.
func (s *Server) newHTTP(h http.Handler, timeout time.Duration) *http.Server {
	web := &http.Server{
		Handler: h, ReadHeaderTimeout: timeout, IdleTimeout: timeout, MaxHeaderBytes: 16 << 10,
		Protocols: new(http.Protocols),
	}
	web.Protocols.SetHTTP1(true)
	return web
}

// serve serves listeners until ctx ends. Then it answers callers that wait, calls end, and
// gives requests in progress the time of last.
func (s *Server) serve(
	ctx context.Context, web *http.Server, last time.Duration, end func(), listeners ...net.Listener,
) error {
	errs := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { errs <- web.Serve(l) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-errs:
	}
	s.stop()
	end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), last)
	defer cancel()
	if shutdownErr := web.Shutdown(ctx); shutdownErr != nil {
		_ = web.Close() // remaining clients exceeded the timeout
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
