package watcher

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval/hints"
)

func TestCheckLimits(t *testing.T) {
	require.Empty(t, checkLimits(t.TempDir(), 1<<30), "other systems have no such limits")
	for _, row := range []struct{ why, file, text, says string }{
		{"enough", "fs/inotify/max_user_watches", "8192\n", ""},
		{"too few", "fs/inotify/max_user_watches", "100\n", "fs.inotify.max_user_watches is 100, but 41 folders need 105"},
		{"just enough", "fs/inotify/max_user_watches", "105\n", ""},
		{"of this namespace", "user/max_inotify_watches", "7\n", "user.max_inotify_watches is 7"},
		{"no instance", "fs/inotify/max_user_instances", "1\n", "sysctl -w fs.inotify.max_user_instances=8192"},
		{"a short queue", "fs/inotify/max_queued_events", "16\n", "a burst of events overflows it"},
		{"not a number", "fs/inotify/max_queued_events", "many\n", ""},
	} {
		t.Run(row.why, func(t *testing.T) {
			sys := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(sys, row.file)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(sys, row.file), []byte(row.text), 0o600))
			wrong := checkLimits(sys, 41)
			if row.says == "" {
				require.Empty(t, wrong)
				return
			}
			require.Len(t, wrong, 1)
			require.Contains(t, wrong[0].Error()+"; "+hints.Of(wrong[0]), row.says)
			require.NotEmpty(t, hints.Of(wrong[0]))
		})
	}
}

func TestTry(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, TryInotify(dir))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.ErrorContains(t, TryInotify(filepath.Join(dir, "none")), "try inotify: ")
	require.ErrorContains(t, TryInotify("/proc/self"), "try inotify: ", "no file can be created there")
	require.NoError(t, CheckFileSystem(dir))
	require.NotEmpty(t, remoteTypes[unix.NFS_SUPER_MAGIC])
}
