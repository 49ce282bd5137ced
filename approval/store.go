package approval

import "errors"

// WriteMode says how a document is written. The zero value is the safe one.
type WriteMode uint8

// The three write modes.
const (
	Durable  WriteMode = iota // survives a kill and a power cut
	Volatile                  // visible, not synced; may be lost
	Replace                   // durable, replaces an existing file
)

// ErrRefused marks a request that is not a regular file within its limits. Errors
// that wrap it are written for the agent.
var ErrRefused = errors.New("refused")

// Disk errors of a store. Any other error means that the operation did not happen
// and may be retried.
var (
	// ErrNoSpace says that there is not enough free space for the output of a run.
	ErrNoSpace = errors.New("the disk is almost full")
	// ErrUnsynced marks a document that is visible but perhaps not durable: do not
	// act on it yet.
	ErrUnsynced = errors.New("the disk did not confirm what was written")
	// ErrRestart says that a sync failed. Later syncs cannot be trusted; a restart
	// syncs everything again.
	ErrRestart = errors.New("disk sync failed: repair the disk, then restart the daemon")
)
