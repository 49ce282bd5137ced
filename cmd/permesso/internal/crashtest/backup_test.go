package crashtest

import (
	"context"
	"errors"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/ipc/journal"
	"github.com/permesso-dev/permesso/security/audit"
)

// backedUp are the flows of which backups are taken.
var backedUp = []string{"allow", "approve", "always inside", "checkpoints", "large", "head", "handler fails", "cancel", "two requests"}

// eachBackup plays flows, and calls take for every operation of the daemon, with the number of
// operations before it.
func eachBackup(t *testing.T, take func(t *testing.T, f *flow, at int)) {
	for _, f := range allFlows() {
		if !slices.Contains(backedUp, f.Name) {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			for at := range playUntil(t, f, func(*env, int, crashfs.Op) {}) {
				if !raceEnabled || at%17 == 0 {
					take(t, f, at)
				}
			}
		})
	}
}

// playUntil plays a flow, calls each before every operation, and returns their number.
func playUntil(t *testing.T, f *flow, each func(s *env, n int, op crashfs.Op)) (n int) {
	config, err := newConfig("")
	require.NoError(t, err)
	w, err := config.newSim(f)
	require.NoError(t, err)
	times := 0
	w.disk.Now = func() time.Time { times++; return w.now.Add(time.Duration(times)) } // no two versions have one time
	s := &env{w: w}
	require.NoError(t, s.boot())
	w.disk.Before = func(op crashfs.Op) {
		if op.Proc != "backup" {
			each(s, n, op)
			n++
		}
	}
	for _, do := range f.Script {
		require.NoError(t, do(s))
		w.observe()
	}
	return n
}

// restored returns the simulation with a copy of HOME in its place.
func restored(t *testing.T, w *sim, disk *crashfs.Disk) *sim {
	c := w.clone(disk)
	p := disk.Process("backup")
	require.NoError(t, p.RemoveAll(home))
	require.NoError(t, p.Rename("/copy", home))
	require.NoError(t, p.SyncFS("/"))
	return c
}

// A copy that the daemon takes while it works equals a power cut: every promise holds on it.
// The first pass is taken at one operation, the last some operations later.
func TestCopyWhileRunning(t *testing.T) {
	taken := 0
	eachBackup(t, func(t *testing.T, f *flow, at int) {
		var c *ipc.Copy
		var promised *sim
		playUntil(t, f, func(s *env, n int, op crashfs.Op) {
			switch {
			case n == at:
				p := s.w.disk.Process("backup")
				c = &ipc.Copy{FS: simFS{p, s.w}, From: layout, To: "/copy"}
				require.NoError(t, c.Prepare())
				_, err := c.Pass(t.Context())
				require.NoError(t, err)
			case c != nil && promised == nil && n >= at+9 && op.Proc == "gate" && locked(op) == 0:
				require.NoError(t, s.daemon.store.Freeze(func() error { return c.Frozen(context.Background()) }))
				require.NoError(t, c.Complete())
				promised = restored(t, s.w, s.w.disk.Snapshot())
			}
		})
		if promised != nil {
			taken++
			bad, _ := promised.runToEnd(1, func(checkpoint) bool { return false })
			require.Empty(t, bad, "a copy from operation %d on", at)
		}
	})
	require.Positive(t, taken)
}

// A copy by other means, file by file while the daemon works, may lack what ran meanwhile. A
// start from it works, or says plainly that it cannot.
func TestFileByFileCopy(t *testing.T) {
	ends := map[string]int{}
	eachBackup(t, func(t *testing.T, f *flow, at int) {
		for _, backwards := range []bool{false, true} {
			var names []string
			copied := crashfs.New()
			p := copied.Process("backup")
			var last *sim
			playUntil(t, f, func(s *env, n int, _ crashfs.Op) {
				if n < at {
					return
				}
				if n == at {
					names = sortedKeys(s.w.disk.Files())
					if backwards {
						slices.Reverse(names)
					}
				}
				names = copyOne(t, s.w, p, names)
				last = s.w
			})
			for len(names) > 0 {
				names = copyOne(t, last, p, names)
			}
			require.NoError(t, errors.Join(layout.PrepareHome(p), layout.Prepare(p, workspace), p.SyncFS("/")))
			c := last.clone(copied)
			err := c.restart()
			switch alarm, _ := audit.ReadAlarm(p, layout.Audit()); {
			case errors.Is(err, journal.ErrDamaged) || errors.Is(err, audit.ErrDamaged):
				require.True(t, errors.Is(err, audit.ErrDamaged) || hints.Of(err) != "", err)
				ends["refused"]++
			case err == nil && alarm != nil:
				ends["alarm"]++
			default:
				require.NoError(t, err, "a copy from operation %d on", at)
				ends["works"]++
			}
		}
	})
	t.Logf("%v", ends)
	require.Positive(t, ends["works"])
}

// copyOne copies the first of the files that still exists.
func copyOne(t *testing.T, w *sim, p *crashfs.Proc, names []string) []string {
	for i, name := range names {
		b, ok := w.disk.File(name)
		if !ok {
			continue
		}
		require.NoError(t, p.MkdirAll(path.Dir(name), 0o700))
		require.NoError(t, afero.WriteFile(p, name, b, 0o600))
		return names[i+1:]
	}
	return nil
}
