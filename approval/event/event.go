// Package event names the facts of the audit log and defines its entry. It is pure: it
// reads no file and no clock.
package event

import (
	"time"

	"github.com/permesso-dev/permesso/approval/codec"
)

// Kind names a fact of the audit log.
type Kind string

// The events of the audit log, one entry each.
const (
	Requested        Kind = "approval_requested" // an approver is asked
	Approved         Kind = "approved"
	Denied           Kind = "denied" // not by a person
	DeniedByUser     Kind = "denied_by_user"
	Answered         Kind = "answered"
	Overridden       Kind = "overridden"
	RequestMore      Kind = "request_more"
	Expired          Kind = "expired"
	Cancelled        Kind = "cancelled"
	AutoApproved     Kind = "auto_approved"
	AutoRejected     Kind = "auto_rejected"
	Executed         Kind = "executed"
	Released         Kind = "released" // approved; the gate itself runs nothing
	Failed           Kind = "failed"
	Interrupted      Kind = "interrupted"
	Redeemed         Kind = "redeemed"          // a receipt was used
	Granted          Kind = "granted"           // a grant was given
	Revoked          Kind = "revoked"           // a grant was revoked
	TaintsCleared    Kind = "taints_cleared"    // a person cleared taints
	Revealed         Kind = "revealed"          // a person was shown the masked secrets of a request
	RefusedDecider   Kind = "refused_decider"   // a person without authority tried to decide
	Forged           Kind = "forged"            // a document without a valid seal
	KeyCreated       Kind = "key_created"       // an HTTP API key was created
	KeyRevoked       Kind = "key_revoked"       // an HTTP API key was revoked
	ResponseRestored Kind = "response_restored" // a response was changed from outside
	Malformed        Kind = "malformed"
	Paused           Kind = "paused" // nothing runs until Resumed
	Resumed          Kind = "resumed"
	Configured       Kind = "configured" // the configuration was reloaded
	Pruned           Kind = "pruned"     // records older than their retention were removed
	KeyRotated       Kind = "key_rotated"
	Degraded         Kind = "degraded" // the gate takes no new work until Recovered
	Recovered        Kind = "recovered"
	LogAlarm         Kind = "log_alarm"              // the log lacks entries that were durable
	LogAcknowledged  Kind = "log_alarm_acknowledged" // the operator has ended the alarm
	Started          Kind = "started"                // the daemon
	Stopped          Kind = "stopped"
)

// DetailAgain marks the entry of an idempotent tool's second claim. Such an entry
// uses no grant and no budget.
const DetailAgain = "again"

// Entry is one fact of the audit log. Empty fields are not written.
type Entry struct {
	Seq           int64      `json:"seq"`  // assigned by the log, from 1 without gaps
	Time          time.Time  `json:"time"` // zero: the log's own clock
	Event         Kind       `json:"event"`
	Workspace     string     `json:"workspace,omitzero"`
	Tool          string     `json:"tool,omitzero"`
	Capability    string     `json:"capability,omitzero"`
	Target        string     `json:"target,omitzero"`
	ActionType    string     `json:"action_type,omitzero"`
	RequestID     string     `json:"request_id,omitzero"`
	ClientID      string     `json:"client_id,omitzero"`
	SessionID     string     `json:"session_id,omitzero"`
	By            string     `json:"by,omitzero"`
	ByID          string     `json:"by_id,omitzero"`
	Via           string     `json:"via,omitzero"`
	Channel       string     `json:"channel,omitzero"` // with Sender: the principal
	Sender        string     `json:"sender,omitzero"`
	Rule          string     `json:"rule,omitzero"`
	Reason        string     `json:"reason,omitzero"`
	ReceiptSHA256 string     `json:"receipt_sha256,omitzero"`
	Detail        string     `json:"detail,omitzero"`
	Grant         string     `json:"consent,omitzero"` // id of the grant or API key that was used, given or revoked
	Exact         string     `json:"exact,omitzero"`
	Soft          bool       `json:"soft,omitzero"` // asked, and a grant that covers it would have allowed it
	Cost          codec.Cost `json:"cost,omitzero"`
	Human         bool       `json:"human,omitzero"` // a person approved this one request
	Taints        []string   `json:"taints,omitempty"`
}
