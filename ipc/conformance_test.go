package ipc_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/storetest"
)

func TestFileStore(t *testing.T) {
	storetest.TestStore(t, func(t *testing.T) *storetest.Backend {
		layout := ipc.Layout{Home: t.TempDir()}
		require.NoError(t, layout.PrepareHome(ipc.OS()))
		require.NoError(t, layout.Prepare(ipc.OS(), storetest.Workspace))
		return &storetest.Backend{
			Open: func() store.Store { return &ipc.Store{FS: ipc.OS(), Layout: layout} },
			Agent: func(name string, b []byte) {
				require.NoError(t, os.WriteFile(filepath.Join(layout.Requests(storetest.Workspace), name), b, 0o600))
			},
		}
	})
}

func TestMemoryStore(t *testing.T) {
	storetest.TestStore(t, func(*testing.T) *storetest.Backend { return newMemory() })
}
