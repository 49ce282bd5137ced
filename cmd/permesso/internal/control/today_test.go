package control

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/audit"
)

// Each caller sees the requests that the caller may decide, and no secret.
func TestTodayRights(t *testing.T) {
	h, k := newSecretHome(t)
	a, _ := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	s := files.service
	since := time.Now().Add(-time.Minute)
	for _, key := range []approval.Key{secretKey, bobsKey} {
		require.NoError(t, s.Audit(event.Entry{Time: time.Now().UTC(), Event: event.Requested, Workspace: key.Workspace, RequestID: key.ID, Tool: "x"}))
	}
	s.Decider.May = func(ws string, p *approval.Pending, by approval.Person) (string, bool) {
		return "ann", ws == "default" && by.ID == "1001" && (p == nil || p.Principal == "")
	}
	socket := func(uid string, workspaces ...string) httpapi.Caller {
		return httpapi.Caller{Person: approval.Person{Channel: approval.EntranceSocket, ID: uid}, Workspaces: workspaces, Language: "it"}
	}
	for _, row := range []struct {
		why    string
		caller httpapi.Caller
		want   []string
	}{
		{"an approver does not see a request for another person", socket("1001", "default"), []string{secretKey.ID}},
		{"an approver of another workspace", socket("1002", "other"), nil},
		{"a person who may not decide", socket("1002", "default"), nil},
		{"an entrance that does not show the workspace", socket("1001", "other"), nil},
		{"a stranger", socket("1009"), nil},
		{"the operator", httpapi.Caller{Person: home.Operator(), Operator: true, Language: "en"}, []string{secretKey.ID, bobsKey.ID}},
	} {
		for _, workspace := range []string{"", "default"} {
			d, err := s.today(t.Context(), &row.caller, &todayQuery{Workspace: workspace, Since: since})
			if workspace != "" && !row.caller.Operator && !row.caller.Sees(workspace) {
				require.ErrorContains(t, err, "no workspace 'default'", row.why)
				continue
			}
			require.NoError(t, err, row.why)
			var ids []string
			for _, ws := range d.Day.Workspaces {
				require.Equal(t, map[approval.Status]int{"pending": len(row.want)}, ws.Counts, row.why)
				for _, r := range ws.Requests {
					ids = append(ids, r.RequestID)
					require.NotContains(t, r.What, secretToken)
				}
			}
			require.ElementsMatch(t, row.want, ids, row.why)
		}
	}
}

// Of a damaged log what can be read is told, and that it is not all.
func TestTodayOfADamagedLog(t *testing.T) {
	h, k := newSecretHome(t)
	a, _ := newConsole("1")
	files, err := filesClient(a, h, k, func() error { return nil })
	require.NoError(t, err)
	broken := fmt.Errorf("line 3: %w", audit.ErrDamaged)
	files.service.Memory = func() (*home.Memory, error) { return nil, broken }
	files.service.Viewer.Log = func(_ func([]byte) bool, each func(event.Entry) error) error {
		e := event.Entry{Time: time.Now().UTC(), Event: event.Requested, Workspace: secretKey.Workspace, RequestID: secretKey.ID, Tool: "x"}
		if err := each(e); err != nil {
			return err
		}
		return broken
	}
	day, err := files.Today(t.Context(), "", time.Now().Add(-time.Minute))
	require.ErrorIs(t, err, audit.ErrDamaged)
	require.Len(t, day.Workspaces[0].Requests, 1)
}
