package web

import (
	"context"
	"errors"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// Backend is what can be seen besides requests. Each is nil where there is nothing
// of the kind; its page then says so.
type Backend struct {
	Grants        Grants
	Rules         func(workspaces []string) []Rule
	History       History
	Audit         Audit
	WorkspaceInfo WorkspaceInfo
	Pauser        Pauser
}

// Consent is a remembered consent with its uses.
type GrantUse struct {
	approval.Grant
	Uses     int
	LastUsed time.Time
}

// Grants is what people let through from now on, the newest first.
type Grants interface {
	List(workspace string) []GrantUse
}

// Rule is one of the operator's, in the order in which they stand.
type Rule struct {
	Name    string
	Match   []string // what it is about, each "name value"
	Outcome approval.Outcome
	Reason  string
}

// HistoryQuery says which requests somebody wants to see; empty fields want
// nothing special.
type HistoryQuery struct {
	Workspaces []string
	Text       string // somewhere in tool, target, id or name
	Status     approval.Status
	Kind       string // the tool, or the action type where there is no tool
	Before     time.Time
	Limit      int
}

// Past is one request of the log.
type HistoryItem struct {
	Key                     approval.Key
	Kind, Target            string
	Status                  approval.Status
	By, Via, Rule           string
	Asked, Decided, EndedAt time.Time // zero: the log does not say, or not yet
}

// History finds requests in the log, the newest first, and says whether there
// are more.
type History interface {
	Past(ctx context.Context, q HistoryQuery) (list []HistoryItem, more bool, err error)
}

// EntryQuery says which entries somebody wants to see.
type EntryQuery struct {
	Workspaces []string
	All        bool // also what belongs to no workspace, or to one that is gone
	Text       string
	Before     int64 // number of the entry before which to look; 0: the newest
	Limit      int
}

// ErrBusy says that somebody else has asked for the same a moment ago.
var ErrBusy = errors.New("already under way")

// Audit is the audit log.
type Audit interface {
	Entries(ctx context.Context, q EntryQuery) (list []approval.Entry, more bool, err error)
	// Verify checks all of it, and says in a line what it found. Its error says
	// what is wrong with the log, or wraps ErrBusy.
	Verify(ctx context.Context) (found string, err error)
}

// ApproverStats is how one person decides.
type ApproverStats struct {
	Name              string
	Decided, Approved int
	Median            time.Duration // to decide
	Fast              int           // approvals within five seconds
	RubberStamping    bool          // enough of them, and fast enough, that nobody can have read them
}

// Workspace is a workspace as the configuration and the log know it.
type Workspace struct {
	Name, Autonomy, Principal string
	Approvers, Channels       []string
	Limits                    approval.Limits
	Timeout                   time.Duration
	Rates                     []string            // of policy, in the words of the configuration
	Taints                    map[string][]string // by client
	Waiting                   int
	Requests                  int // in the time that the tallies are of
	Median                    time.Duration
	People                    []ApproverStats
}

// WorkspaceInfo knows the workspaces.
type WorkspaceInfo interface {
	Workspace(ctx context.Context, workspace string) (*Workspace, error)
	// Paused says whether a workspace is paused by its own name, and whether all are.
	Paused(workspace string) (own, all bool)
}

// Pauser holds everything that would run in a workspace, or in all ("").
// Whether the person may is for the pages to ask.
type Pauser interface {
	Pause(ctx context.Context, workspace string, by approval.Person, reason string) error
	Resume(ctx context.Context, workspace string, by approval.Person) error
}
