package gate_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

var loadedDocuments = []approval.Doc{
	approval.DocRecord, approval.DocClaim, approval.DocPending, approval.DocDecision, approval.DocCancel, approval.DocRequest, approval.DocResponse,
}

// TestDocumentsAreLoadedOnceAMove follows a request from its file to its response, with
// a real watcher. The documents are loaded once for each move that does work.
func TestDocumentsAreLoadedOnceAMove(t *testing.T) {
	for _, tt := range []struct {
		tool  string
		moves int // intake; after a decision also the claim
	}{{"auto", 1}, {"never", 1}, {"run", 2}, {"receipt", 2}} {
		t.Run(tt.tool, func(t *testing.T) {
			reads := make([]atomic.Int32, len(loadedDocuments))
			var all atomic.Int32
			h := newRig(t, options{store: func(s store.Store) store.Store {
				for i, d := range loadedDocuments {
					s = before(s, "Read", d, func(approval.Key) { reads[i].Add(1) })
				}
				return before(s, "Read", "", func(approval.Key) { all.Add(1) })
			}})
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
			for i, d := range loadedDocuments {
				require.EqualValues(t, tt.moves, reads[i].Load(), d)
			}
			require.EqualValues(t, tt.moves*len(loadedDocuments), all.Load(), "nothing else is read")
		})
	}
}
