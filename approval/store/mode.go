package store

import "errors"

// Mode says how a document is written. The zero value is the safe one.
type Mode uint8

// The three write modes.
const (
	Durable  Mode = iota // survives a kill and a power cut
	Volatile             // visible, not synced; may be lost
	Replace              // durable, replaces an existing file
)

// The classes of a store's errors. After an error of no class the operation did not
// happen and may be retried.
var (
	// ErrMissing says that there is no such document.
	ErrMissing = errors.New("no such document")
	// ErrExists says that there is such a document already.
	ErrExists = errors.New("the document exists already")
	// ErrRefused marks a request that is not a regular file within its limits. Errors
	// that wrap it are written for the agent.
	ErrRefused = errors.New("refused")
	// ErrNoSpace says that there is not enough free space for the output of a run.
	ErrNoSpace = errors.New("the disk is almost full")
	// ErrUnavailable says that the store cannot be used now: another process has its
	// lease, or its disk returns errors.
	ErrUnavailable = errors.New("the store is not available")
	// ErrUnsynced marks a document that is visible but perhaps not durable: do not
	// act on it yet.
	ErrUnsynced = errors.New("the disk did not confirm what was written")
	// ErrRestart says that a sync failed. Later syncs cannot be trusted; a restart
	// syncs everything again.
	ErrRestart = errors.New("disk sync failed: repair the disk, then restart the daemon")
)
