package approval

import "errors"

// Origin is where a request came from, in the word of the door that took it.
// Nothing of it was written by an agent. The zero Origin is the workspace's own
// folder of requests.
type Origin struct {
	ClientID  string // who asks; "": whatever writes into the folder
	Principal string // the approver it asks for, who alone decides; "": as the workspace has it
	AskOn     string // the one channel to ask on, "telegram" or "email"; "": on all of them
	Fresh     bool   // the door has just drawn the id, at random: there can be nothing under it yet
}

// FolderClient is the client id of whatever writes into a workspace's folder.
func FolderClient(workspace string) string { return "ws:" + workspace }

// Client is the origin's client id in a workspace.
func (o Origin) Client(workspace string) string {
	if o.ClientID == "" {
		return FolderClient(workspace)
	}
	return o.ClientID
}

// Taken is what a request has become that a door inside the daemon submitted.
type SubmitResult struct {
	Repeated bool     // it had been accepted before, with these bytes from this origin
	Pending  *Pending // what somebody is asked since now; nil: look at what there is
}

// Why a gate did not accept what a door inside the daemon submitted. Besides
// these it may be ErrMalformed, ErrRefused (too large), or an error of the disk.
// Nothing of the request is left then, except after ErrPaused and errors of the
// disk: the same request under the same id finds out.
var (
	// ErrLimitReached says that the workspace has used up one of its limits.
	ErrLimitReached = errors.New("too many requests")
	// ErrDegraded says that the gate takes no new work: see its Problem.
	ErrDegraded = errors.New("the gate cannot take requests now")
	// ErrPaused says that the request would have run at once and could not yet.
	ErrPaused = errors.New("the gate is paused, or every place for a handler is taken")
	// ErrIDTaken says that the id is that of other bytes, or of somebody else's.
	ErrIDTaken = errors.New("the id is that of another request")
	// ErrShortIDTaken says that the first digits of the id are those of another
	// request: another id will do.
	ErrShortIDTaken = errors.New("the id resembles that of another request")
	// ErrWorkspaceRefused says that the workspace takes nothing from this origin.
	ErrWorkspaceRefused = errors.New("not possible in this workspace")
)
