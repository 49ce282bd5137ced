package client

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The agent and the daemon are often different users, and agents may have a strict umask.
func TestRequestsCanBeReadByTheGate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	f := Files{Requests: t.TempDir()}
	id := NewID()
	require.NoError(t, f.Submit(id, []byte("{}")))
	info, err := os.Stat(filepath.Join(f.Requests, id+".json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode().Perm())
}
