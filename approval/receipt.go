package approval

import "time"

// ReceiptFacts is the content of a receipt.
type ReceiptFacts struct {
	Gate          string    `json:"gate"` // the signer's name
	Workspace     string    `json:"workspace"`
	RequestID     string    `json:"request_id"`
	RequestSHA256 string    `json:"request_sha256"` // of the bytes received
	PendingSHA256 string    `json:"pending_sha256"` // of what a person was shown; "": no approver was asked
	Tool          string    `json:"tool_name"`      // "": release-only
	ActionType    string    `json:"action_type"`
	ArgsSHA256    string    `json:"args_sha256"`             // of request_data
	ArgsSubset    string    `json:"args_subset"`             // JSON list of the lists in request_data of which a part may be used; "": none
	ProgramSHA256 string    `json:"program_sha256,omitzero"` // of a program's text, and args_sha256 is then of its plan; "": no program
	DecisionType  string    `json:"decision_type"`           // approved or auto_approved
	By            string    `json:"by"`
	Via           string    `json:"via"`
	Rule          string    `json:"rule"`
	Issued        time.Time `json:"issued"`
	Expires       time.Time `json:"expires"`
	Audience      string    `json:"audience"`
}
