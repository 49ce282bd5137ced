package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
)

// Gate takes requests in, and takes back what their own client no longer wants.
type Gate interface {
	Submit(ctx context.Context, k approval.Key, request []byte, from approval.Origin) (approval.SubmitResult, error)
	Cancel(ctx context.Context, k approval.Key, from approval.Origin) (*approval.Decision, error)
}

// Decider has an answer written into the slot, or refuses with an
// *approval.Refusal. Whether the person may decide is its business.
type Decider interface {
	Decide(ctx context.Context, a approval.DecisionInput) (*approval.Decision, error)
}

// Viewer reads verified documents; those that are not there are nil.
type Viewer interface {
	Waiting(ctx context.Context, workspaces []string) ([]approval.Waiting, error)
	Pending(k approval.Key) (*approval.Waiting, error)
	Claim(k approval.Key) (*approval.Claim, error)
	Record(ctx context.Context, k approval.Key) (*approval.Record, error)
	Decision(k approval.Key, raw approval.Raw) *approval.Decision
	Asked(k approval.Key, raw approval.Raw) *approval.Pending
}

// Keys finds what is kept of a key by the key's hash; it wraps fs.ErrNotExist
// where there is none. A revoked one may be given: it can do nothing.
type Keys interface {
	Key(hash string) (*approval.APIKey, error)
}

// Past is one request of the log.
type HistoryItem struct {
	Key     approval.Key
	AskedAt time.Time
	Status  approval.Status
}

// History finds requests that have ended, the newest first.
type History interface {
	// Ended lists at most limit requests of a workspace that were asked before
	// a time (zero: at any), as far as match says so, and whether there are more.
	Ended(ctx context.Context, workspace string, before time.Time, limit int, match func(client string, st approval.Status) bool) (list []HistoryItem, more bool, err error)
}

// Log is the audit log as a client may follow it.
type AuditFeed interface {
	// Since calls each for every durable entry after the one numbered seq, in
	// order.
	Since(seq int64, each func(approval.Entry) error) error
	// Moved gives the number of the newest durable entry, and a channel that is
	// closed when there is a newer one.
	Moved() (newest int64, moved <-chan struct{})
	// Follow says that somebody listens, until stop is called.
	Follow() (stop func())
}

// Consent is a remembered consent with its uses.
type GrantUse struct {
	approval.Grant
	Uses     int
	LastUsed time.Time
}

// Grants is what people let through from now on.
type Grants interface {
	// List gives those of a workspace, the newest first.
	List(workspace string) []GrantUse
	// Revoke takes one back, durably. done is false where nothing was left to
	// take back.
	Revoke(ctx context.Context, id, by string) (done bool, err error)
}

// ReceiptFacts is what a receipt says. Times are in UTC.
type ReceiptFacts struct {
	Workspace, RequestID, Tool, ActionType, ArgsSHA256, DecisionType, By, Via, Rule string
	Issued, Expires                                                                 time.Time
}

// ReceiptQuery is a receipt with what it is to be good for. Empty fields demand
// nothing.
type ReceiptQuery struct {
	Receipt      string
	Tool         string
	ArgsSHA256   string
	AllowExpired bool
}

// Receipts checks receipts and uses them up.
type Receipts interface {
	// Facts says what a receipt that this gate signed says, whatever it is good
	// for by now.
	Facts(receipt string) (ReceiptFacts, error)
	// Verify says why a receipt is not good for what is wished.
	Verify(w ReceiptQuery) error
	// Redeem uses it up; it wraps fs.ErrExist where that was done before, and
	// fs.ErrNotExist where the request has no record yet.
	Redeem(ctx context.Context, f ReceiptFacts, by string) error
}

// WorkspaceInfo is where the people of a workspace may be asked.
type WorkspaceInfo struct {
	Principal string   // the only approver; "": all of Approvers
	Channels  []string // telegram, email
	Chats     []string // Telegram's numbers of the workspace's chat and its approvers
	Addresses []string // e-mail addresses of its approvers
	MaxSize   int      // of a request, in bytes
}

// Settings is what the configuration says now.
type Settings interface {
	WorkspaceInfo(workspace string) (WorkspaceInfo, bool)
}

// InboxMail is what somebody brought who reads an approver's mail: either a whole
// message, or its subject and body.
type InboxMail struct {
	Raw           []byte
	Subject, Body string
	Approver      string // whose mail it is: that of the key it came with
}

// InboxResult says what came of it.
type InboxResult struct {
	Key    approval.Key
	Status string // approved, denied, pending
}

// Inbox is the intake of the e-mail channel. Take refuses with an
// *approval.Refusal, or with an error that wraps ErrInbox and says what is wrong.
type Inbox interface {
	Take(ctx context.Context, m InboxMail) (InboxResult, error)
}

// Why an Inbox takes nothing.
var (
	ErrNoInbox       = errors.New("e-mail is not configured")
	ErrInboxStarting = errors.New("e-mail is about to start: try again")
)

// ErrInbox is wrapped by what an Inbox cannot make sense of; the text behind it
// is told to whoever brought the mail.
var ErrInbox = errors.New("unclear")

// Check says whether the gate is alive and its disk works.
type Check func(ctx context.Context) error

// Server is the door. Fill the fields in, then call Run; without Gate, Keys,
// Viewer and Settings it refuses everything.
type Server struct {
	Gate     Gate
	Decider  Decider // nil: nobody decides here
	Viewer   Viewer
	Keys     Keys
	History  History   // nil: only what waits is listed
	Feed     AuditFeed // nil: no events
	Grants   Grants    // nil: there are none
	Receipts Receipts  // nil: none is checked here
	Inbox    Inbox     // nil: e-mail is not configured
	Settings Settings
	Ready    Check    // nil: never ready
	Metrics  *Metrics // nil: none
	Hosts    []string // names that a request may be meant for, with their ports
	Version  string   // of the program
	Log      zerolog.Logger
	Now      func() time.Time // nil: time.Now

	Connections   int           // at once; 0: DefaultConnections
	IOTimeout     time.Duration // for headers, and for a body; 0: DefaultIOTimeout
	SubmitTimeout time.Duration // how long a request may wait to be taken in; 0: DefaultSubmitTimeout

	hub     hub
	once    sync.Once
	quit    chan struct{} // closed when the door closes: whoever waits hears what there is
	busy    busyKeys
	pulse   pulse
	errors  seldom
	thieves seldom
}

// What a Server has where nothing else is said.
const (
	DefaultConnections   = 4096
	DefaultIOTimeout     = 10 * time.Second
	DefaultSubmitTimeout = 10 * time.Second
	longestWait          = 60 * time.Second
)

// Changed tells those who wait for a request that something may have happened to
// it. It never blocks.
func (s *Server) Changed(k approval.Key) { s.hub.wake(k) }

func (s *Server) init() {
	s.once.Do(func() {
		s.quit = make(chan struct{})
		if s.Connections == 0 {
			s.Connections = DefaultConnections
		}
		if s.IOTimeout == 0 {
			s.IOTimeout = DefaultIOTimeout
		}
		if s.SubmitTimeout == 0 {
			s.SubmitTimeout = DefaultSubmitTimeout
		}
		if s.Now == nil {
			s.Now = time.Now
		}
		if s.Metrics == nil {
			s.Metrics = NewMetrics()
		}
	})
}

// Run answers on the listeners until ctx ends. Then it takes nothing new, lets
// whoever waits have an answer, and closes the listeners.
func (s *Server) Run(ctx context.Context, listeners ...net.Listener) error {
	s.init()
	web := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: s.IOTimeout,
		WriteTimeout:      longestWait + s.IOTimeout + s.SubmitTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		Protocols:         new(http.Protocols),
		ErrorLog:          nobody(),
	}
	web.Protocols.SetHTTP1(true)
	errs := make(chan error, len(listeners))
	shared := &crowd{most: s.Connections}
	for _, l := range listeners {
		go func() { errs <- web.Serve(&limited{Listener: l, crowd: shared}) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-errs:
	}
	close(s.quit)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.IOTimeout)
	defer cancel()
	if shut := web.Shutdown(last); shut != nil {
		_ = web.Close() // whoever is left has had time enough
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
