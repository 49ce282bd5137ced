// Package store is what the gate needs of the place where documents are kept: the
// interface, the ways to write, and the classes of errors.
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
// # Journals
//
// A store need not keep a file for each document. One that appends to a journal commits
// the calls that are under way, with those in alongside, in one sync; Confirm and Sync
// then wait for a commit, and the lease replays.
//
// # Errors
//
// The errors are those of this package: ErrMissing, ErrExists, ErrRefused,
// ErrNoSpace, ErrUnavailable, ErrUnsynced and ErrRestart. After any other error
// nothing was written.
type Store interface {
	Documents
	folders
	retention

	// Stage writes a response where no agent sees it. show makes it visible and
	// replaces any other; the function that it returns makes it durable. drop removes
	// it instead.
	Stage(ctx context.Context, k approval.Key, b []byte) (show func() (sync func() error, err error), drop func(), err error)

	// Probe does every operation that writing a document needs. If it returns nil,
	// everything visible is durable. It wraps ErrRestart if a retry is
	// useless.
	Probe(ctx context.Context) error
	// Reserve reserves space for documents; it wraps ErrNoSpace.
	Reserve(ctx context.Context, bytes int64) (release func(), err error)

	// Lease makes this process the only one that runs the keys of the store, until
	// release. When it returns, every document that is visible is durable. The error
	// wraps ErrUnavailable while another process has the lease.
	Lease(ctx context.Context) (release func() error, err error)
}

// Documents are read and written one at a time.
type Documents interface {
	// Read returns a document's bytes. The error wraps ErrMissing if there is
	// none, and ErrRefused if a request is not a regular file within its
	// limits.
	Read(ctx context.Context, d approval.Doc, k approval.Key) ([]byte, error)
	// Create writes a new document; it wraps ErrExists if there is one. While
	// it makes the document durable, it runs the functions in alongside, and returns
	// when they have ended; their errors are joined to its own. If the document cannot
	// be written, it need not run them.
	Create(ctx context.Context, d approval.Doc, k approval.Key, b []byte, how Mode, alongside ...func() error) error
	// Remove removes a document; a missing one is no error.
	Remove(ctx context.Context, d approval.Doc, k approval.Key) error
	// Confirm returns when a document that is visible, and is being written durably by
	// this process or another, is durable.
	Confirm(ctx context.Context, d approval.Doc, k approval.Key) error
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
	// OlderThan returns the ids and sizes of the documents of kind d that were last
	// written before a time.
	OlderThan(ctx context.Context, d approval.Doc, workspace string, before time.Time) (sizes map[string]int64, err error)
	// RefusalsOlderThan counts the descriptions written before a time, and removes
	// them if remove is true.
	RefusalsOlderThan(ctx context.Context, workspace string, before time.Time, remove bool) (n int, size int64, err error)
	// Sync makes all earlier changes of the documents of kind d durable, removals
	// included.
	Sync(ctx context.Context, d approval.Doc, workspace string) error
}
