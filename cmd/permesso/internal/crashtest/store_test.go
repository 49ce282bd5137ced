package crashtest

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/ipc/storetest"
)

// TestCrashStore runs the suite of stores on the simulated disk, with each kind of
// power cut.
func TestCrashStore(t *testing.T) {
	for _, way := range crashfs.Ways() {
		t.Run(way.String(), func(t *testing.T) {
			storetest.TestStore(t, func(t *testing.T) *storetest.Backend {
				config, err := newConfig("")
				require.NoError(t, err)
				w, err := config.newSim(&flow{})
				require.NoError(t, err)
				require.Equal(t, workspace, storetest.Workspace)
				return &storetest.Backend{
					Open: func() store.Store {
						s := w.store(w.disk.Process("store"))
						s.Verify = nil // the suite's documents have no MAC
						return s
					},
					Agent: func(name string, b []byte) {
						f, err := w.disk.Process("agent").Create(filepath.Join(layout.Requests(workspace), name))
						require.NoError(t, err)
						_, err = f.Write(b)
						require.NoError(t, err)
						require.NoError(t, f.Close())
					},
					Crash: func() { w = w.clone(w.disk.Cut(way)) },
				}
			})
		})
	}
}
