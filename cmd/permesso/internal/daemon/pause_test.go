package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/audit/audittest"
)

// killedLog is a log whose writer is killed after some entries: the entry is
// written, but Append returns an error.
type killedLog struct {
	*audit.Log
	left int
}

var errKilled = errors.New("killed")

func (f *killedLog) Append(e event.Entry) error {
	err := f.Log.Append(e)
	if f.left--; f.left < 0 {
		return errors.Join(err, errKilled)
	}
	return err
}

// However often the daemon is killed while it records pauses, the audit log has
// each pause and each resume once, with its author, in order.
func TestPausesAreAuditedOnce(t *testing.T) {
	for kills := range 8 {
		h := home.New(config.Default(), t.TempDir())
		require.NoError(t, h.Layout.PrepareHome(h.FS))
		k, err := h.MakeKeys()
		require.NoError(t, err)
		at := time.Now().UTC()
		for i, ws := range []string{"a", ipc.AllWorkspaces, "a"} {
			require.NoError(t, h.Store.Pause(ipc.Pause{Workspace: ws, By: fmt.Sprint("ann", i), At: at, Reason: "r"}))
			if i < 2 {
				_, err := h.Store.Resume(ws, fmt.Sprint("bob", i), "", at)
				require.NoError(t, err)
			}
		}
		record := func(n, recordings int) (err error) {
			log, err := audit.OpenSigned(h.FS, h.Layout.Audit(), time.Now, audit.Keys{})
			require.NoError(t, err)
			audittest.Attach(log)
			memory, err := h.NewMemory(k, zerolog.Nop())
			require.NoError(t, err)
			log.OnEntry, memory.Audit = memory.Observe, (&killedLog{log, n}).Append
			m := pauseAudit{store: h.Store, once: memory.AuditOnce}
			for range recordings {
				err = errors.Join(err, m.recordNew())
			}
			require.NoError(t, log.Close())
			if n%2 == 1 {
				require.NoError(t, memory.SaveSnapshot(), "for the next start")
			}
			return err
		}
		for n := range kills + 1 {
			if err = record(n, 1); err != nil {
				require.ErrorIs(t, err, errKilled)
			}
		}
		require.NoError(t, record(100, 2))
		count := map[string]int{}
		require.NoError(t, audit.Entries(h.FS, h.Layout.Audit(), func(e event.Entry) error {
			count[fmt.Sprintf("%s %s %s %s", e.Event, e.Workspace, e.By, e.Reason)]++
			return nil
		}))
		require.Equal(t, map[string]int{
			"paused a ann0 r": 1, "resumed a bob0 ": 1, "paused  ann1 r": 1, "resumed  bob1 ": 1, "paused a ann2 r": 1,
		}, count, "%d kills", kills)
		left, err := os.ReadDir(h.Layout.EndedPauses())
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// A resume that was killed between its two steps has no effect, and can be
// repeated.
func TestKilledResumeCanBeRepeated(t *testing.T) {
	h := &home.Home{FS: ipc.OS(), Layout: ipc.Layout{Home: t.TempDir()}}
	h.Store = &ipc.Store{FS: h.FS, Layout: h.Layout}
	require.NoError(t, h.Layout.PrepareHome(h.FS))
	require.NoError(t, h.Store.Pause(ipc.Pause{Workspace: "a", By: "ann", At: time.Now().UTC()}))
	file := filepath.Join(h.Layout.Pauses(), "a.json")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	_, err = h.Store.Resume("a", "bob", "", time.Now().UTC())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, b, 0o600)) // as before the second step
	ended, err := h.Store.Ended()
	require.NoError(t, err)
	require.Empty(t, ended)
	_, paused := h.Store.Paused("a")
	require.True(t, paused)
	_, err = h.Store.Resume("a", "eve", "", time.Now().UTC())
	require.NoError(t, err)
	ended, err = h.Store.Ended()
	require.NoError(t, err)
	require.Len(t, ended, 1)
	require.Equal(t, "bob", ended[0].By, "the first author counts")
}

// A pause waits for claims that began before it.
func TestPauseWaitsForClaims(t *testing.T) {
	h := &home.Home{FS: ipc.OS(), Layout: ipc.Layout{Home: t.TempDir()}}
	h.Store = &ipc.Store{FS: h.FS, Layout: h.Layout}
	require.NoError(t, h.Layout.PrepareHome(h.FS))
	require.NoError(t, h.Layout.Prepare(h.FS, "a"))
	guard := &ipc.PauseGuard{Store: h.Store}
	require.True(t, guard.Enter("a"))
	require.True(t, guard.Enter("a"))
	require.NoError(t, h.Store.Pause(ipc.Pause{Workspace: "a", By: "ann"}))
	require.ErrorIs(t, h.Store.Pause(ipc.Pause{Workspace: "a", By: "ann"}), os.ErrExist)
	require.False(t, guard.Enter("a"))
	checks := 0
	check := func() error {
		switch checks++; checks {
		case 3, 6:
			guard.Leave("a")
		case 100:
			return errKilled
		}
		return nil
	}
	require.NoError(t, h.Store.AwaitClaims(ipc.AllWorkspaces, check))
	require.Equal(t, 6, checks, "not before the last claim ends")
	require.True(t, guard.Enter("b"), "another workspace is not paused")
}
