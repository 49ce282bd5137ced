package home

import (
	"bytes"
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/seal"
)

// A clearing that session clear has acknowledged is applied exactly once, at
// whatever disk operation the daemon loses power, and whatever survives on disk.
func TestTaintClearingSurvivesEveryCut(t *testing.T) {
	t.Parallel()
	key, err := seal.NewKey(bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	layout := ipc.Layout{Home: "/home"}
	memoryOn := func(disk *crashfs.Disk, log []event.Entry, add func(event.Entry) error) *Memory {
		proc := disk.Process("daemon")
		h := &Home{Config: config.Default(), Layout: layout, FS: proc, Store: &ipc.Store{FS: proc, Layout: layout}}
		m, err := h.bareMemory(zerolog.Nop())
		require.NoError(t, err)
		m.Keys, m.Audit = &Keys{Seal: key}, add
		m.reset()
		for _, x := range log {
			m.Observe(x)
		}
		return m
	}
	newDisk := func() *crashfs.Disk {
		disk := crashfs.New()
		p := disk.Process("operator")
		require.NoError(t, p.MkdirAll(layout.Grants(), 0o700))
		require.NoError(t, p.SyncFS("/"))
		c := &grant.Clearing{Version: approval.Version, ID: "00000000000000aa", Workspace: "default", By: "ann", At: time.Unix(1, 0).UTC()}
		body, err := c.Encode()
		require.NoError(t, err)
		k := grant.Key(c.ID)
		docs := &ipc.Store{FS: p, Layout: layout}
		require.NoError(t, docs.Commit(context.Background(), store.Put(approval.DocClear, k, key.Seal(approval.DocClear, k, body))))
		return disk
	}
	complete := newDisk()
	steps := 0
	complete.Fail = func(crashfs.Op) error { steps++; return nil }
	require.NoError(t, memoryOn(complete, nil, func(event.Entry) error { return nil }).clearTaints())
	require.Greater(t, steps, 1)
	for n := range steps + 2 { // the last two: only the entry fails, before or after it is durable
		for _, way := range []crashfs.Survive{crashfs.OnlySynced, crashfs.Everything, crashfs.NamesNotData, crashfs.Torn} {
			disk, left := newDisk(), n
			disk.Fail = func(crashfs.Op) error { // all later operations fail, as after a power cut
				if left--; left < 0 {
					return syscall.EIO
				}
				return nil
			}
			var log []event.Entry
			_ = memoryOn(disk, nil, func(x event.Entry) error {
				if n == steps+1 {
					return errors.New("cut off before the entry was durable")
				}
				log = append(log, x)
				return nil
			}).clearTaints()
			disk.Fail = nil
			after := disk.Cut(way)
			for range 2 { // a second start changes nothing
				require.NoError(t, memoryOn(after, log, func(x event.Entry) error { log = append(log, x); return nil }).clearTaints())
			}
			require.Len(t, log, 1, "cut at operation %d, %v", n, way)
			require.Equal(t, event.TaintsCleared, log[0].Event)
			require.Empty(t, after.Files(), "nothing is left that could be applied twice")
		}
	}
}
