package move

import (
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// IncompleteGrace is how long a request may stay unparsable, counted from when the
// daemon first saw it.
const IncompleteGrace = 2 * time.Second

// Presence says whether a document exists and is valid.
type Presence uint8

// The three presences. For a request, Invalid means incomplete; for a
// response, bytes that differ from the record's; for a decision, a bad MAC or
// another pending's; for a pending, no MAC.
const (
	Absent Presence = iota
	Invalid
	Valid
)

// ToolState compares the tool with the one that the approver was shown.
type ToolState uint8

// The three tool states. The zero value runs nothing.
const (
	ToolGone ToolState = iota
	ToolChanged
	ToolSame
)

// Documents describes the verified documents of one key.
type Documents struct {
	Request        Presence         // Q
	RequestMatches bool             // P was made from Q's bytes
	FirstSeen      time.Time        // when an incomplete Q was first seen
	Cancel         bool             // X
	Pending        Presence         // P; Invalid: a host program's request
	ExpiresAt      time.Time        // of P
	Decision       Presence         // D
	Verdict        approval.Verdict // of D
	RunBefore      time.Time        // of D
	Claim          bool             // R
	Again          bool             // the second claim of an idempotent tool
	Record         bool             // C
	Response       Presence         // S
	Retained       bool             // the response is within its retention
	Tool           ToolState
	Running        bool // this process is executing this key
	Idempotent     bool // the claimed tool permits one more run
	Task           bool // the claimed run has become a task that goes on without this process
}

// Move is the next step for one key.
type Move uint8

// The moves, in the order of the state table.
const (
	None           Move = iota // row 16
	Settle                     // row 1
	WaitRunning                // row 2
	EndInterrupted             // row 3
	RunAgain                   // row 3, idempotent
	ResumeTask                 // row 3, a task
	RejectDecision             // rows 4 and 14
	RunClaim                   // row 5
	EndToolGone                // row 5
	EndToolChanged             // row 5
	EndLate                    // row 6
	EndVerdict                 // row 7
	DropRequest                // row 8, same bytes
	RejectRequest              // row 8, other bytes
	DecideCancel               // row 9
	DecideExpiry               // row 10
	WaitDecision               // row 11
	WaitRequest                // row 12
	Intake                     // row 13
	DropCancel                 // row 15
)

// Next returns the move for d at now. For waiting moves it also returns the time of
// the next check (zero: at the next event).
func Next(d Documents, now time.Time) (Move, time.Time) {
	switch {
	case d.Record:
		return nextSettled(d), time.Time{}
	case d.Claim:
		return nextClaimed(d), time.Time{}
	case d.Pending == Valid && d.Decision != Absent:
		return nextDecided(d, now), time.Time{}
	case d.Pending == Valid:
		return nextPending(d, now)
	case d.Request == Invalid && now.Sub(d.FirstSeen) < IncompleteGrace:
		return WaitRequest, d.FirstSeen.Add(IncompleteGrace)
	case d.Request != Absent || d.Pending == Invalid:
		return Intake, time.Time{}
	case d.Decision != Absent:
		return RejectDecision, time.Time{}
	case d.Cancel:
		return DropCancel, time.Time{}
	}
	return None, time.Time{}
}

func nextSettled(d Documents) Move {
	left := d.Pending != Absent || d.Decision != Absent || d.Claim || d.Request != Absent || d.Cancel
	if left || d.Retained && d.Response != Valid {
		return Settle
	}
	return None
}

func nextClaimed(d Documents) Move {
	switch {
	case d.Running:
		return WaitRunning
	case d.Task:
		return ResumeTask
	case d.Idempotent && !d.Again:
		return RunAgain
	}
	return EndInterrupted
}

func nextDecided(d Documents, now time.Time) Move {
	switch {
	case d.Decision == Invalid:
		return RejectDecision
	case d.Verdict != approval.Approved:
		return EndVerdict
	case now.After(d.RunBefore):
		return EndLate
	case d.Tool == ToolGone:
		return EndToolGone
	case d.Tool == ToolChanged:
		return EndToolChanged
	}
	return RunClaim
}

func nextPending(d Documents, now time.Time) (Move, time.Time) {
	switch {
	case d.Request == Valid && d.RequestMatches:
		return DropRequest, time.Time{}
	case d.Request != Absent:
		return RejectRequest, time.Time{}
	case d.Cancel:
		return DecideCancel, time.Time{}
	case !now.Before(d.ExpiresAt):
		return DecideExpiry, time.Time{}
	}
	return WaitDecision, d.ExpiresAt
}
