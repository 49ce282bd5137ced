package chat

import (
	"context"

	"github.com/permesso-dev/permesso/approval"
)

// Notebook is what a channel remembers between two starts: for each request a
// page that says what was sent for it. Whoever waits and has no page has not
// been asked yet.
type SentStore interface {
	// Page gives what was noted; its error wraps fs.ErrNotExist where nothing was.
	Load(k approval.Key) ([]byte, error)
	// Write is durable when it returns, and replaces what the page said.
	Save(k approval.Key, b []byte) error
	// Remove tears a page out; one that is gone is no error.
	Remove(k approval.Key) error
	// Pages lists the ids in a workspace that have a page.
	List(workspace string) ([]string, error)
}

// Drawer keeps what a channel must not lose and what belongs to no request:
// updates that it has taken, places in a mailbox. Names are letters, digits and
// any of ". _ -", the first no dot.
type StateStore interface {
	Put(name string, b []byte) error // durable when it returns
	Get(name string) ([]byte, error) // wraps fs.ErrNotExist where there is none
	List() ([]string, error)         // sorted
	Remove(name string) error        // one that is gone is no error
}

// Records gives the story of a settled request, or nil where there is none yet.
type Records interface {
	Record(ctx context.Context, k approval.Key) (*approval.Record, error)
}
