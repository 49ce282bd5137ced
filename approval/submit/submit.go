// Package submit is what a protocol tells the gate with a request, and what the gate
// answers at once.
package submit

import (
	"errors"

	"github.com/permesso-dev/permesso/approval"
)

// Origin is where a request came from, as stated by the API handler that received
// it. No agent writes any of it. The zero Origin is the workspace's requests
// folder.
type Origin struct {
	ClientID  string // "": any process that writes into the folder
	Principal string // the only approver who decides; "": the workspace's
	AskOn     string // "telegram" or "email"; "": all channels
	Fresh     bool   // the API just generated the id at random: no documents exist for it
}

// FolderClient is the client id of any process that writes into a workspace's
// folder.
func FolderClient(workspace string) string { return "ws:" + workspace }

// Client is the origin's client id in a workspace.
func (o Origin) Client(workspace string) string {
	if o.ClientID == "" {
		return FolderClient(workspace)
	}
	return o.ClientID
}

// Result is the result of a request submitted inside the daemon.
type Result struct {
	Repeated bool              // it was accepted before, with the same bytes and origin
	Pending  *approval.Pending // newly asked; nil: read the existing documents
	SHA256   string            // of Pending as stored
}

// Why the gate did not accept a submission. Others are approval.ErrMalformed,
// store.ErrRefused
// (too large) and disk errors. Nothing of the request is kept, except possibly
// after ErrPaused and disk errors: then submit it again under the same id.
var (
	// ErrLimitReached says that the workspace has used up one of its limits.
	ErrLimitReached = errors.New("too many requests")
	// ErrDegraded says that the gate takes no new work.
	ErrDegraded = errors.New("the gate cannot take requests now")
	// ErrPaused says that the request is allowed but cannot run yet.
	ErrPaused = errors.New("the gate is paused, or all handler slots are in use")
	// ErrIDTaken says that the id belongs to other bytes or another client.
	ErrIDTaken = errors.New("request id already in use by another request")
	// ErrWorkspaceRefused says that the workspace does not accept this origin.
	ErrWorkspaceRefused = errors.New("not possible in this workspace")
)
