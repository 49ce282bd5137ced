package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/security/policy"
)

func drawEntry(rt *rapid.T, seq int) event.Entry {
	x := drawClaim(rt)
	x.Seq, x.RequestID = int64(seq), fmt.Sprintf("%016x", rapid.IntRange(1, seq).Draw(rt, "id"))
	x.Time = noon.Add(time.Duration(seq) * time.Minute)
	x.Event = pick(rt, "event", event.Approved, event.AutoApproved, event.Requested, event.Failed, event.TaintsCleared)
	x.Human = rapid.Bool().Draw(rt, "human")
	x.Grant = pick(rt, "consent", "", "0000000000000002")
	x.Target, x.ActionType, x.ClientID, x.Tool = "/data/a.txt", "custom:t", "ws:w", "t"
	return x
}

// A start from a snapshot gives the same memory as a start from the complete log.
func TestPropSnapshotIsTheSameAsTheLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawConfig(rt)
		n := rapid.IntRange(1, 30).Draw(rt, "entries")
		cut := rapid.IntRange(1, n).Draw(rt, "snapshot after")
		whole, first, second := &policy.Engine{}, &policy.Engine{}, &policy.Engine{}
		for _, e := range []*policy.Engine{whole, first, second} {
			require.NoError(rt, e.Load(cfg))
		}
		var log []event.Entry
		for i := range n {
			x := drawEntry(rt, i+1)
			log = append(log, x)
			whole.Learn(x)
			if i < cut {
				first.Learn(x)
			}
		}
		b, err := first.Snapshot()
		require.NoError(rt, err)
		seq, err := second.Restore(b)
		require.NoError(rt, err)
		require.Equal(rt, int64(cut), seq)
		for _, x := range log {
			second.Learn(x) // entries in the snapshot are ignored
		}
		for _, g := range grants(factsFor("fs:write")) {
			require.NoError(rt, whole.AddGrant(g))
			require.NoError(rt, second.AddGrant(g))
		}
		f := drawFacts(rt)
		f.Now = noon.Add(time.Hour)
		require.Equal(rt, whole.Judge(f), second.Judge(f))
		require.Equal(rt, whole.Taints("w"), second.Taints("w"))
		require.Equal(rt, whole.Grants(), second.Grants())
		require.Equal(rt, whole.Recurrence("w", "t", "fs:write"), second.Recurrence("w", "t", "fs:write"))
		require.Equal(rt, whole.Offers(f, whole.Judge(f)), second.Offers(f, second.Judge(f)))
	})
}

// What people approved counts, whatever its target was; never what a rule allowed, another
// tool, class or workspace.
func TestRecurrence(t *testing.T) {
	e := engine(t, policy.Config{})
	learn := func(n int, x event.Entry) {
		for i := range n {
			x.Time, x.Target = noon, fmt.Sprintf("/srv/%d", i)
			e.Learn(x)
		}
	}
	learn(9, event.Entry{Event: event.Approved, Human: true, Workspace: "w", Tool: "download", Capability: "fs:write"})
	learn(1, event.Entry{Event: event.AutoApproved, Workspace: "w", Tool: "download", Capability: "fs:write"})
	learn(2, event.Entry{Event: event.Approved, Human: true, Workspace: "w", Tool: "upload", Capability: "fs:write"})
	learn(3, event.Entry{Event: event.Approved, Human: true, Workspace: "w", ActionType: "exec_cmd"})
	require.Equal(t, 9, e.Recurrence("w", "download", "fs:write"))
	require.Equal(t, 2, e.Recurrence("w", "upload", "fs:write"))
	require.Equal(t, 3, e.Recurrence("w", "exec_cmd", ""))
	require.Zero(t, e.Recurrence("w", "download", "network:http"))
	require.Zero(t, e.Recurrence("v", "download", "fs:write"))
	require.Zero(t, e.Recurrence("w", "write_file", ""))
}

func TestDamagedSnapshotIsRefused(t *testing.T) {
	for _, b := range []string{"", "{}", `{"version":2,"seq":0}`, `{"version":1,"seq":5}`, `{"version":3,"seq":5}`, "[1]"} {
		e := engine(t, policy.Config{})
		_, err := e.Restore([]byte(b))
		require.Error(t, err, b)
		require.Empty(t, e.Taints("w"))
	}
}
