package home

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc"
)

// renamed calls after for each file that has just become visible.
type renamed struct {
	ipc.FS
	after func(name string)
}

func (f renamed) Rename(from, to string) error {
	err := f.FS.Rename(from, to)
	f.after(to)
	return err
}

// Who sees a pending finds its entry in the log, also if the commit is not at its end.
func TestReadLogHasWhatIsVisible(t *testing.T) {
	h, k := newHome(t, "[workspaces.work]\n")
	key := approval.Key{Workspace: "work", ID: "00000000000000aa"}
	seen := 0
	h.Store.FS = renamed{h.Store.FS, func(name string) {
		if name != h.Layout.Pendings(key.Workspace)+"/"+key.ID+".json" {
			return
		}
		seen++
		var found []string
		require.NoError(t, h.ReadLog(nil, func(e event.Entry) error { found = append(found, e.RequestID); return nil }))
		require.Contains(t, found, key.ID)
	}}
	require.NoError(t, h.Layout.Prepare(h.FS, key.Workspace))
	release, err := h.Store.Lease(t.Context())
	require.NoError(t, err)
	log, err := h.OpenAudit(k)
	require.NoError(t, err)
	e := event.Entry{Event: event.Requested, Workspace: key.Workspace, RequestID: key.ID, Time: time.Now()}
	require.NoError(t, h.Store.Commit(context.Background(), store.Put(approval.DocPending, key, []byte("{}")), store.Log(e)))
	require.Equal(t, 1, seen)
	require.NoError(t, log.Close())
	require.NoError(t, release())
}
