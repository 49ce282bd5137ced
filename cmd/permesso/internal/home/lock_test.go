package home

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// A daemon that starts, a rotation and every command wait equally long for a command that
// has the lock, and less long for another daemon.
func TestWaitForLock(t *testing.T) {
	for name, c := range map[string]struct {
		held   time.Duration
		daemon bool // the process that has the lock reports its health
		ok     bool
	}{
		"another command":              {held: 4 * time.Second, ok: true},
		"another command hangs":        {held: 6 * time.Second},
		"a daemon stops in time":       {held: time.Second, daemon: true, ok: true},
		"another daemon keeps running": {held: 3 * time.Second, daemon: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				h := New(config.Default(), dir)
				require.NoError(t, h.Layout.PrepareHome(h.FS))
				if c.daemon {
					h.NewHealth("1").Refresh()
				}
				lock, err := h.FS.TryLock(h.Layout.Lock())
				require.NoError(t, err)
				time.AfterFunc(c.held, func() { _ = lock.Close() })
				release, err := h.Lock(t.Context())
				if !c.ok {
					require.ErrorIs(t, err, store.ErrLocked)
					time.Sleep(c.held) // the lock is released
					return
				}
				require.NoError(t, err)
				require.NoError(t, release())
			})
		})
	}
}
