package audit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/audit/audittest"
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
	return fmt.Sprintf(`{"seq":%d,"time":"2026-11-21T12:00:00.000000000Z","event":"executed","request_id":"%016x"}`+"\n", n, n)
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

// Damage stops no daemon: it goes on after the last entry that counts, with an alarm, and
// every line stays in the folder.
func TestOpenDamaged(t *testing.T) {
	for _, c := range []struct {
		why   string
		files map[string]string
		have  int
		says  string
	}{
		{"an empty segment", map[string]string{"log.jsonl": ""}, 0, "log.jsonl does not begin with an entry; 0 lines"},
		{"an empty later segment", map[string]string{"log.jsonl": line(1), "log-2.jsonl": "", "log-3.jsonl": line(2)}, 1, "log-2.jsonl does not begin with an entry; 1 line from there on, not counted and not verified, of them 1 entry with number 2"},
		{"something else", map[string]string{"log.jsonl": line(1), "log-2.jsonl": "hello\n"}, 1, "log-2.jsonl does not begin with an entry; 1 line from"},
		{"a missing segment", map[string]string{"log.jsonl": line(1), "log-3.jsonl": line(2) + line(3)}, 1, "log-2.jsonl is missing; 2 lines from there on, not counted and not verified, of them 2 entries with numbers 2 to 3"},
		{"no first segment", map[string]string{"log-2.jsonl": line(2), "log-3.jsonl": line(3)}, 0, "log.jsonl is missing; 2 lines"},
		{"missing lines", map[string]string{"log.jsonl": line(1), "log-2.jsonl": line(3)}, 1, "log-2.jsonl begins with number 3, but number 2 should follow; 1 line from"},
		{"a changed line", map[string]string{"log.jsonl": line(1) + "x\n" + line(3), "log-2.jsonl": line(4)}, 1, "log.jsonl has an invalid line after number 1; 3 lines"},
		{"a segment from before", map[string]string{"log.jsonl": line(1), "log-2.jsonl": line(2), "log-3.jsonl": line(1)}, 2, "log-3.jsonl begins with number 1, but number 3 should follow"},
	} {
		t.Run(c.why, func(t *testing.T) {
			disk := diskWith(t, c.files)
			states := 0
			disk.Before = func(crashfs.Op) {
				for _, way := range crashfs.Ways() {
					states++
					left := disk.Cut(way)
					openSigned(t, left.Process("after a crash"))
					require.Contains(t, alarmOf(t, left).Reason, c.says)
				}
			}
			l := openSigned(t, disk.Process("daemon"))
			disk.Before = nil
			require.Positive(t, states)
			require.True(t, l.Alarmed())
			require.Contains(t, alarmOf(t, disk.Cut(crashfs.OnlySynced)).Reason, c.says)
			require.NoError(t, l.Append(entry(c.have+1)))
			require.NoError(t, l.Close())
			require.Len(t, entries(t, disk.Process("reader")), c.have+1)
			var all []string
			for name, b := range disk.Files() {
				if name != dir+"/alarm.json" {
					all = append(all, string(b))
				}
			}
			for name, content := range c.files {
				require.Contains(t, strings.Join(all, ""), content, name)
			}
			require.False(t, openSigned(t, disk.Process("next")).Alarmed())
		})
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

// After a failed write the lines that the file may lack are written again, in a new segment.
func TestNewSegmentAfterFailedWrite(t *testing.T) {
	for _, c := range []struct {
		why string
		err error
	}{
		{"nothing written", errDisk},
		{"half of a line written", crashfs.Short{Err: errDisk}},
	} {
		disk := newDisk(t)
		l := open(t, disk.Process("daemon"))
		require.NoError(t, l.Append(entry(1)))
		disk.Fail = func(op crashfs.Op) error {
			if op.Kind == crashfs.OpWrite {
				return c.err
			}
			return nil
		}
		require.NoError(t, l.Append(entry(2)), "the entry is durable in the journal")
		require.ErrorIs(t, l.Sync(), errDisk, "but not in the file")
		require.Equal(t, int64(1), l.Appended())
		l.Note(entry(3))
		disk.Fail = nil
		require.NoError(t, l.Append(entry(4)), c.why)
		require.Equal(t, int64(4), l.Appended())
		require.NoError(t, l.Append(entry(5)), c.why)
		require.Equal(t, "1 2 3 4 5", ids(entries(t, disk.Process("reader"))), c.why)
		require.Equal(t, line(2)+line(3)+line(4)+line(5), string(disk.Files()[dir+"/log-2.jsonl"]), c.why)
	}
}

// Every operation of a new segment fails once: the log goes on with the next commit.
func TestNewSegmentFails(t *testing.T) {
	for n := 1; ; n++ {
		disk := newDisk(t)
		l := open(t, disk.Process("daemon"))
		done := 0
		disk.Fail = func(crashfs.Op) error {
			if done++; done == n {
				return errDisk
			}
			return nil
		}
		require.NoError(t, l.Append(entry(1)))
		disk.Fail = nil
		if done < n {
			require.Equal(t, int64(1), l.Appended())
			require.Greater(t, n, 3, "create, write, rename")
			break
		}
		require.Zero(t, l.Appended(), "operation %d", n)
		require.NoError(t, l.Append(entry(2)), "operation %d", n)
		require.Equal(t, "1 2", ids(entries(t, disk.Process("reader"))), "operation %d", n)
	}
}

// crash is a state of the disk and of the journal.
type crash struct {
	disk    *crashfs.Disk
	lines   [][]byte
	durable int64    // number of the last line that was acknowledged
	tried   int64    // number of the last line
	feet    []string // of checkpoints that were shown
	where   string
}

// restart does what the start of a daemon does.
func (c *crash) restart(t testing.TB, fsys *crashfs.Proc) {
	t.Helper()
	require.NoError(t, audit.Complete(fsys, dir, c.lines), c.where)
	require.NoError(t, fsys.SyncFS("/"), c.where)
}

// check restarts: each committed line is there, in order and once, and nothing else. A second
// restart changes nothing, the log goes on, and each checkpoint that was shown is right.
func (c *crash) check(t testing.TB) {
	t.Helper()
	p := c.disk.Process("next")
	c.restart(t, p)
	before := c.disk.Files()
	c.restart(t, p)
	require.Equal(t, before, c.disk.Files(), "%s: twice", c.where)
	left := c.disk.Cut(crashfs.OnlySynced)
	all := entries(t, left.Process("reader"))
	require.GreaterOrEqual(t, int64(len(all)), c.durable, "%s: committed entries survive", c.where)
	require.LessOrEqual(t, int64(len(all)), c.tried, "%s: no additional entries", c.where)
	for i, e := range all {
		require.Equal(t, entry(i+1).RequestID, e.RequestID, c.where)
	}
	l := openSigned(t, left.Process("again"))
	require.NoError(t, l.Append(entry(len(all)+1)), c.where)
	require.NoError(t, l.Checkpoint(), c.where)
	rep, err := verify(t, left, c.feet...)
	require.NoError(t, err, c.where)
	require.Equal(t, int64(len(all)+1), rep.Signed, c.where)
}

// each calls f with what a kill and power cuts leave.
func (c *crash) each(ways []crashfs.Survive, f func(c *crash)) {
	left := map[string]*crashfs.Disk{"kill": c.disk.Kill()}
	for _, way := range ways {
		left[way.String()] = c.disk.Cut(way)
	}
	for name, disk := range left {
		next := *c
		next.disk, next.where = disk, c.where+", "+name
		f(&next)
	}
}

// twice checks a state, and the states of a crash at every operation of its restart.
func (c *crash) twice(t testing.TB, ways []crashfs.Survive, states *int) {
	t.Helper()
	c.each(ways, func(c *crash) {
		first := *c
		first.disk = c.disk.Snapshot()
		first.check(t)
		*states++
		c.disk.Before = func(op crashfs.Op) {
			again := *c
			again.where = fmt.Sprintf("%s, then before %s", c.where, op)
			again.each([]crashfs.Survive{crashfs.OnlySynced, crashfs.Torn, crashfs.Seeded(1)}, func(c *crash) {
				c.check(t)
				*states++
			})
		}
		c.restart(t, c.disk.Process("recovery"))
	})
}

// workload appends and notes entries, signs, and lets the journal go on. It returns what
// was acknowledged.
type workload struct {
	t       *testing.T
	disk    *crashfs.Disk
	log     *audit.Log
	journal *audittest.Journal
	tried   int64
	feet    []string
}

func (w *workload) run() {
	p := w.disk.Process("daemon")
	w.log = openSigned(w.t, p)
	w.journal = audittest.Attach(w.log)
	for i := range 3 {
		w.tried++
		w.log.Note(entry(int(w.tried)))
		w.tried++
		if err := w.log.Append(entry(int(w.tried))); err != nil {
			w.t.Error(err)
		}
		_ = w.log.Checkpoint() // it may fail
		if c := w.log.Newest(); c != nil {
			w.feet = append(w.feet, c.Foot())
		}
		if i == 1 {
			_ = w.journal.Mark(func() error { return p.SyncFS("/") })
		}
	}
	_ = w.log.Close()
}

// state is what a crash now would find in the journal: the durable lines, or also its tail.
func (w *workload) state(tail bool, where string) *crash {
	c := &crash{disk: w.disk, tried: w.tried, feet: w.feet, where: where}
	if w.journal != nil {
		c.lines, c.durable = w.journal.Lines(tail), w.journal.Durable()
	}
	return c
}

// A power cut or kill before any operation, then one before any operation of the restart. make test
// has one in twenty of the first ones.
func TestCrashes(t *testing.T) {
	ways := append(crashfs.Ways(), crashfs.Seeded(1), crashfs.Seeded(2), crashfs.Seeded(3), crashfs.Seeded(4))
	states, given, some := 0, 0, takeSample(t, 101)
	// Also with failures: -1 is none, otherwise the n-th operation that changes something.
	for fail := -1; fail < 14; fail++ {
		w := &workload{t: t, disk: newDisk(t)}
		n := 0
		w.disk.Fail = func(op crashfs.Op) error {
			if op.Kind == crashfs.OpWrite || op.Kind == crashfs.OpCreate || op.Kind == crashfs.OpRename {
				if n++; n-1 == fail {
					return errDisk
				}
			}
			return nil
		}
		w.disk.Before = func(op crashfs.Op) {
			if given++; !some.has(given) {
				return
			}
			where := fmt.Sprintf("fail %d, before %s", fail, op)
			w.state(false, where).twice(t, ways, &states)
			w.state(true, where+", with the tail").twice(t, ways, &states)
		}
		w.run()
		w.disk.Before = nil
		if given++; some.has(given) {
			w.state(false, "at the end").twice(t, ways, &states)
		}
	}
	t.Logf("%d states, in a sample of %d crashes", states, given)
	require.Greater(t, states, 3000/some.step)
}

// A failed sync of the file system may lose lines that the files still seem to have. No mark
// follows; the restart writes them again.
func TestCompleteAfterFailedSync(t *testing.T) {
	w := &workload{t: t, disk: newDisk(t)}
	p := w.disk.Process("daemon")
	w.log = openSigned(t, p)
	w.journal = audittest.Attach(w.log)
	require.NoError(t, w.log.Append(entry(1)))
	require.NoError(t, w.journal.Mark(func() error { return p.SyncFS("/") }))
	require.NoError(t, w.log.Append(entry(2)))
	w.disk.Fail = func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSyncFS {
			return errDisk
		}
		return nil
	}
	require.ErrorIs(t, w.journal.Mark(func() error { return p.SyncFS("/") }), errDisk)
	w.disk.Fail = nil
	w.tried = 2
	c := w.state(false, "after a failed sync")
	c.disk = w.disk.Kill()
	c.check(t)
}
