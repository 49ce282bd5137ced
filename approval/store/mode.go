package store

import (
	"errors"
	"fmt"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
)

// Mode says how a document is written. The zero value is the safe one.
type Mode uint8

// The three write modes.
const (
	Durable  Mode = iota // a new document; survives a kill and a power cut
	Volatile             // a new document, visible only; a power cut may lose it
	Replace              // durable; replaces an existing document
)

// Op is one part of a commit: a document, or an audit entry if Doc is empty.
type Op struct {
	Doc   approval.Doc
	Key   approval.Key
	Bytes []byte
	Mode  Mode
	// Check is called when a decision is in its slot and not yet durable. If it returns an
	// error, the decision stays volatile and Commit returns that error. nil: no check.
	Check func() error
	Entry event.Entry
}

// Put is a new document.
func Put(d approval.Doc, k approval.Key, b []byte) Op { return Op{Doc: d, Key: k, Bytes: b} }

// Show is a response. It replaces any other, and is not durable by itself: the record holds
// its bytes.
func Show(k approval.Key, b []byte) Op {
	return Op{Doc: approval.DocResponse, Key: k, Bytes: b, Mode: Volatile}
}

// Log is an audit entry. Its number is assigned by the commit.
func Log(e event.Entry) Op { return Op{Entry: e} }

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
	// ErrNoRoom says that the journal has no room for new work until a checkpoint.
	ErrNoRoom = errors.New("the journal is full until its next checkpoint")
	// ErrUnavailable says that the store cannot be used now: another process has its
	// lease, or its disk returns errors.
	ErrUnavailable = errors.New("the store is not available")
	// ErrRestart says that a write or a sync failed that must not be repeated. Nothing is
	// committed any more; a restart repairs the files.
	ErrRestart = errors.New("disk sync failed: repair the disk, then restart the daemon")
)

// ErrLocked says that another process, or another holder in this one, has the lock.
var ErrLocked = errors.New("locked by another process")

// ErrJournalLost says that the journal was removed or replaced while it was in use: the next
// start would not find what is committed to it. It is an ErrRestart.
var ErrJournalLost = fmt.Errorf("the journal was removed or replaced while it was in use: %w", ErrRestart)
