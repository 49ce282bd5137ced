package home

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc"
)

// glanceHome is a HOME in which two requests wait in a workspace and one in another, and one is decided.
func glanceHome(t *testing.T) *Home {
	t.Helper()
	h := New(nil, t.TempDir())
	require.NoError(t, h.Layout.PrepareHome(h.FS))
	for _, ws := range []string{"one", "two"} {
		require.NoError(t, h.Layout.Prepare(h.FS, ws))
	}
	for path, age := range map[string]time.Duration{
		filepath.Join(h.Layout.Pendings("one"), "00000000000000aa.json"):  3 * time.Minute,
		filepath.Join(h.Layout.Pendings("one"), "00000000000000ab.json"):  time.Minute,
		filepath.Join(h.Layout.Pendings("two"), "00000000000000ac.json"):  2 * time.Minute,
		filepath.Join(h.Layout.Pendings("one"), "00000000000000ad.json"):  time.Hour, // decided
		filepath.Join(h.Layout.Decisions("one"), "00000000000000ad.json"): time.Hour,
		filepath.Join(h.Layout.Pendings("one"), "00000000000000ae.json"):  time.Hour, // started
		filepath.Join(h.Layout.Receipts("one"), "00000000000000ae.json"):  time.Hour,
		filepath.Join(h.Layout.Pendings("one"), ".tmp-00000000000000af"):  time.Hour, // not visible yet
	} {
		require.NoError(t, os.WriteFile(path, []byte("no document"), 0o600))
		at := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(path, at, at))
	}
	return h
}

func everywhere(string) bool { return true }

func TestGlanceCountsWhatIsUndecided(t *testing.T) {
	h := glanceHome(t)
	g, err := h.Glance(t.Context(), everywhere, nil)
	require.NoError(t, err)
	require.Equal(t, 3, g.Waiting)
	require.InDelta(t, 3*time.Minute, time.Since(g.Oldest), float64(time.Minute/2))
	require.Equal(t, DaemonDown, g.Daemon)
	require.False(t, g.Paused)

	g, err = h.Glance(t.Context(), func(ws string) bool { return ws == "two" }, func(k approval.Key) bool { return k.ID != "00000000000000ac" })
	require.NoError(t, err)
	require.Zero(t, g.Waiting)
	require.Zero(t, g.Oldest)

	require.NoError(t, h.Store.Pause(ipc.Pause{Workspace: "one", By: "me"}))
	g, err = h.Glance(t.Context(), everywhere, nil)
	require.NoError(t, err)
	require.True(t, g.Paused)
	g, err = h.Glance(t.Context(), func(ws string) bool { return ws == "two" }, nil)
	require.NoError(t, err)
	require.False(t, g.Paused, "another workspace is")
}

// Another process holds the lock, the journal is damaged, and nothing may be written: it counts all the same.
func TestGlanceOnlyReads(t *testing.T) {
	h := glanceHome(t)
	lock, err := h.FS.TryLock(h.Layout.Lock())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lock.Close()) })
	require.NoError(t, os.WriteFile(filepath.Join(h.Layout.Journal(), "0"), []byte("damaged"), 0o600))
	before := filesIn(t, h.Layout.Home)
	g, err := h.Glance(t.Context(), everywhere, nil)
	require.NoError(t, err)
	require.Equal(t, 3, g.Waiting)
	require.Equal(t, before, filesIn(t, h.Layout.Home))
}

// filesIn are the files below a folder, with their sizes and times.
func filesIn(t *testing.T, dir string) (list []string) {
	t.Helper()
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		list = append(list, path+" "+strconv.FormatInt(info.Size(), 10)+" "+info.ModTime().String())
		return err
	}))
	return list
}

// A daemon is up only while its report is fresh and its lock is held.
func TestGlanceTellsOfTheDaemon(t *testing.T) {
	h := glanceHome(t)
	report := func(pid int, age time.Duration) {
		text := `{"pid":` + strconv.Itoa(pid) + `,"updated_at":"` + time.Now().Add(-age).UTC().Format(time.RFC3339) + `"}`
		require.NoError(t, os.WriteFile(h.Layout.Health(), []byte(text), 0o600))
	}
	report(os.Getpid(), 0)
	require.Equal(t, DaemonDown, h.daemonState(time.Now()), "another process has the PID of a daemon that was killed")
	lock, err := h.FS.TryLock(h.Layout.Lock())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lock.Close()) })
	require.Equal(t, DaemonUp, h.daemonState(time.Now()))
	report(os.Getpid(), 2*maxReportAge)
	require.Equal(t, DaemonSilent, h.daemonState(time.Now()))
	require.NoError(t, os.Remove(h.Layout.Health()))
	require.Equal(t, DaemonDown, h.daemonState(time.Now()), "a command has the lock")
}
