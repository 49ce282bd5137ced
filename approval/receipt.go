package approval

import "time"

// ReceiptFacts is the content of a receipt.
type ReceiptFacts struct {
	Gate          string // the signer's name
	Workspace     string
	RequestID     string
	RequestSHA256 string // of the bytes received
	PendingSHA256 string // of what a person was shown; "": no approver was asked
	Tool          string // "": release-only
	ActionType    string
	ArgsSHA256    string // of request_data
	ArgsSubset    string // JSON list of the lists in request_data of which a part may be used; "": none
	DecisionType  string // approved or auto_approved
	By            string
	Via           string
	Rule          string
	Issued        time.Time
	Expires       time.Time
	Audience      string
}
