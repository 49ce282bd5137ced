package deliver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// Channel asks approvers through one service and takes their decisions. Set the fields, then call Run. Fields
// without a comment are required.
type Channel struct {
	Name    string // of the channel; also that of its users' approval.Person, and the Via of their decisions
	Adapter Adapter
	State   chat.StateStore // state of no single request: digests, the feed
	Sent    chat.SentStore

	Viewer      viewer
	Interceptor *chat.Interceptor
	Guard       guard
	Pauser      pauser  // nil: pausing is unavailable
	History     history // nil: /last is unavailable
	// Workspaces returns the workspaces whose approvers are asked here, in the current configuration.
	Workspaces func() []Workspace
	Feed       func() bool                             // whether to list what policy allowed; nil: no
	Tool       func(name string) (approval.Tool, bool) // as configured now, for the feed; nil: none is known
	Style      func(language string) chat.Style        // how cards are rendered
	Foot       func() string                           // last line of a card; nil: none
	Changes    <-chan approval.Key                     // hints that a request changed; nil: polling only
	Problem    func(what, hint string)                 // reports a problem to the operator; "" clears it; nil: no reports
	Note       func(what, hint string)                 // the same for what is no fault of the channel
	Elsewhere  func(workspace, text string)            // sends a text to the approvers by the other channels; nil: it cannot
	Approve    string                                  // the command that approves a request, without its ID, for hints; "": none
	Configure  func(workspace string, chat ID) string  // says how to make a chat the workspace's, for hints; nil: in general
	Log        func(error)                             // errors that no user in a chat can fix; nil: dropped
	Every      time.Duration                           // poll interval without a hint; 0: 5 s
	Retry      time.Duration                           // delay after a first failure; 0: 1 s
	MaxCards   int                                     // new cards a minute in a place, above which a digest begins; 0: 5
	Turn       time.Duration                           // within which the calls of one turn of an agent come; 0: 700 ms
	Now        func() time.Time                        // nil: time.Now

	running atomic.Pointer[session]
	limited limitedCounts
}

// Workspace is a workspace whose approvers are asked on a channel.
type Workspace struct {
	Name     string
	Language string
	Places   []Place // none: its requests cannot be asked
	Quiet    approval.QuietHours
}

// Place is a chat or a thread that gets the cards of a workspace.
type Place struct {
	Address
	Language string // "": the workspace's
	Person   string // the approver whose private chat it is; "": a group
}

// viewer reads requests.
type viewer interface {
	Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error)
	Find(ctx context.Context, workspaces []string, prefix string) ([]approval.Key, error)
	// Story returns an empty Story and no error if there is no such request.
	Story(ctx context.Context, k approval.Key) (read.Story, error)
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

// history lists the last settled requests of the workspaces, newest first, at most n. Those that were refused without
// an approver are not in it.
type history interface {
	Last(ctx context.Context, workspaces []string, n int) ([]approval.Key, error)
}

// Run asks approvers and takes their decisions until ctx ends. It returns an error if the adapter cannot
// receive events before the operator has fixed something. The caller may run it again later.
func (c *Channel) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s, err := c.newSession(ctx)
	if err != nil {
		return err
	}
	c.resumeLimited()
	c.running.Store(s)
	defer c.running.CompareAndSwap(s, nil)
	s.dispatcher.wait() // earlier taps decide before any status is shown
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.Adapter.Listen(ctx); err != nil && ctx.Err() == nil {
			stop(err)
		}
	})
	s.watch(ctx)
	wg.Wait()
	s.dispatcher.wait()
	s.outbox.wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// Alert sends a text to the places of a workspace. It may be lost.
func (c *Channel) Alert(workspace, text string) {
	s := c.running.Load()
	if s == nil {
		return
	}
	ws, _ := s.workspace(workspace)
	for _, to := range ws.Places {
		s.reply(to.Address, "", plain(Truncate(text, s.maxText())))
	}
}

func (c *Channel) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

func (c *Channel) log(err error) {
	if err != nil && c.Log != nil {
		c.Log(err)
	}
}
