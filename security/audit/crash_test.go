package audit_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/audit"
)

var errDisk = errors.New("input/output error")

// put writes a file as a crash or a person may leave it.
func put(t *testing.T, disk *crashfs.Disk, name, content string) {
	t.Helper()
	p := disk.Process("hand")
	require.NoError(t, afero.WriteFile(p, dir+"/"+name, []byte(content), 0o600))
	require.NoError(t, p.SyncFS("/"))
}

func line(n int) string {
	return fmt.Sprintf(`{"seq":%d,"time":"2026-11-21T12:00:00Z","event":"executed","request_id":"%016x"}`+"\n", n, n)
}

func TestTornTail(t *testing.T) {
	for _, c := range []struct{ why, tail string }{
		{"half a line", line(3)[:20]},
		{"all but the line feed", strings.TrimSuffix(line(3), "\n")},
		{"zeros", string(make([]byte, 100))},
		{"zeros and a line", string(make([]byte, 10)) + "\n" + line(4)},
		{"a missing line", line(4)},
		{"a duplicate number", line(2)},
		{"no JSON", "hello\n"},
		{"an unknown key", `{"seq":3,"time":"2026-11-21T12:00:00Z","event":"executed","x":1}` + "\n"},
		{"a duplicate key", `{"seq":3,"seq":3,"time":"2026-11-21T12:00:00Z","event":"executed"}` + "\n"},
		{"an empty line", "\n"},
	} {
		disk := newDisk(t)
		put(t, disk, "log.jsonl", line(1)+line(2)+c.tail)
		for n := 3; n < 6; n++ {
			l := open(t, disk.Process("daemon"))
			require.NoError(t, l.Append(entry(n)), c.why)
			require.NoError(t, l.Close(), c.why)
		}
		require.Equal(t, "1 2 3 4 5", ids(entries(t, disk.Process("reader"))), c.why)
		files := disk.Files()
		require.Equal(t, line(1)+line(2)+c.tail, string(files[dir+"/log.jsonl"]), "%s: the old segment is unchanged", c.why)
		require.Equal(t, line(3)+line(4)+line(5), string(files[dir+"/log-2.jsonl"]), c.why)
	}
}

// After a kill during a write, a new segment begins. A later power cut must not
// lose the lines of the old one.
func TestOpenSyncsAfterKill(t *testing.T) {
	disk := newDisk(t)
	put(t, disk, "log.jsonl", line(1))
	p := disk.Process("killed")
	f, err := p.OpenFile(dir+"/log.jsonl", os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.WriteString(line(2) + line(3)[:10])
	require.NoError(t, err)
	p.Kill()

	l := open(t, disk.Process("daemon"))
	require.NoError(t, l.Append(entry(3)))
	require.Equal(t, "1 2 3", ids(entries(t, disk.Cut(crashfs.OnlySynced).Process("reader"))))
}

func TestReadWhileWriting(t *testing.T) {
	disk := newDisk(t)
	require.Empty(t, entries(t, disk.Process("reader")), "no log yet")
	put(t, disk, "log.jsonl", line(1)+line(2)[:30])
	require.Equal(t, "1", ids(entries(t, disk.Process("reader"))), "an incomplete line is ignored")
}

func TestEntriesReportsDamage(t *testing.T) {
	for _, c := range []struct {
		why   string
		files map[string]string
		left  string
	}{
		{"a line changed", map[string]string{"log.jsonl": line(1) + "x\n" + line(3)}, "1"},
		{"a missing line", map[string]string{"log.jsonl": line(1) + line(3)}, "1"},
		{"a missing first line", map[string]string{"log.jsonl": line(2)}, ""},
		{"lines missing between segments", map[string]string{"log.jsonl": line(1), "log-2.jsonl": line(3)}, "1"},
		{"a missing segment", map[string]string{"log.jsonl": line(1), "log-3.jsonl": line(2)}, ""},
		{"a missing first segment", map[string]string{"log-2.jsonl": line(2)}, ""},
		{"an empty segment", map[string]string{"log.jsonl": line(1), "log-2.jsonl": ""}, ""},
		{"a later segment that begins before the first line", map[string]string{
			"log.jsonl": line(1), "log-2.jsonl": `{"seq":0,"time":"2026-11-21T12:00:00Z","event":"executed"}` + "\n",
		}, ""},
	} {
		disk := newDisk(t)
		for name, content := range c.files {
			put(t, disk, name, content)
		}
		var all []event.Entry
		err := audit.Entries(disk.Process("reader"), dir, func(e event.Entry) error {
			all = append(all, e)
			return nil
		})
		require.ErrorIs(t, err, audit.ErrDamaged, c.why)
		require.Equal(t, c.left, ids(all), "%s: entries before the damage are returned", c.why)
	}
	err := audit.Entries(crashfs.New().Process("reader"), "/nowhere", nil)
	require.Error(t, err, "no folder")
}

func TestOpenRefusesDamage(t *testing.T) {
	for name, content := range map[string]string{"log.jsonl": "", "log-2.jsonl": "hello\n"} {
		disk := newDisk(t)
		put(t, disk, "log.jsonl", line(1))
		put(t, disk, name, content)
		_, err := audit.OpenSigned(disk.Process("daemon"), dir, clock, audit.Keys{})
		require.ErrorIs(t, err, audit.ErrDamaged, name)
		require.NotEmpty(t, hints.Of(err))
	}
	_, err := audit.OpenSigned(crashfs.New().Process("daemon"), "/nowhere", clock, audit.Keys{})
	require.Error(t, err, "no folder")
}

func TestOtherFilesAreIgnored(t *testing.T) {
	disk := newDisk(t)
	for _, name := range []string{"log-1.jsonl", "log-02.jsonl", "log-x.jsonl", "log-2.jsonl.bak", "log.txt", "checkpoint"} {
		put(t, disk, name, "hello")
	}
	l := open(t, disk.Process("daemon"))
	require.NoError(t, l.Append(entry(1)))
	require.Equal(t, "1", ids(entries(t, disk.Process("reader"))))
}

func TestNewSegmentAfterFailure(t *testing.T) {
	for _, kind := range []crashfs.Kind{crashfs.OpWrite, crashfs.OpSync} {
		disk := newDisk(t)
		l := open(t, disk.Process("daemon"))
		require.NoError(t, l.Append(entry(1)))
		require.NoError(t, l.Close())
		l = open(t, disk.Process("daemon"))
		l.Note(entry(2))
		disk.Fail = func(op crashfs.Op) error {
			if op.Kind == kind && strings.HasSuffix(op.Path, "/log.jsonl") {
				return errDisk
			}
			return nil
		}
		l.Note(entry(3)) // the new segment repeats it, even if its write failed
		require.NoError(t, l.Append(entry(4)), kind)
		disk.Fail = nil
		require.NoError(t, l.Append(entry(5)), kind)

		require.Equal(t, "1 2 3 4 5", ids(entries(t, disk.Process("reader"))), kind)
		require.Equal(t, line(2)+line(3)+line(4)+line(5), string(disk.Files()[dir+"/log-2.jsonl"]),
			"%s: the new segment repeats all entries that may be lost", kind)
		for _, way := range crashfs.Ways() {
			left := disk.Cut(way)
			require.Equal(t, "1 2 3 4 5", ids(entries(t, left.Process("reader"))), "%s, %s", kind, way)
			again := open(t, left.Process("again"))
			require.NoError(t, again.Append(entry(6)))
			require.Equal(t, "1 2 3 4 5 6", ids(entries(t, left.Process("reader"))), "%s, %s", kind, way)
		}
	}
}

// A failed folder sync is not retried: it could succeed although the name was lost.
func TestLogStopsAfterFailedFolderSync(t *testing.T) {
	disk := newDisk(t)
	l := open(t, disk.Process("daemon"))
	disk.Fail = func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSyncDir {
			return errDisk
		}
		return nil
	}
	err := l.Append(entry(1))
	require.ErrorIs(t, err, audit.ErrBroken)
	require.ErrorIs(t, err, store.ErrRestart)
	require.ErrorIs(t, err, errDisk)
	disk.Fail = nil
	ops := disk.Ops()
	require.ErrorIs(t, l.Append(entry(2)), audit.ErrBroken, "even if the disk works again")
	l.Note(entry(3))
	require.ErrorIs(t, l.Sync(), audit.ErrBroken)
	require.ErrorIs(t, l.Close(), audit.ErrBroken)
	require.Equal(t, ops, disk.Ops(), "no retries")

	require.NoError(t, disk.Process("again").SyncFS("/"), "as the store does at start")
	again := open(t, disk.Process("again"))
	require.NoError(t, again.Append(entry(4)))
	require.Equal(t, "1 4", ids(entries(t, disk.Cut(crashfs.OnlySynced).Process("reader"))))
}

// After a full disk, or a temporary failure, the log writes the pending entries in
// order.
func TestLogContinuesAfterTemporaryFailure(t *testing.T) {
	for _, kind := range []crashfs.Kind{crashfs.OpWrite, crashfs.OpSync, crashfs.OpCreate, crashfs.OpRename} {
		disk := newDisk(t)
		l := open(t, disk.Process("daemon"))
		require.NoError(t, l.Append(entry(1)))
		disk.Fail = func(op crashfs.Op) error {
			// The write fails too, so that a new segment is needed.
			if op.Kind == kind || op.Kind == crashfs.OpWrite {
				return errDisk
			}
			return nil
		}
		for range 3 {
			require.ErrorIs(t, l.Append(entry(2)), errDisk, kind)
		}
		require.NotErrorIs(t, l.Sync(), store.ErrRestart, kind)
		disk.Fail = nil
		require.NoError(t, l.Append(entry(3)), kind)
		for _, way := range crashfs.Ways() {
			require.Equal(t, "1 2 2 2 3", ids(entries(t, disk.Cut(way).Process("reader"))), "%s, %s", kind, way)
		}
	}
}

// Every operation of a new segment fails once. The caller gets the error, and the
// log continues or returns ErrBroken.
func TestRotateReturnsEveryError(t *testing.T) {
	for _, begins := range []bool{true, false} {
		errno := map[bool]error{true: errDisk, false: syscall.EMFILE}[begins]
		for n := 1; ; n++ {
			disk := newDisk(t)
			l := open(t, disk.Process("daemon"))
			done, failed := 0, crashfs.Op{}
			disk.Fail = func(op crashfs.Op) error {
				if op.Kind == crashfs.OpRemove { // of a temporary file, if there is one
					return nil
				}
				if done++; done == n {
					failed = op
					return errno
				}
				return nil
			}
			err := l.Append(entry(1))
			disk.Fail = nil
			if done < n {
				require.NoError(t, err)
				require.Greater(t, n, 5, "create, write, sync, rename, syncdir")
				break
			}
			require.ErrorIs(t, err, errno, "operation %d", n)
			if failed.Kind == crashfs.OpSyncDir && begins {
				require.ErrorIs(t, l.Append(entry(2)), audit.ErrBroken)
				continue
			}
			require.NoError(t, l.Append(entry(2)), "operation %d", n)
			require.Equal(t, "1 2", ids(entries(t, disk.Cut(crashfs.OnlySynced).Process("reader"))), "operation %d", n)
		}
	}
}

// workload appends and notes entries. acked is the number of entries that must
// survive.
func workload(fsys audit.FS, acked, tried *int) {
	l, err := audit.OpenSigned(fsys, dir, clock, audit.Keys{})
	if err != nil {
		return
	}
	for range 4 {
		*tried++
		l.Note(entry(*tried))
		*tried++
		if l.Append(entry(*tried)) != nil {
			return
		}
		*acked = *tried
	}
}

// cutLast removes the last entry if it is the n-th.
func cutLast(all []event.Entry, n int) ([]event.Entry, bool) {
	if last := len(all) - 1; last >= 0 && all[last].RequestID == entry(n).RequestID {
		return all[:last], true
	}
	return all, false
}

// A power cut or kill before any operation, then one before any operation of the
// recovery: every acknowledged entry must be there, in order and once, without
// others, and the log must continue.
func TestCrashes(t *testing.T) {
	states := 0
	check := func(disk *crashfs.Disk, acked, tried int, where string) {
		states++
		p := disk.Process("next")
		l, err := audit.OpenSigned(p, dir, clock, audit.Keys{})
		require.NoError(t, err, where)
		require.NoError(t, l.Append(entry(1000)), where)
		all := entries(t, disk.Cut(crashfs.OnlySynced).Process("reader"))
		all, ok := cutLast(all, 1000)
		require.True(t, ok, where)
		all, _ = cutLast(all, 999) // of the recovery that crashed
		require.GreaterOrEqual(t, len(all), acked, "%s: acknowledged entries survive", where)
		require.LessOrEqual(t, len(all), tried, "%s: no additional entries", where)
		for i, e := range all {
			require.Equal(t, entry(i+1).RequestID, e.RequestID, where)
		}
	}
	some := []crashfs.Survive{crashfs.OnlySynced, crashfs.Torn, crashfs.Seeded(1)}
	all := append(crashfs.Ways(), crashfs.Seeded(2), crashfs.Seeded(3), crashfs.Seeded(4))
	leftovers := func(disk *crashfs.Disk, ways []crashfs.Survive) map[string]*crashfs.Disk {
		left := map[string]*crashfs.Disk{"kill": disk.Kill()}
		for _, way := range ways {
			left[way.String()] = disk.Cut(way)
		}
		return left
	}
	twice := func(disk *crashfs.Disk, acked, tried int, where string) {
		for name, left := range leftovers(disk, all) {
			where := where + ", " + name
			check(left.Snapshot(), acked, tried, where)
			left.Before = func(op crashfs.Op) {
				for name2, left2 := range leftovers(left, some) {
					check(left2, acked, tried, fmt.Sprintf("%s, then before %s, %s", where, op, name2))
				}
			}
			l, err := audit.OpenSigned(left.Process("recovery"), dir, clock, audit.Keys{})
			require.NoError(t, err, where)
			require.NoError(t, l.Append(entry(999)), where)
			left.Before = nil
		}
	}
	// Also with failures: -1 is none, otherwise the n-th fsync or write fails.
	for fail := -1; fail < 12; fail++ {
		disk := newDisk(t)
		acked, tried, n := 0, 0, 0
		disk.Fail = func(op crashfs.Op) error {
			if op.Kind == crashfs.OpSync || op.Kind == crashfs.OpWrite {
				if n++; n-1 == fail {
					return errDisk
				}
			}
			return nil
		}
		disk.Before = func(op crashfs.Op) {
			before := acked
			if fail < 0 {
				twice(disk, before, tried, "before "+op.String())
				return
			}
			for name, left := range leftovers(disk, all) {
				if name != "kill" { // after a failed fsync and a kill, files differ from the disk
					check(left, before, tried, fmt.Sprintf("fail %d, before %s, %s", fail, op, name))
				}
			}
		}
		workload(disk.Process("daemon"), &acked, &tried)
		disk.Before = nil
		if fail < 0 {
			require.Equal(t, 8, acked)
			twice(disk, acked, tried, "at the end")
		}
	}
	t.Logf("%d states", states)
	require.Greater(t, states, 3000)
}
