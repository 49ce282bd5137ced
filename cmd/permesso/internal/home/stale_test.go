package home

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/store"
)

// A grant that is unused for 90 days is revoked, and listed as revoked by that; a use starts
// the 90 days anew.
func TestUnusedGrantsAreRevoked(t *testing.T) {
	h, k := newHome(t, "[workspaces.w]\n")
	m, err := h.NewMemory(k, zerolog.Nop())
	require.NoError(t, err)
	revoked := map[string]int{}
	m.Audit = func(e event.Entry) error {
		if e.Event == event.Revoked {
			revoked[e.Grant]++
		}
		m.Observe(e)
		return nil
	}
	const unused, used = "a1a1a1a1a1a1a1a1", "b2b2b2b2b2b2b2b2"
	given := time.Now().UTC()
	days := func(n int) time.Time { return given.Add(time.Duration(n) * 24 * time.Hour) }
	for _, id := range []string{unused, used} {
		require.NoError(t, m.SaveGrant(&grant.Grant{
			Version: grant.Version, ID: id, By: "ann", CreatedAt: given, ExpiresAt: days(366),
			Terms: approval.Terms{Form: grant.Action, Workspace: "w", ClientID: "ws:w", ActionType: "send_message"},
		}, store.Durable))
	}
	m.Observe(event.Entry{Event: event.AutoApproved, Workspace: "w", RequestID: "c3c3c3c3c3c3c3c3", Grant: used, Time: days(10)})
	for _, row := range []struct {
		at   time.Time
		want map[string]int
	}{
		{days(90).Add(-time.Second), map[string]int{}},
		{days(90), map[string]int{unused: 1}},
		{days(100).Add(-time.Second), map[string]int{unused: 1}},
		{days(100), map[string]int{unused: 1, used: 1}},
		{days(101), map[string]int{unused: 1, used: 1}},
	} {
		require.NoError(t, m.ApplyChanges(row.at))
		require.Equal(t, row.want, revoked, row.at)
	}
	for _, g := range m.Grants() {
		require.Equal(t, "revoked", g.State(days(101)))
		require.Equal(t, "stale: unused for 90 days", g.RevokedBy)
	}
	g, err := m.Grant(unused)
	require.NoError(t, err)
	require.Equal(t, days(90), g.RevokedAt, "also in its file")
}
