package telegram

import (
	"context"
	"net/http"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// Channel reaches approvers through one Telegram bot. Set the fields, then call Run. Fields without a comment
// are required.
type Channel struct {
	Token     string
	ServerURL string          // of a Bot API server; "": Telegram's own
	Client    httpClient      // nil: one with timeouts
	Webhook   *Webhook        // nil: long polling
	Updates   chat.StateStore // the journal of updates
	State     chat.StateStore // state of no single request: digests, the feed
	Sent      chat.SentStore

	Viewer      viewer
	Interceptor *chat.Interceptor
	Guard       guard
	Pauser      pauser  // nil: pausing is unavailable
	History     history // nil: /last is unavailable
	// Workspaces returns the workspaces whose approvers are asked here, in the current configuration.
	Workspaces func() []Workspace
	Feed       func() bool                      // whether to list what policy allowed; nil: no
	Style      func(language string) chat.Style // how cards are rendered
	Foot       func() string                    // last line of a card; nil: none
	Changes    <-chan approval.Key              // hints that a request changed; nil: polling only
	Problem    func(what, hint string)          // reports a problem to the operator; "" clears it; nil: no reports
	Log        func(error)                      // errors that no user in a chat can fix; nil: dropped
	Every      time.Duration                    // poll interval without a hint; 0: 5 s
	Retry      time.Duration                    // delay after a first failure; 0: 1 s
	Now        func() time.Time                 // nil: time.Now

	running    atomic.Pointer[session]
	noLimits   bool // for tests: no rate limits and no digests …
	floodLimit bool // … but digests stay on
}

// Workspace is a workspace whose approvers are asked through Telegram.
type Workspace struct {
	Name     string
	Language string
	Places   []Place // none: its requests cannot be asked
	Quiet    approval.QuietHours
}

// Place is a chat or topic that gets the cards of a workspace.
type Place struct {
	Chat     int64  // a user's ID, or a group's, which is negative
	Thread   int    // of a forum topic; 0: the chat itself
	Language string // "": the workspace's
	Person   string // the approver whose private chat it is; "": a group
}

// Story is a snapshot of one request.
type Story struct {
	Pending  *approval.Pending  // nil: unknown, or never asked
	SHA256   string             // of the pending's file; "": no longer pending
	Decision *approval.Decision // nil: not decided
	Record   *approval.Record   // nil: not settled
}

// viewer reads requests.
type viewer interface {
	Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error)
	Find(ctx context.Context, workspaces []string, prefix string) ([]approval.Key, error)
	// Story returns an empty Story and no error if there is no such request.
	Story(ctx context.Context, k approval.Key) (Story, error)
}

// guard knows who may decide. Decide checks it again; the channel uses it to hide requests from other users.
type guard interface {
	// May returns the person's name if they may decide in the workspace; p is nil if no single request is
	// meant.
	May(workspace string, p *approval.Pending, by approval.Person) (name string, ok bool)
	// Refused writes an audit entry about a user who may not decide.
	Refused(k approval.Key, by approval.Person)
}

// pauser pauses and resumes a workspace. The caller has checked that the person may. The change is durable on
// return; changed is false if there was nothing to change.
type pauser interface {
	Pause(ctx context.Context, workspace string, by approval.Person, reason string) (changed bool, err error)
	Resume(ctx context.Context, workspace string, by approval.Person) (changed bool, err error)
}

// history lists the last settled requests of the workspaces, newest first, at most n.
type history interface {
	Last(ctx context.Context, workspaces []string, n int) ([]approval.Key, error)
}

// Via marks decisions made through Telegram; it is also the channel of their deciders.
const Via = "telegram"

// The timeouts of a request, and of one that waits for updates.
const (
	pollTimeout    = 30 * time.Second
	requestTimeout = 40 * time.Second
	sendTimeout    = 20 * time.Second
	defaultEvery   = 5 * time.Second
)

var tokenForm = regexp.MustCompile(`^[0-9]+:[A-Za-z0-9_-]{20,}$`)

// ValidToken reports whether a text has the form of a token, so that no other secret is sent to Telegram as
// one.
func ValidToken(token string) bool { return tokenForm.MatchString(token) }

func (c *Channel) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

func (c *Channel) client() httpClient {
	if c.Client != nil {
		return c.Client
	}
	return &http.Client{Timeout: requestTimeout}
}

func (c *Channel) log(err error) {
	if err = Redact(c.Token, err); err != nil && c.Log != nil {
		c.Log(err)
	}
}
