package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/read"
)

// A power cut can lose the last audit entries. The record is durable before them.
func TestHistoryUsesRecordsThatTheLogLost(t *testing.T) {
	p := newPruneRig(t)
	h := p.server.Home
	for _, e := range []event.Entry{
		{Event: event.Requested, Workspace: "default", RequestID: settledKey.ID, Time: p.clock.Add(-time.Minute).UTC()},
		{Event: event.Requested, Workspace: "default", RequestID: "00000000000000bb", Time: p.clock.UTC()},
	} {
		require.NoError(t, p.server.audit.Append(e))
	}
	found, _, err := h.Viewer(p.server.keys).Requests(read.Query{})
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.Equal(t, read.StatusPending, found[0].Status)
	require.Equal(t, approval.StatusDenied, found[1].Status)
	require.False(t, found[1].EndedAt.IsZero())
}

// Refusals without an approver are no decisions: a flood of them hides none.
func TestLastDecisionsAfterFlood(t *testing.T) {
	p := newPruneRig(t)
	add := func(id string, kind event.Kind) {
		require.NoError(t, p.server.audit.Append(event.Entry{Event: kind, Workspace: "default", RequestID: id, Time: p.clock.UTC()}))
	}
	add("00000000000000aa", event.Requested)
	add("00000000000000aa", event.DeniedByUser)
	for n := range 30 {
		add(fmt.Sprintf("00000000000000%02d", n), []event.Kind{event.AutoRejected, event.Malformed}[n%2])
	}
	keys, err := p.server.channelEnv("telegram").Last(t.Context(), []string{"default"}, 8)
	require.NoError(t, err)
	require.Equal(t, []approval.Key{{Workspace: "default", ID: "00000000000000aa"}}, keys)
}
