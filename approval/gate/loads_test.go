package gate_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
)

// readCounter counts the gate's reads of each kind of document.
type readCounter struct {
	gate.Store
	mu    sync.Mutex
	reads map[approval.Doc]int
}

func (c *readCounter) Read(ctx context.Context, d approval.Doc, k approval.Key) ([]byte, error) {
	c.mu.Lock()
	c.reads[d]++
	c.mu.Unlock()
	return c.Store.Read(ctx, d, k)
}

func (c *readCounter) counted() map[approval.Doc]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counted := c.reads
	c.reads = map[approval.Doc]int{}
	return counted
}

// loads is how often each document is read by n loads.
func loads(n int) map[approval.Doc]int {
	return map[approval.Doc]int{
		approval.DocRecord: n, approval.DocClaim: n, approval.DocPending: n, approval.DocDecision: n,
		approval.DocCancel: n, approval.DocRequest: n, approval.DocResponse: n,
	}
}

// TestDocumentsAreLoadedOnceAMove follows a request from its file to its response, with
// a real watcher. The documents are loaded once for each move that does work.
func TestDocumentsAreLoadedOnceAMove(t *testing.T) {
	for _, tt := range []struct {
		tool  string
		moves int // intake; after a decision also the claim
	}{{"auto", 1}, {"never", 1}, {"run", 2}, {"receipt", 2}} {
		t.Run(tt.tool, func(t *testing.T) {
			c := &readCounter{reads: map[approval.Doc]int{}}
			h := newRig(t, options{store: func(s gate.Store) gate.Store { c.Store = s; return c }})
			h.run(time.Hour)
			h.waitFor(waitLimit, "first rescans", func() bool { return h.Rescans.Load() >= 2 })
			k := key(1)
			h.writeRequest(k, request(k, tt.tool, ""))
			if tt.moves == 2 {
				h.waitFor(waitLimit, "pending", func() bool { return h.pending(k) != nil })
				h.decide(decision(k, approval.Approved))
			}
			h.waitResponse(k, waitLimit)
			h.waitFor(waitLimit, "idle", h.gate.Idle)
			require.Equal(t, loads(tt.moves), c.counted())
		})
	}
}
