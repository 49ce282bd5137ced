package read_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/approval/store"
)

// moving is a store in which a request reaches the next of its states after some reads.
type moving struct {
	docs   map[approval.Doc][]byte
	states [][]approval.Doc
	after  []int // the numbers of the reads after which it moves on
	reads  int
}

func (m *moving) Read(_ context.Context, d approval.Doc, _ approval.Key) ([]byte, error) {
	at := 0
	for _, n := range m.after {
		if m.reads >= n {
			at++
		}
	}
	m.reads++
	for _, there := range m.states[at] {
		if there == d {
			return m.docs[d], nil
		}
	}
	return nil, store.ErrMissing
}

func (*moving) Workspaces(context.Context) ([]string, error) { return []string{"personal"}, nil }

func (*moving) List(context.Context, approval.Doc, string) (ids, strays []string, err error) {
	return nil, nil, nil
}

// unsealed documents have no MAC.
type unsealed struct{}

func (unsealed) Open(_ approval.Doc, _ approval.Key, file []byte) ([]byte, error) { return file, nil }

// A request that moves on while its documents are read never looks as if there were none,
// and never goes back behind the state in which the first document was read.
func TestStoryMissesNoState(t *testing.T) {
	k := approval.Key{Workspace: "personal", ID: "a7f3b2c1d4e5f6a7"}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	encode := func(doc interface{ Encode() ([]byte, error) }) []byte {
		b, err := doc.Encode()
		require.NoError(t, err)
		return b
	}
	sha := approval.Digest([]byte("x"))
	pending := encode(&approval.Pending{
		Version: 1, RequestID: k.ID, ShortID: k.ID[:8], Type: approval.TypeAction, ToolName: "x", ToolSHA256: sha, SourceGroup: k.Workspace,
		ClientID: "ws:personal", ActionType: "send_message", RequestData: approval.Raw("{}"), Proof: approval.Raw("null"),
		Timestamp: now, ExpiresAt: now.Add(time.Hour),
	})
	docs := map[approval.Doc][]byte{
		approval.DocPending: pending,
		approval.DocDecision: encode(&approval.Decision{
			Version: 1, RequestID: k.ID, Approved: true, Verdict: approval.Approved, Scope: approval.Once, PendingSHA256: approval.Digest(pending),
			DecidedBy: "ann", DecidedByID: "local:1000", Via: "cli", DecidedAt: now, RunBefore: now.Add(time.Minute),
		}),
		approval.DocClaim: encode(&approval.Claim{
			Version: 1, RequestID: k.ID, Workspace: k.Workspace, ToolName: "x", RequestSHA256: sha, ArgsSHA256: sha, ToolSHA256: sha,
			Request: approval.Raw("null"), Pending: approval.Raw("null"), Decision: approval.Raw("null"), RequestedAt: now, ClaimedAt: now, Receipt: "r",
		}),
		approval.DocRecord: encode(&approval.Record{
			Version: 1, RequestID: k.ID, Workspace: k.Workspace, Status: approval.StatusApproved, RequestSHA256: sha,
			Request: approval.Raw("null"), Pending: approval.Raw("null"), Decision: approval.Raw("null"),
			RequestedAt: now, EndedAt: now, Response: approval.Raw(`{"version":1}`),
		}),
	}
	const p, d, r, c = approval.DocPending, approval.DocDecision, approval.DocClaim, approval.DocRecord
	for name, states := range map[string][][]approval.Doc{
		"asked": {{p}, {p, d}, {p, d, r}, {p, d, r, c}, {p, r, c}, {p, c}, {c}},
		"ruled": {{r}, {r, c}, {c}},
	} {
		for from := range states {
			for reads := range 5 {
				for jump := 1; from+jump < len(states); jump++ {
					documents := &moving{docs: docs, states: [][]approval.Doc{states[from], states[from+jump]}, after: []int{reads}}
					st, err := (&read.Viewer{Store: documents, Seal: unsealed{}}).Story(context.Background(), k)
					why := fmt.Sprintf("%s: from %v to %v after %d reads", name, states[from], states[from+jump], reads)
					require.NoError(t, err, why)
					require.True(t, st.Exists(), why)
					has := func(doc approval.Doc) bool {
						for _, x := range states[from] {
							if x == doc {
								return true
							}
						}
						return false
					}
					require.False(t, has(c) && st.Record == nil, "ended: "+why)
					require.False(t, has(r) && st.Claim == nil && st.Record == nil, "started: "+why)
					require.False(t, has(d) && st.Decision == nil && st.Claim == nil && st.Record == nil, "decided: "+why)
				}
			}
		}
	}
}

func TestAftermath(t *testing.T) {
	told := func(v approval.Verdict, claim *approval.Claim, status approval.Status, paused bool) string {
		st := read.Story{Pending: &approval.Pending{}, Decision: &approval.Decision{Verdict: v}, Claim: claim}
		if status != "" {
			st.Record = &approval.Record{Status: status}
		}
		return st.Aftermath(paused)
	}
	for _, status := range []approval.Status{approval.StatusFailed, approval.StatusInterrupted, approval.StatusExpired} {
		require.Equal(t, string(status), told(approval.Approved, nil, status, true))
		require.Empty(t, told(approval.Denied, nil, status, false))
	}
	require.Empty(t, told(approval.Approved, nil, approval.StatusApproved, true), "it has run")
	require.Equal(t, "paused", told(approval.Approved, nil, "", true))
	require.Empty(t, told(approval.Approved, nil, "", false))
	require.Empty(t, told(approval.Approved, &approval.Claim{}, "", true), "it runs already")
	require.Empty(t, told(approval.Denied, nil, "", true))
	require.Empty(t, new(read.Story).Aftermath(true))
}
