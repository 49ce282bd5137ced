package home

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc"
)

func TestHealth(t *testing.T) {
	paused := false
	home := &Home{FS: ipc.OS(), Layout: ipc.Layout{Home: t.TempDir()}}
	require.NoError(t, home.Layout.PrepareHome(home.FS))
	h := &Health{file: home.Layout.Health(), paused: func() bool { return paused }, report: HealthReport{PID: os.Getpid(), Version: "v"}}
	now := func() HealthReport { return home.HealthAt(time.Now()) }
	require.Equal(t, HealthDegraded, now().Status, "no report counts as degraded")
	h.Refresh()
	require.Equal(t, HealthOK, now().Status)
	require.NotNil(t, now().Issues)
	paused = true
	h.Refresh()
	require.Equal(t, HealthPaused, now().Status)
	h.Set("disk", "no space left", "free space")
	first := now()
	require.Equal(t, HealthDegraded, first.Status, "worse than paused")
	h.Set("disk", "still no space left", "free space")
	h.Set("config", "wrong", "")
	require.Len(t, now().Issues, 2)
	require.Equal(t, first.Issues[0].Since, now().Issues[1].Since, "an issue keeps its start time")
	require.Equal(t, "still no space left", now().Issues[1].What)
	h.Clear("disk")
	h.Clear("config")
	h.Clear("nothing")
	require.Equal(t, HealthPaused, now().Status)
	paused = false
	h.Note("mail", "an email was not understood", "write again")
	require.Equal(t, HealthOK, now().Status, "a note is no issue")
	require.Empty(t, now().Issues)
	require.Equal(t, "an email was not understood", now().Notes[0].What)
	st := &State{Running: true, Health: new(now())}
	require.Contains(t, st.String(), "daemon  running\n")
	require.Contains(t, st.String(), "\nnote    an email was not understood\n  hint: write again")
	require.NotContains(t, st.Only(nil).String(), "an email")
	h.Clear("mail")
	require.Empty(t, now().Notes)
	names, err := os.ReadDir(home.Layout.Run())
	require.NoError(t, err)
	require.Len(t, names, 1, "only the report")
}

// A report that is old, of another process, or malformed counts as degraded.
func TestUntrustedHealthReports(t *testing.T) {
	home := &Home{FS: ipc.OS(), Layout: ipc.Layout{Home: t.TempDir()}}
	require.NoError(t, home.Layout.PrepareHome(home.FS))
	write := func(r HealthReport) {
		b, err := json.Marshal(r)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(home.Layout.Health(), b, 0o600))
	}
	now := time.Now()
	good := HealthReport{Status: HealthOK, PID: os.Getpid(), UpdatedAt: now}
	write(good)
	require.Equal(t, HealthOK, home.HealthAt(now).Status)
	old := good
	old.UpdatedAt = now.Add(-2 * maxReportAge)
	write(old)
	require.Contains(t, home.HealthAt(now).Issues[0].What, "no health report from the daemon since")
	gone := good
	gone.PID = 1 << 30
	write(gone)
	require.Contains(t, home.HealthAt(now).Issues[0].What, "another process")
	require.NoError(t, os.WriteFile(home.Layout.Health(), []byte("{"), 0o600))
	require.Equal(t, HealthDegraded, home.HealthAt(now).Status)

	// If the report cannot be replaced, it is overwritten in place.
	write(good)
	require.NoError(t, os.Mkdir(home.Layout.Health()+".new", 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(home.Layout.Health()+".new", "x"), nil, 0o600))
	(&Health{file: home.Layout.Health()}).Set("disk", "no space left", "")
	b, err := os.ReadFile(home.Layout.Health())
	require.NoError(t, err)
	require.Contains(t, string(b), "no space left")
	// If it cannot be written at all, it is removed.
	require.NoError(t, os.Remove(home.Layout.Health()))
	require.NoError(t, os.Mkdir(home.Layout.Health(), 0o700))
	(&Health{file: home.Layout.Health()}).Set("disk", "no space left", "")
	require.NoFileExists(t, home.Layout.Health())
}
