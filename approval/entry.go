package approval

import "time"

// Event names a fact of the audit log.
type Event string

// The facts that are logged, one entry each.
const (
	EventRequested        Event = "approval_requested" // a person is being asked
	EventApproved         Event = "approved"
	EventDenied           Event = "denied" // by something else than a person
	EventDeniedByUser     Event = "denied_by_user"
	EventAnswered         Event = "answered"
	EventOverridden       Event = "overridden"
	EventRequestMore      Event = "request_more"
	EventExpired          Event = "expired"
	EventCancelled        Event = "cancelled"
	EventAutoApproved     Event = "auto_approved"
	EventAutoRejected     Event = "auto_rejected"
	EventExecuted         Event = "executed"
	EventReleased         Event = "released" // approved where the gate itself runs nothing
	EventFailed           Event = "failed"
	EventInterrupted      Event = "interrupted"
	EventRedeemed         Event = "redeemed"          // a receipt was used
	EventGranted          Event = "granted"           // consent was remembered
	EventRevoked          Event = "revoked"           // and taken back
	EventTaintsCleared    Event = "taints_cleared"    // a person says that what was read is forgotten
	EventRefusedDecider   Event = "refused_decider"   // somebody who may not decide tried to
	EventForged           Event = "forged"            // a document without a valid seal
	EventKeyCreated       Event = "key_created"       // somebody may ask, look or answer over HTTP
	EventKeyRevoked       Event = "key_revoked"       // and may no more
	EventResponseRestored Event = "response_restored" // somebody changed a response
	EventMalformed        Event = "malformed"
	EventPaused           Event = "paused" // nothing runs until
	EventResumed          Event = "resumed"
	EventConfigured       Event = "configured" // the configuration was read anew
	EventPruned           Event = "pruned"     // records older than their retention were removed
	EventKeyRotated       Event = "key_rotated"
	EventDegraded         Event = "degraded" // the gate takes no new work until
	EventRecovered        Event = "recovered"
	EventStarted          Event = "started" // the gate itself
	EventStopped          Event = "stopped"
)

// DetailAgain marks the entry of an idempotent tool's second claim, which
// consumes nothing anew.
const DetailAgain = "again"

// Entry is one fact of the audit log. Fields that an event has no use for stay
// empty and are not written.
type Entry struct {
	Seq           int64     `json:"seq"`  // given by the log, from 1 without gaps
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
	Channel       string    `json:"channel,omitzero"` // with Sender: whom it was asked for
	Sender        string    `json:"sender,omitzero"`
	Rule          string    `json:"rule,omitzero"`
	Reason        string    `json:"reason,omitzero"`
	ReceiptSHA256 string    `json:"receipt_sha256,omitzero"`
	Detail        string    `json:"detail,omitzero"`
	Grant         string    `json:"consent,omitzero"` // the grant, or the key's id, that was used, given or taken back
	Exact         string    `json:"exact,omitzero"`
	Cost          int64     `json:"cost,omitzero"`
	Human         bool      `json:"human,omitzero"` // a person approved this one request
	Taints        []string  `json:"taints,omitempty"`
}
