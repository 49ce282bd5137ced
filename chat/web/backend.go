package web

import (
	"context"
	"errors"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// Backend gives the pages the data that does not belong to pending requests.
type Backend struct {
	Grants        grants
	Rules         func(workspaces []string) []Rule
	Audit         audit
	WorkspaceInfo workspaceInfo
	Pauser        pauser
	Push          pusher // nil: no notifications without an open page
	// Reveal returns a request for a user who wants to see what its card masks, or a
	// *decide.Refusal. The audit log has it before Reveal returns.
	Reveal func(ctx context.Context, u User, k approval.Key) (*approval.StoredPending, error)
	// ProposeRule returns a rule that would allow a request, for a user who may see it.
	ProposeRule func(ctx context.Context, u User, k approval.Key) (chat.Proposal, error)
	// ClearTaints clears what the agent of this request has read. Only the operator may.
	ClearTaints func(ctx context.Context, u User, workspace, session string) error
}

// grants lists the grants of a workspace, the newest first.
type grants interface {
	GrantsIn(workspace string) []grant.Use
}

// Rule is one rule of the operator. Rules keep their order in the configuration.
type Rule struct {
	Name    string
	Match   []string // its conditions, each "name value"
	Outcome approval.Outcome
	Reason  string
}

// ErrBusy reports that a verification is already running.
var ErrBusy = errors.New("already running")

// audit reads the audit log.
type audit interface {
	Entries(ctx context.Context, q read.EntryQuery) (list []event.Entry, more bool, err error)
	// Verify checks the complete log and returns a one-line summary. The error
	// tells what is wrong with the log, or wraps ErrBusy.
	Verify(ctx context.Context) (found string, err error)
}

// Workspace is a workspace with data of the configuration and the audit log.
type Workspace struct {
	Name, Autonomy, Principal string
	Approvers, Channels       []string
	Limits                    approval.Limits
	Timeout                   time.Duration
	Rates                     []string            // rate limits of policy, as written in the configuration
	Taints                    map[string][]string // by client
	Waiting                   int
	Stats                     *read.Stats // of the last weeks
}

// workspaceInfo describes workspaces.
type workspaceInfo interface {
	Workspace(ctx context.Context, workspace string) (*Workspace, error)
	// Paused reports whether the workspace itself is paused, and whether all are.
	Paused(workspace string) (own, all bool)
}

// pauser pauses and resumes execution in a workspace, or in all of them ("").
// The caller checks that the person may do it.
type pauser interface {
	Pause(ctx context.Context, workspace string, by approval.Person, reason string) error
	Resume(ctx context.Context, workspace string, by approval.Person) error
}
