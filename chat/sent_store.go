package chat

import (
	"context"

	"github.com/permesso-dev/permesso/approval"
)

// SentStore holds a channel's sent records across restarts: one per request. A
// pending request without a record was not sent yet.
type SentStore interface {
	// Load returns the record of k. Its error wraps fs.ErrNotExist if there is none.
	Load(k approval.Key) ([]byte, error)
	// Save replaces the record of k. It is durable when it returns.
	Save(k approval.Key, b []byte) error
	// Remove removes the record of k. A missing record is no error.
	Remove(k approval.Key) error
	// List returns the ids in a workspace that have a record.
	List(workspace string) ([]string, error)
}

// StateStore keeps durable channel state that belongs to no request: updates taken
// from a server, positions in a mailbox. Names consist of letters, digits and
// ". _ -", and do not begin with a dot.
type StateStore interface {
	Put(name string, b []byte) error // durable when it returns
	Get(name string) ([]byte, error) // wraps fs.ErrNotExist if there is none
	List() ([]string, error)         // sorted
	Remove(name string) error        // a missing name is no error
}

// Records returns the record of a settled request, nil if there is none yet.
type Records interface {
	Record(ctx context.Context, k approval.Key) (*approval.Record, error)
}
