// Package local is the channel for the people of one machine where a system
// user runs the gate, whose files they cannot read: a Unix socket, and the
// kernel's word for who is at its other end.
//
// # Who
//
// Any local user may connect. The UID that the kernel reports (SO_PEERCRED)
// identifies the user. A UID that the server does not know gets one neutral
// sentence, whatever it sends. So does a peer in a sandbox or container, as far as
// the kernel shows that: its agent has the UID of the user who started it. A user
// sees only workspaces whose requests that user may decide. Replies go to the same
// Decide as those of every other channel.
//
// # Wire
//
// A request is one line of JSON, strict, at most 256 KiB; its answer is one or
// more lines, the last of which has "end":true. Documents are base64, so that
// their bytes stay what they were:
//
//	{"op":"pending","workspaces":["personal"]}
//	{"op":"find","prefix":"a7f3","workspaces":[]}
//	{"op":"show","workspace":"personal","id":"a7f3…"}
//	{"op":"decide","workspace":"personal","id":"a7f3…","pending_sha256":"…","verdict":"approved","code":"1","scope":"once",
//	 "note":"","override":"","feedback":"","answer":""}
//	{"op":"status"}
//	{"op":"ui"}
//
// The last asks for a link that opens the pages of the gate in a browser, once: it
// is the asker's, and a secret.
//
// A connection may ask again after the end of an answer. It is closed when a
// line does not come, or an answer is not taken, within ten seconds; one uid
// has at most eight at a time.
package local

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
)

const (
	maxRequest = 256 << 10
	maxAnswer  = 128 << 20 // a line of ours: a record holds requests of up to 16 MiB
	patience   = 10 * time.Second
	maxPerUID  = 8
)

// The things that can be asked for.
const (
	opPending = "pending"
	opFind    = "find"
	opShow    = "show"
	opDecide  = "decide"
	opStatus  = "status"
	opUI      = "ui"
)

// request is what a line of a client's may hold.
type request struct {
	Op            string           `json:"op"`
	Workspaces    []string         `json:"workspaces,omitempty"` // none: all that are theirs
	Prefix        string           `json:"prefix,omitzero"`
	Workspace     string           `json:"workspace,omitzero"`
	ID            string           `json:"id,omitzero"`
	PendingSHA256 string           `json:"pending_sha256,omitzero"`
	Verdict       approval.Verdict `json:"verdict,omitzero"`
	Code          string           `json:"code,omitzero"`
	Scope         approval.Scope   `json:"scope,omitzero"`
	Note          string           `json:"note,omitzero"`
	Override      string           `json:"override,omitzero"`
	Feedback      string           `json:"feedback,omitzero"`
	Answer        string           `json:"answer,omitzero"`
}

func (r request) key() approval.Key { return approval.Key{Workspace: r.Workspace, ID: r.ID} }

// answer is one line of ours.
type answer struct {
	Workspace string       `json:"workspace,omitzero"`
	ID        string       `json:"id,omitzero"`
	Pending   []byte       `json:"pending,omitempty"`
	SHA256    string       `json:"pending_sha256,omitzero"`
	Record    []byte       `json:"record,omitempty"`
	Decision  []byte       `json:"decision,omitempty"`
	Status    approval.Raw `json:"status,omitempty"`
	Link      string       `json:"link,omitzero"`
	LinkLife  int          `json:"link_sec,omitzero"`
	Language  string       `json:"language,omitzero"`
	Refusal   *refusal     `json:"refusal,omitzero"`
	Error     string       `json:"error,omitzero"`
	End       bool         `json:"end,omitzero"`
}

func (a answer) key() approval.Key { return approval.Key{Workspace: a.Workspace, ID: a.ID} }

// refusal is an approval.Refusal on the wire.
type refusal struct {
	Reason  string           `json:"reason"`
	By      string           `json:"by,omitzero"`
	At      time.Time        `json:"at,omitzero"`
	Verdict approval.Verdict `json:"verdict,omitzero"`
	Hint    string           `json:"hint,omitzero"`
}

// reasons are the refusals that both sides know.
func reasons() []error {
	return []error{approval.ErrNotAuthorized, approval.ErrUnknown, approval.ErrDecided, approval.ErrTooLate, approval.ErrNotApplicable}
}

func refused(r *approval.Refusal) answer {
	w := &refusal{Reason: approval.ErrNotAuthorized.Error(), By: r.By, At: r.At, Verdict: r.Verdict, Hint: r.Hint}
	for _, reason := range reasons() {
		if errors.Is(r, reason) {
			w.Reason = reason.Error()
		}
	}
	return answer{Refusal: w, End: true}
}

// given is the refusal as Decide gave it.
func (w *refusal) given() *approval.Refusal {
	r := &approval.Refusal{Reason: errors.New(w.Reason), By: w.By, At: w.At, Verdict: w.Verdict, Hint: w.Hint}
	for _, reason := range reasons() {
		if w.Reason == reason.Error() {
			r.Reason = reason
		}
	}
	return r
}

// parse is strict, and shallow: no request holds an object.
func parse(line []byte) (request, error) {
	var r request
	if err := approval.CheckDepth(line); err != nil {
		return r, err
	}
	if err := json.Unmarshal(line, &r, json.RejectUnknownMembers(true)); err != nil {
		return r, fmt.Errorf("parse request: %w", err)
	}
	return r, nil
}
