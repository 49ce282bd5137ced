package approval

import "time"

// Event names a fact of the audit log.
type Event string

// The events of the audit log, one entry each.
const (
	EventRequested        Event = "approval_requested" // an approver is asked
	EventApproved         Event = "approved"
	EventDenied           Event = "denied" // not by a person
	EventDeniedByUser     Event = "denied_by_user"
	EventAnswered         Event = "answered"
	EventOverridden       Event = "overridden"
	EventRequestMore      Event = "request_more"
	EventExpired          Event = "expired"
	EventCancelled        Event = "cancelled"
	EventAutoApproved     Event = "auto_approved"
	EventAutoRejected     Event = "auto_rejected"
	EventExecuted         Event = "executed"
	EventReleased         Event = "released" // approved; the gate itself runs nothing
	EventFailed           Event = "failed"
	EventInterrupted      Event = "interrupted"
	EventRedeemed         Event = "redeemed"          // a receipt was used
	EventGranted          Event = "granted"           // a grant was given
	EventRevoked          Event = "revoked"           // a grant was revoked
	EventTaintsCleared    Event = "taints_cleared"    // a person cleared taints
	EventRefusedDecider   Event = "refused_decider"   // a person without authority tried to decide
	EventForged           Event = "forged"            // a document without a valid seal
	EventKeyCreated       Event = "key_created"       // an HTTP API key was created
	EventKeyRevoked       Event = "key_revoked"       // an HTTP API key was revoked
	EventResponseRestored Event = "response_restored" // a response was changed from outside
	EventMalformed        Event = "malformed"
	EventPaused           Event = "paused" // nothing runs until EventResumed
	EventResumed          Event = "resumed"
	EventConfigured       Event = "configured" // the configuration was reloaded
	EventPruned           Event = "pruned"     // records older than their retention were removed
	EventKeyRotated       Event = "key_rotated"
	EventDegraded         Event = "degraded" // the gate takes no new work until EventRecovered
	EventRecovered        Event = "recovered"
	EventStarted          Event = "started" // the daemon
	EventStopped          Event = "stopped"
)

// DetailAgain marks the entry of an idempotent tool's second claim. Such an entry
// uses no grant and no budget.
const DetailAgain = "again"

// Entry is one fact of the audit log. Empty fields are not written.
type Entry struct {
	Seq           int64     `json:"seq"`  // assigned by the log, from 1 without gaps
	Time          time.Time `json:"time"` // zero: the log's own clock
	Event         Event     `json:"event"`
	Workspace     string    `json:"workspace,omitzero"`
	Tool          string    `json:"tool,omitzero"`
	Capability    string    `json:"capability,omitzero"`
	Target        string    `json:"target,omitzero"`
	ActionType    string    `json:"action_type,omitzero"`
	RequestID     string    `json:"request_id,omitzero"`
	ClientID      string    `json:"client_id,omitzero"`
	SessionID     string    `json:"session_id,omitzero"`
	By            string    `json:"by,omitzero"`
	ByID          string    `json:"by_id,omitzero"`
	Via           string    `json:"via,omitzero"`
	Channel       string    `json:"channel,omitzero"` // with Sender: the principal
	Sender        string    `json:"sender,omitzero"`
	Rule          string    `json:"rule,omitzero"`
	Reason        string    `json:"reason,omitzero"`
	ReceiptSHA256 string    `json:"receipt_sha256,omitzero"`
	Detail        string    `json:"detail,omitzero"`
	Grant         string    `json:"consent,omitzero"` // id of the grant or API key that was used, given or revoked
	Exact         string    `json:"exact,omitzero"`
	Cost          int64     `json:"cost,omitzero"`
	Human         bool      `json:"human,omitzero"` // a person approved this one request
	Taints        []string  `json:"taints,omitempty"`
}
