package ipc_test

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc"
)

// canList reports whether a user can list a folder.
func canList(t *testing.T, uid uint32, dir string) bool {
	t.Helper()
	cmd := osexec.Command("/bin/ls", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	require.True(t, err == nil || strings.Contains(string(out), "Permission denied"), "%s", out)
	return err == nil
}

// Each agent reaches its own two folders, and nothing else. Other users reach nothing.
func TestAdmitAgents(t *testing.T) {
	const agent, other, stranger = 40003, 40005, 40004
	dir, err := os.MkdirTemp("", "permesso-agents-") // other users cannot enter t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	l := ipc.Layout{Home: filepath.Join(dir, "home")}
	require.NoError(t, l.PrepareHome(ipc.OS()))
	for _, ws := range []string{"one", "two"} {
		require.NoError(t, l.Prepare(ipc.OS(), ws))
	}
	private := []string{l.Home, l.IPC(), l.Workspace("one"), l.Workspace("two"), l.Keys(), l.Audit(), l.Pendings("one"), l.Decisions("one"), l.Records("one")}
	reaches := func(uid uint32, ws string, want bool) {
		t.Helper()
		require.Equal(t, want, l.CheckAgentPath(ws, uid) == nil, "UID %d in %s", uid, ws)
		if os.Getuid() != 0 {
			return // only root can become another user
		}
		require.Equal(t, want, canList(t, uid, l.Requests(ws)), "UID %d in %s", uid, ws)
		require.Equal(t, want, canList(t, uid, l.Responses(ws)), "UID %d in %s", uid, ws)
		for _, path := range private {
			require.False(t, canList(t, uid, path), "UID %d lists %s", uid, path)
		}
	}
	for _, uid := range []uint32{agent, other, stranger} {
		reaches(uid, "one", false)
	}
	require.ErrorContains(t, l.CheckAgentPath("one", agent), l.Home+" does not let it through")

	for range 2 { // the second time changes nothing
		require.NoError(t, l.AdmitAgents(map[string][]uint32{"one": {agent, agent}, "two": {other}}))
		reaches(agent, "one", true)
		reaches(agent, "two", false)
		reaches(other, "two", true)
		reaches(other, "one", false)
		reaches(stranger, "one", false)
		for _, ws := range []string{"one", "two"} {
			require.NoError(t, l.Prepare(ipc.OS(), ws))
			require.NoError(t, l.CheckPrivate(ipc.OS(), ws))
		}
	}

	require.NoError(t, os.Chmod(l.Home, 0o700)) // as systemd does at each start
	reaches(agent, "one", false)
	require.NoError(t, l.AdmitAgents(map[string][]uint32{"one": {agent}, "two": nil}))
	reaches(agent, "one", true)
	reaches(other, "two", false)

	require.NoError(t, l.AdmitAgents(map[string][]uint32{"one": nil, "two": nil}))
	reaches(agent, "one", false)
	info, err := os.Stat(l.Home)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "no entry is left")
}
