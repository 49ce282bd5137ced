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

// Channel reaches people through one Telegram bot. Fill the fields in, then Run it. Those without a
// remark must be filled in.
type Channel struct {
	Token     string
	ServerURL string          // of a Bot API server; "": Telegram's
	Client    HTTPClient      // nil: one with time-outs
	Webhook   *Webhook        // nil: long polling
	Updates   chat.StateStore // the journal of updates
	Notes     chat.StateStore // what belongs to no single request: digests, the feed
	Notebook  chat.SentStore

	Viewer      Viewer
	Interceptor *chat.Interceptor
	Guard       Guard
	Pauser      Pauser  // nil: nobody pauses here
	History     History // nil: nobody asks what was decided
	// Workspaces gives those whose people are asked here, as the configuration has them at the moment.
	Workspaces func() []Workspace
	Feed       func() bool                      // whether what policy allowed is told, too; nil: it is not
	Style      func(language string) chat.Style // how people are shown things
	Foot       func() string                    // what a card ends with; nil: nothing more
	Changes    <-chan approval.Key              // hints that something changed; nil: the tick will do
	Problem    func(what, hint string)          // tells those who look after the gate; "" ends it; nil: nobody
	Log        func(error)                      // errors that nobody in a chat can mend; nil: nowhere
	Every      time.Duration                    // how often to look without a hint; 0: 5 s
	Retry      time.Duration                    // the wait after a first failure; 0: 1 s
	Now        func() time.Time                 // nil: time.Now

	running atomic.Pointer[session]
	eager   bool // for tests: neither Telegram's limits nor a flood hold anything back …
	calm    bool // … but a flood does
}

// Workspace is one whose people are asked through Telegram.
type Workspace struct {
	Name     string
	Language string
	Places   []Place // none: nobody can be asked
	Quiet    approval.QuietHours
}

// Place is where cards of a workspace are sent.
type Place struct {
	Chat     int64  // a person's id, or a negative one: a group's
	Thread   int    // of a forum's topic; 0: the chat itself
	Language string // "": that of the workspace
	Person   string // the approver whose private chat it is; "": a chat of several
}

// Story is what is known of one request at a moment.
type Story struct {
	Pending  *approval.Pending  // nil: it is not known, or was never asked
	SHA256   string             // of the pending's file as long as it waits; "": it waits no more
	Decision *approval.Decision // nil: nobody has decided
	Record   *approval.Record   // nil: it is not settled
}

// Viewer shows requests.
type Viewer interface {
	chat.Viewer
	chat.Finder
	// Story is empty, and no error, where there is no such request.
	Story(ctx context.Context, k approval.Key) (Story, error)
}

// Guard knows who may decide. Decide asks it again: here it only keeps what waits from strangers' eyes.
type Guard interface {
	// May names the person if they may decide in a workspace; p is nil where no single request is meant.
	May(workspace string, p *approval.Pending, by approval.Person) (name string, ok bool)
	// Refused has it audited that somebody tried who may not.
	Refused(k approval.Key, by approval.Person)
}

// Pauser holds everything that would run in a workspace, and lets it go again. Whether the person may has
// been asked. Both are durable when they return; changed is false where it was so before.
type Pauser interface {
	Pause(ctx context.Context, workspace string, by approval.Person, reason string) (changed bool, err error)
	Resume(ctx context.Context, workspace string, by approval.Person) (changed bool, err error)
}

// History lists the requests that were settled last in some workspaces, newest first, at most n.
type History interface {
	Last(ctx context.Context, workspaces []string, n int) ([]approval.Key, error)
}

// Via is how decisions that came through Telegram are marked, and the channel of the people who made them.
const Via = "telegram"

// The time-outs of a request, and of one that waits for updates.
const (
	pollTimeout    = 30 * time.Second
	requestTimeout = 40 * time.Second
	sendTimeout    = 20 * time.Second
	defaultEvery   = 5 * time.Second
)

var tokenForm = regexp.MustCompile(`^[0-9]+:[A-Za-z0-9_-]{20,}$`)

// ValidToken says whether a text could be a token, so that nothing else is sent to Telegram as one.
func ValidToken(token string) bool { return tokenForm.MatchString(token) }

func (c *Channel) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

func (c *Channel) client() HTTPClient {
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
