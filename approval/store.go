package approval

import "errors"

// How says how a document is written. The zero value is the safe one.
type WriteMode uint8

// The three ways to write.
const (
	Durable  WriteMode = iota // neither a kill nor a power cut takes it away afterwards
	Volatile                  // visible, not synced: losing it is harmless
	Replace                   // durable, over whatever is there
)

// ErrRefused marks a request that is no ordinary file within its limits. The
// errors that wrap it say what is wrong, in words for the agent.
var ErrRefused = errors.New("refused")

// What a store says when the disk fails it. Errors that wrap none of these mean
// that the one operation did not happen, and may be tried again.
var (
	// ErrNoSpace says that the disk has no room for what a run would leave.
	ErrNoSpace = errors.New("the disk is almost full")
	// ErrUnsynced marks a document that is visible while nobody knows whether
	// it is durable: nothing may be built on it yet.
	ErrUnsynced = errors.New("the disk did not confirm what was written")
	// ErrRestart says that no later sync can be believed: only a restart, which
	// syncs everything anew before it believes anything, makes sure again.
	ErrRestart = errors.New("the disk failed to store what it was given: mend it, then restart the gate")
)
