package ipc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/ipc/journal"
)

// killed is a HOME after a kill, with a record that only the journal has.
func killed(t *testing.T) (*Store, approval.Key) {
	s, _, k := failingStore(t)
	require.NoError(t, s.FS.MkdirAll(filepath.Join(s.Layout.Home, "aside"), 0o700))
	release := leased(t, s)
	require.NoError(t, s.Commit(t.Context(), store.Put(approval.DocRecord, k, []byte("{}"))))
	aside := filepath.Join(s.Layout.Home, "aside")
	for i := range 4 {
		name := filepath.Join(s.Layout.Journal(), segmentName(i))
		write(t, filepath.Join(aside, segmentName(i)), content(t, name))
	}
	require.NoError(t, release())
	require.NoError(t, os.Remove(s.path(approval.DocRecord, k)))
	for i := range 4 {
		require.NoError(t, os.Rename(filepath.Join(aside, segmentName(i)), filepath.Join(s.Layout.Journal(), segmentName(i))))
	}
	return s, k
}

func segmentName(i int) string { return fmt.Sprintf("segment-%d", i+1) }

// A start that made a new segment in the place of one with commits would lose them without a
// word. Without a version, a used segment says that the others existed.
func TestMissingSegmentIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		lose []string
		says string
	}{
		"one with commits":    {[]string{"segment-1"}, "journal: segment-1 is missing"},
		"one without commits": {[]string{"segment-2"}, "journal: segment-2 is missing"},
		"two":                 {[]string{"segment-1", "segment-3"}, "journal: segment-1 and segment-3 are missing"},
		"all": {
			[]string{"segment-1", "segment-2", "segment-3", "segment-4"},
			"journal: segment-1, segment-2, segment-3 and segment-4 are missing",
		},
		"one, without a version": {[]string{"segment-4", "version"}, "journal: segment-4 is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			s, k := killed(t)
			aside := t.TempDir()
			at := func(name string) string {
				if name == "version" {
					return s.Layout.Version()
				}
				return filepath.Join(s.Layout.Journal(), name)
			}
			for _, name := range c.lose {
				require.NoError(t, os.Rename(at(name), filepath.Join(aside, name)))
			}
			_, err := (&Store{FS: s.FS, Layout: s.Layout}).Lease(t.Context())
			require.ErrorIs(t, err, journal.ErrDamaged)
			require.EqualError(t, err, c.says)
			require.Contains(t, hints.Of(err), "put it back")
			require.NoFileExists(t, at(c.lose[0]))
			if !slices.Contains(c.lose, "version") {
				require.EqualError(t, s.Layout.CheckJournal(s.FS), c.says)
			}

			for _, name := range c.lose {
				require.NoError(t, os.Rename(filepath.Join(aside, name), at(name)))
			}
			release := leased(t, &Store{FS: s.FS, Layout: s.Layout})
			require.Equal(t, "{}", content(t, s.path(approval.DocRecord, k)))
			require.NoError(t, release())
		})
	}
}

// The way out that the hint names.
func TestStartWithoutALostJournal(t *testing.T) {
	s, k := killed(t)
	require.NoError(t, os.RemoveAll(s.Layout.Journal()))
	require.NoError(t, os.Remove(s.Layout.Version()))
	require.NoError(t, s.Layout.CheckJournal(s.FS))
	release := leased(t, &Store{FS: s.FS, Layout: s.Layout, JournalSize: 1 << 20})
	require.NoFileExists(t, s.path(approval.DocRecord, k))
	require.NoError(t, release())
	require.NoError(t, s.Layout.CheckJournal(s.FS))
}

func TestVersion(t *testing.T) {
	start := func(s *Store) error {
		release, err := (&Store{FS: s.FS, Layout: s.Layout, JournalSize: 1 << 20}).Lease(context.Background())
		if err == nil {
			err = release()
		}
		return err
	}
	s, _, _ := failingStore(t)
	require.NoError(t, start(s), "a HOME of the first version")
	require.Equal(t, "2\n", content(t, s.Layout.Version()))
	require.NoError(t, os.Remove(s.Layout.Version()))
	require.NoError(t, start(s), "a HOME from before there was this file")
	require.Equal(t, "2\n", content(t, s.Layout.Version()))

	for _, text := range []string{"3\n", "", "2"} {
		write(t, s.Layout.Version(), text)
		err := start(s)
		require.ErrorContains(t, err, "version")
		require.NotEmpty(t, hints.Of(err), "%q", text)
		require.Error(t, s.Layout.CheckJournal(s.FS))
	}
	require.NoError(t, os.Remove(s.Layout.Version()))
	require.NoError(t, start(s))
	require.NoError(t, os.Chmod(s.Layout.Version(), 0o622))
	require.ErrorContains(t, s.Layout.CheckPrivate(s.FS, "w"), "write")
	_, wrong := s.Layout.CheckFolders(s.FS, "w")
	require.Len(t, wrong, 1)
}

// simulated is the simulated disk as a store needs it.
type simulated struct{ *crashfs.Proc }

func (s simulated) TryLock(name string) (Lock, error) { return s.Proc.TryLock(name) }

// A crash at any operation of the first start, and then at any of the second, leaves a HOME
// that starts.
func TestCrashesOfTheFirstStart(t *testing.T) {
	layout := Layout{Home: "/home"}
	start := func(d *crashfs.Disk) error {
		p := simulated{d.Process("gate")}
		defer p.Kill()
		if err := errors.Join(layout.PrepareHome(p), layout.Prepare(p, other.Workspace)); err != nil {
			return err
		}
		s := &Store{FS: p, Layout: layout, JournalSize: 64 << 10}
		release, err := s.Lease(context.Background())
		if err != nil {
			return err
		}
		if err := s.Commit(context.Background(), store.Op{Doc: approval.DocRecord, Key: other, Bytes: []byte("{}"), Mode: store.Replace}); err != nil {
			return err
		}
		return release()
	}
	states := 0
	var crashes func(d *crashfs.Disk, depth int, how string)
	crashes = func(d *crashfs.Disk, depth int, how string) {
		var points []*crashfs.Disk
		var ops []string
		d.Before = func(op crashfs.Op) {
			points, ops = append(points, d.Snapshot()), append(ops, op.String())
		}
		require.NoError(t, start(d), how)
		d.Before = nil
		points, ops = append(points, d.Snapshot()), append(ops, "end")
		for i, p := range points {
			after := map[string]*crashfs.Disk{"kill": p.Kill()}
			for _, way := range append(crashfs.Ways(), crashfs.Seeded(1), crashfs.Seeded(2)) {
				after[way.String()] = p.Cut(way)
			}
			for way, d := range after {
				states++
				at := fmt.Sprintf("%s, %s at %s", how, way, ops[i])
				if depth == 0 {
					require.NoError(t, start(d), at)
				} else if way == "kill" && (i%5 == 0 || strings.Contains(ops[i], "/journal")) || strings.Contains(ops[i], "version") {
					crashes(d, depth-1, at)
				}
			}
		}
	}
	crashes(crashfs.New(), 1, "empty")
	t.Logf("%d states", states)
	require.Greater(t, states, 5000)
}

// A journal that is removed while it is in use goes on without an error of the disk. But the
// next start would not find it.
func TestJournalRemovedWhileInUse(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		damage func(t *testing.T, l Layout)
		says   string
	}{
		"the folder": {func(t *testing.T, l Layout) { require.NoError(t, os.RemoveAll(l.Journal())) }, "journal: segment-1 was removed while it was in use"},
		"the folder, moved": {func(t *testing.T, l Layout) {
			require.NoError(t, os.Rename(l.Journal(), l.Journal()+"-old"))
		}, "journal: segment-1 was removed while it was in use"},
		"one segment": {func(t *testing.T, l Layout) {
			require.NoError(t, os.Remove(filepath.Join(l.Journal(), "segment-3")))
		}, "journal: segment-3 was removed while it was in use"},
		"one with a copy in its place": {func(t *testing.T, l Layout) {
			file := filepath.Join(l.Journal(), "segment-2")
			b := content(t, file)
			require.NoError(t, os.Remove(file))
			write(t, file, b)
		}, "journal: segment-2 was replaced while it was in use"},
	} {
		for way, use := range map[string]func(s *Store) error{
			"a decision": func(s *Store) error {
				return s.Commit(ctx, store.Put(approval.DocDecision, other, []byte("{}")))
			},
			"a run":        func(s *Store) error { _, err := s.Reserve(ctx, 1000); return err },
			"a checkpoint": func(s *Store) error { return s.Checkpoint(ctx) },
			"a probe":      func(s *Store) error { return s.Probe(ctx) },
			"figures": func(s *Store) error {
				d, err := s.Disk()
				require.NoError(t, err)
				return cmp.Or(s.restartErr(), errors.New("no error: "+d.Failed))
			},
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				s, fsys, k := failingStore(t)
				release := leased(t, s)
				require.NoError(t, s.Commit(ctx, store.Put(approval.DocPending, k, []byte("{}"))))
				c.damage(t, s.Layout)
				fsys.syncs = 0
				err := use(s)
				require.ErrorIs(t, err, store.ErrRestart)
				require.ErrorIs(t, err, store.ErrJournalLost)
				require.ErrorContains(t, err, c.says)
				require.NotContains(t, err.Error(), "disk sync failed")
				require.NotEmpty(t, hints.Of(err))
				require.NoFileExists(t, s.path(approval.DocDecision, other))

				require.ErrorIs(t, s.Commit(ctx, store.Put(approval.DocPending, other, []byte("{}"))), store.ErrJournalLost, "it stays so")
				d, err := s.Disk()
				require.NoError(t, err)
				require.Contains(t, d.Failed, c.says)
				require.Zero(t, fsys.syncs)
				require.ErrorIs(t, release(), store.ErrJournalLost)
				require.Equal(t, 1, fsys.syncs, "what the journal had is now in files that are durable")
			})
		}
	}
}
