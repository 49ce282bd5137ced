package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/security/audit"
)

// verify compares the responses with what has happened.
func (k *killRig) verify() {
	for id, p := range k.asked {
		r := k.seen[id]
		require.NotNil(k.t, r, "%s %v has no response; acknowledged was %q", id, p, k.acked[id])
		k.verifyRuns(id, p, r)
		k.verifyDecision(id, p, r)
		now, err := k.agent.Await(k.t.Context(), client.Submitted{ID: id})
		require.NoError(k.t, err)
		require.Equal(k.t, r.Status, now.Status, "%s changed its outcome", id)
		require.Equal(k.t, r.RespondedAt, now.RespondedAt, "%s changed its outcome", id)
	}
	require.Empty(k.t, k.errs)
	k.verifyFolders()
}

func (k *killRig) verifyRuns(id string, p plan, r *approval.Response) {
	runs := 0
	if b, err := os.ReadFile(filepath.Join(k.counters, id)); !errors.Is(err, fs.ErrNotExist) {
		require.NoError(k.t, err)
		runs = len(b)
	}
	if k.stats[r.Status] == nil {
		k.stats[r.Status] = map[int]int{}
	}
	k.stats[r.Status][runs]++
	switch r.Status {
	case approval.StatusApproved, approval.StatusAutoApproved:
		require.Equal(k.t, 1, runs, "%s %v: the response says that it ran once", id, p)
	case approval.StatusInterrupted, approval.StatusFailed:
		require.LessOrEqual(k.t, runs, 1, "%s %v ran more than once", id, p)
	default:
		require.Zero(k.t, runs, "%s %v ended as %s, and ran", id, p, r.Status)
	}
}

// verifyDecision requires that acknowledged decisions hold.
func (k *killRig) verifyDecision(id string, p plan, r *approval.Response) {
	ran := []approval.Status{approval.StatusApproved, approval.StatusFailed, approval.StatusInterrupted}
	expected := map[approval.Verdict][]approval.Status{
		approval.Approved: append(ran, approval.StatusExpired), // approved in time, but the daemon was down past run_before
		approval.Denied:   {approval.StatusDenied},
	}
	switch verdict := k.acked[id]; {
	case verdict != "":
		require.Contains(k.t, expected[verdict], r.Status, "%s %v was acknowledged as %s", id, p, verdict)
		if r.Status == approval.StatusExpired {
			require.Contains(k.t, *r.Error, "approved in time")
		}
	case strings.HasPrefix(p.tool, "free_"):
		require.Contains(k.t, []approval.Status{approval.StatusAutoApproved, approval.StatusInterrupted, approval.StatusFailed, approval.StatusCancelled}, r.Status, "%s %v", id, p)
	default:
		// No decision, or one that Decide stored and then reported as too late.
		require.NotContains(k.t, append(ran, approval.StatusDenied), r.Status, "%s %v: no decision was acknowledged; Decide returned %v", id, p, k.lost[id])
	}
}

// verifyFolders requires that at the end only responses and records are left, and
// that the log has an entry for every run.
func (k *killRig) verifyFolders() {
	l := k.layout
	for _, dir := range []string{l.Requests(killWorkspace), l.Pendings(killWorkspace), l.Decisions(killWorkspace), l.Receipts(killWorkspace), l.Errors(killWorkspace)} {
		names, err := os.ReadDir(dir)
		require.NoError(k.t, err)
		require.Empty(k.t, names, "left in %s", dir)
	}
	claimed := map[string]bool{}
	require.NoError(k.t, audit.Entries(ipc.OS(), l.Audit(), func(e event.Entry) error {
		if e.Event == event.Approved || e.Event == event.AutoApproved {
			claimed[e.RequestID] = true
		}
		return nil
	}))
	counted, err := os.ReadDir(k.counters)
	require.NoError(k.t, err)
	for _, c := range counted {
		require.True(k.t, claimed[c.Name()], "%s ran without an entry in the log", c.Name())
	}
}
