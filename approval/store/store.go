// Package store is what the gate needs of the place where documents are kept: the
// interface, the parts of a commit, and the classes of errors.
package store

import (
	"context"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// Store keeps the documents. It has no optional methods, so that a wrapper which
// embeds it loses none.
//
// # Contexts
//
// A method checks ctx before it begins to write. A write that has begun is finished:
// a promise is never left half kept.
//
// # Errors
//
// The errors are those of this package. After any other error nothing was written.
type Store interface {
	Documents
	folders
	retention

	// Probe does every operation that writing a document needs, and writes the files that
	// could not be written before. It wraps ErrRestart if a retry is useless.
	Probe(ctx context.Context) error
	// Reserve reserves space on the disk, and room for an outcome in the journal; it
	// wraps ErrNoSpace or ErrNoRoom.
	Reserve(ctx context.Context, bytes int64) (release func(), err error)

	// Checkpoint makes every visible document and removal durable. After an error that
	// wraps ErrRestart nothing is durable any more; after any other it may be retried.
	Checkpoint(ctx context.Context) error
	// NeedsCheckpoint reports whether much was committed since the last one, or something
	// long ago.
	NeedsCheckpoint() bool

	// Lease makes this process the only writer, until release. When it returns, every
	// commit of an earlier process is visible and durable. The error wraps ErrUnavailable
	// while another process has the lease.
	Lease(ctx context.Context) (release func() error, err error)
}

// Documents are read one at a time, and written in commits.
type Documents interface {
	// Read returns a document's bytes. The error wraps ErrMissing if there is
	// none, and ErrRefused if a request is not a regular file within its
	// limits.
	Read(ctx context.Context, d approval.Doc, k approval.Key) ([]byte, error)
	// Commit makes ops durable, all or none, and then visible, in their order. It wraps
	// ErrExists if a document exists that an op does not replace. A decision is visible
	// first: its slot says who came first. Without the lease, only one document can be
	// committed, of a kind that other processes write: a decision, a grant, a key.
	Commit(ctx context.Context, ops ...Op) error
	// Remove removes a document; a missing one is no error. A power cut may bring it back.
	Remove(ctx context.Context, d approval.Doc, k approval.Key) error
}

// folders are what the gate scans.
type folders interface {
	// Workspaces lists the workspaces that have folders.
	Workspaces(ctx context.Context) ([]string, error)
	// List returns the ids that have a document of kind d, and the other file names
	// in that folder.
	List(ctx context.Context, d approval.Doc, workspace string) (ids, strays []string, err error)
	// Refuse writes a capped description of a refused file, never its content.
	Refuse(ctx context.Context, workspace, name, why string) error
	// RemoveStray removes a file with an invalid name from the requests folder.
	RemoveStray(ctx context.Context, workspace, name string) error
}

// retention is for removing old documents.
type retention interface {
	// Stored returns what the records, responses, markers and descriptions of a workspace take
	// on the disk, in bytes of OnDisk.
	Stored(ctx context.Context, workspace string) (bytes int64, err error)
	// OlderThan returns the ids and sizes of the documents of kind d that were last
	// written before a time.
	OlderThan(ctx context.Context, d approval.Doc, workspace string, before time.Time) (sizes map[string]int64, err error)
	// RefusalsOlderThan counts the descriptions written before a time, and removes
	// them if remove is true.
	RefusalsOlderThan(ctx context.Context, workspace string, before time.Time, remove bool) (n int, size int64, err error)
}

// block is what most file systems allocate at least: many small files fill a disk, too.
const block = 4 << 10

// OnDisk is what a file of this size takes on the disk, in bytes: whole blocks of 4 KiB.
func OnDisk(size int64) int64 { return (size + block - 1) / block * block }
