package home

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc"
)

// An approver sees the state of the daemon and of the own workspaces, not that another
// workspace is paused.
func TestStateOfAnApprover(t *testing.T) {
	paused := func(ws ...string) (list []ipc.Pause) {
		for _, name := range ws {
			list = append(list, ipc.Pause{Workspace: name})
		}
		return list
	}
	for _, c := range []struct {
		status string
		paused []ipc.Pause
		want   string
	}{
		{HealthPaused, paused("other"), HealthOK},
		{HealthPaused, paused("own"), HealthPaused},
		{HealthPaused, paused("own", "other"), HealthPaused},
		{HealthPaused, paused(ipc.AllWorkspaces), HealthPaused},
		{HealthDegraded, paused("other"), HealthDegraded},
		{HealthOK, nil, HealthOK},
	} {
		st := &State{
			Workspaces: []string{"other", "own"}, Paused: c.paused,
			Health: &HealthReport{Status: c.status, PID: 7, Issues: []healthIssue{{What: "the disk of another"}}},
		}
		got := st.Only([]string{"own"})
		require.Equal(t, c.want, got.Health.Status, "%+v", c)
		require.Equal(t, 7, got.Health.PID)
		require.Empty(t, got.Health.Issues)
		require.Equal(t, []string{"own"}, got.Workspaces)
		require.Equal(t, c.status, st.Health.Status, "the operator's stays")
	}
}
