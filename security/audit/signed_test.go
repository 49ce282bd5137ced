package audit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/audit/audittest"
)

func openSigned(t testing.TB, fsys audit.FS) *audit.Log {
	t.Helper()
	l := openLog(t, fsys, dir, clock, testKeys(t))
	return l
}

func verify(t testing.TB, disk *crashfs.Disk, feet ...string) (*audit.Report, error) {
	t.Helper()
	c := &audit.Check{FS: disk.Process("verifier"), Dir: dir, Keys: testKeys(t).Known}
	for _, f := range feet {
		foot, err := audit.ParseFoot(f)
		require.NoError(t, err)
		c.Feet = append(c.Feet, foot)
	}
	return c.Run()
}

func TestSigningTimes(t *testing.T) {
	disk := newDisk(t)
	now := clock()
	l := openLog(t, disk.Process("daemon"), dir, func() time.Time { return now }, testKeys(t))
	require.Nil(t, l.Newest())
	require.NoError(t, l.Checkpoint(), "nothing to sign")
	require.Nil(t, l.Newest())
	require.NotContains(t, disk.Files(), dir+"/checkpoints.jsonl")

	for n := 1; n <= 254; n++ {
		require.NoError(t, l.Append(entry(n)))
	}
	require.NoError(t, l.Append(entry(0)))
	require.Nil(t, l.Newest(), "not right after the start")
	now = now.Add(5 * time.Second)
	require.NoError(t, l.Sync())
	require.Nil(t, l.Newest(), "nor only because time passes")
	require.NoError(t, l.Append(entry(256)))
	require.Equal(t, int64(256), l.Newest().Size, "after 256 entries")
	for n := 257; n <= 600; n++ {
		require.NoError(t, l.Append(entry(n)))
	}
	require.Equal(t, int64(256), l.Newest().Size, "at least five seconds apart")
	now = now.Add(5 * time.Second)
	require.NoError(t, l.Append(entry(601)))
	require.Equal(t, int64(601), l.Newest().Size)
	for n := 602; n <= 857; n++ {
		now = now.Add(-time.Hour)
		require.NoError(t, l.Append(entry(n)))
	}
	require.Equal(t, int64(857), l.Newest().Size, "even if the clock is set back")
	l.Note(entry(858))
	require.NoError(t, l.Checkpoint())
	require.Equal(t, int64(858), l.Newest().Size, "and by Checkpoint")
	ops := disk.Ops()
	require.NoError(t, l.Checkpoint())
	require.Equal(t, ops, disk.Ops(), "no second signature of the same size")
	l.Note(entry(859))
	require.NoError(t, l.Close())

	cp, err := audit.Newest(disk.Process("reader"), dir, testKeys(t).Known)
	require.NoError(t, err)
	require.Equal(t, int64(859), cp.Size, "and by Close")
	require.Equal(t, *l.Newest(), *cp)
	rep, err := verify(t, disk, cp.Foot())
	require.NoError(t, err)
	require.Equal(t, 5, rep.Checkpoints)

	ops = disk.Ops()
	l = openSigned(t, disk.Process("again"))
	require.Equal(t, *cp, *l.Newest())
	require.NoError(t, l.Append(entry(860)))
	require.NoError(t, l.Close())
	_, err = verify(t, disk, cp.Foot())
	require.NoError(t, err)
	require.Less(t, disk.Ops()-ops, 20)
}

// An unsigned log is signed from its first entry, over all segments.
func TestUnsignedLogIsSignedCompletely(t *testing.T) {
	disk := newDisk(t)
	put(t, disk, "log.jsonl", line(1)+line(2))
	put(t, disk, "log-2.jsonl", line(3))
	put(t, disk, "log-3.jsonl", line(3)+line(4))
	_, err := verify(t, disk)
	require.ErrorIs(t, err, audit.ErrNotSigned)
	require.NotEmpty(t, hints.Of(err))
	l := openSigned(t, disk.Process("daemon"))
	require.NoError(t, l.Close())
	require.Equal(t, int64(4), l.Newest().Size)
	rep, err := verify(t, disk)
	require.NoError(t, err)
	require.Len(t, rep.Notes, 1)
	require.Contains(t, rep.Notes[0], "log-2.jsonl: its last 1 entries are repeated")
}

func TestOpenDoesNotReadSignedLines(t *testing.T) {
	disk := newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	for n := 1; n <= 7; n++ {
		require.NoError(t, l.Append(entry(n)))
	}
	require.NoError(t, l.Close())
	p := disk.Process("move")
	b := string(disk.Files()[dir+"/log.jsonl"])
	require.NoError(t, p.Remove(dir+"/log.jsonl"))
	put(t, disk, "log.jsonl", b)
	put(t, disk, "log-2.jsonl", line(8)+line(9))
	l = openSigned(t, disk.Process("again"))
	require.NoError(t, l.Append(entry(10)))
	require.NoError(t, l.Close())
	rep, err := verify(t, disk)
	require.NoError(t, err)
	require.Equal(t, int64(10), rep.Signed, "the edge of 7, two unsigned lines, and a new one")
}

// A log that lacks signed entries has an alarm until it is acknowledged. The daemon goes on
// with what there is.
func TestCutLogHasAnAlarm(t *testing.T) {
	disk := newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	for n := 1; n <= 5; n++ {
		require.NoError(t, l.Append(entry(n)))
	}
	require.NoError(t, l.Close())
	for have, content := range []string{"", line(1), line(1) + line(2)} {
		cut := disk.Snapshot()
		require.NoError(t, cut.Process("cut").Remove(dir+"/log.jsonl"))
		if have > 0 {
			put(t, cut, "log.jsonl", content)
		}
		_, err := verify(t, cut)
		require.ErrorIs(t, err, audit.ErrTampered, have)
		l := openSigned(t, cut.Process("again"))
		require.NoError(t, l.Append(entry(have+1)), have)
		require.NoError(t, l.Close(), have)
		left := cut.Cut(crashfs.OnlySynced)
		a, err := audit.ReadAlarm(left.Process("reader"), dir)
		require.NoError(t, err)
		require.Equal(t, audit.Alarm{Since: clock(), Want: 5, Have: int64(have), Reason: a.Reason, Size: 5, Root: a.Root}, *a, "durable")
		_, err = verify(t, cut)
		require.ErrorIs(t, err, audit.ErrTampered, "the alarm stays")
		require.ErrorIs(t, err, audit.ErrAlarm)

		l = openSigned(t, cut.Process("later"))
		require.NoError(t, l.Append(entry(have+2)))
		require.NoError(t, audit.EndAlarm(cut.Process("operator"), dir))
		require.NoError(t, l.Close())
		rep, err := verify(t, cut)
		require.NoError(t, err)
		require.Equal(t, int64(have+2), rep.Entries)
		require.Contains(t, cut.Files(), dir+"/checkpoints-1.old", "they are kept")
	}
}

// A crash at any operation of a start that finds a cut log: the alarm is there after the next.
func TestCrashesOfAnAlarm(t *testing.T) {
	disk := newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	require.NoError(t, l.Append(entry(1)))
	require.NoError(t, l.Append(entry(2)))
	require.NoError(t, l.Close())
	require.NoError(t, disk.Process("cut").Remove(dir+"/log.jsonl"))
	put(t, disk, "log.jsonl", line(1))
	states := 0
	cut := func(disk *crashfs.Disk, where string) {
		for _, way := range append(crashfs.Ways(), crashfs.Seeded(1), crashfs.Seeded(2)) {
			states++
			left := disk.Cut(way)
			l := openSigned(t, left.Process("next"))
			require.NoError(t, l.Append(entry(2)))
			require.NotNil(t, alarmOf(t, left), "%s, %s", where, way)
		}
	}
	check := func(where string) {
		cut(disk, where)
		killed := disk.Kill()
		openSigned(t, killed.Process("after a kill"))
		cut(killed, where+", then a kill and a start")
	}
	disk.Before = func(op crashfs.Op) { check(op.String()) }
	openSigned(t, disk.Process("again"))
	disk.Before = nil
	check("at the end")
	require.Greater(t, states, 40)
}

func TestDamagedCheckpointFile(t *testing.T) {
	disk := newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	require.NoError(t, l.Append(entry(1)))
	require.NoError(t, l.Checkpoint())
	require.NoError(t, l.Append(entry(2)))
	require.NoError(t, l.Close())
	const name = dir + "/checkpoints.jsonl"
	good := string(disk.Files()[name])
	first, second, _ := strings.Cut(good, "\n")
	second = strings.TrimSuffix(second, "\n")
	for _, c := range []struct {
		why, content string
		size         int64 // of the newest; 0: none
		verifies     bool
	}{
		{"complete", good, 2, true},
		{"half of the last line", first + "\n" + second[:len(second)/2], 1, true},
		{"zeros", first + "\n" + strings.Repeat("\x00", 300), 1, true},
		{"only the line feed is missing", first + "\n" + second, 1, true}, // it is written again
		{"no complete line", first[:50], 0, true},
		{"another byte instead of the line feed", first + "\n" + second + "x", 1, false},
		{"an invalid line", first + "\n" + "hello\n", 1, false},
	} {
		left := disk.Snapshot()
		require.NoError(t, left.Process("cut").Remove(name))
		put(t, left, "checkpoints.jsonl", c.content)
		cp, err := audit.Newest(left.Process("reader"), dir, testKeys(t).Known)
		require.NoError(t, err, c.why)
		require.Equal(t, c.size, sizeOf(cp), c.why)
		_, err = verify(t, left)
		if c.size == 0 {
			require.ErrorIs(t, err, audit.ErrNotSigned, c.why)
		} else {
			require.Equal(t, c.verifies, err == nil, "%s: %v", c.why, err)
		}
		l := openSigned(t, left.Process("again"))
		require.NoError(t, l.Append(entry(3)), c.why)
		require.NoError(t, l.Close(), c.why)
		_, err = verify(t, left)
		require.NoError(t, err, "%s: the daemon has removed it", c.why)
	}

	// Complete lines, but no valid one: damage.
	left := disk.Snapshot()
	require.NoError(t, left.Process("cut").Remove(name))
	put(t, left, "checkpoints.jsonl", "hello\n")
	_, err := audit.OpenSigned(left.Process("again"), dir, clock, testKeys(t))
	require.ErrorIs(t, err, audit.ErrDamaged)
	require.NotEmpty(t, hints.Of(err))
}

func sizeOf(c *audit.Checkpoint) int64 {
	if c == nil {
		return 0
	}
	return c.Size
}

// A checkpoint that cannot be written returns an error and loses no entries. The
// next one succeeds without a restart.
func TestFailedCheckpoint(t *testing.T) {
	for _, kind := range []crashfs.Kind{crashfs.OpWrite, crashfs.OpTruncate, crashfs.OpOpen} {
		disk := newDisk(t)
		l := openSigned(t, disk.Process("daemon"))
		require.NoError(t, l.Append(entry(1)))
		require.NoError(t, l.Checkpoint())
		require.NoError(t, l.Append(entry(2)))
		fail := func(kind crashfs.Kind) {
			disk.Fail = func(op crashfs.Op) error {
				if op.Kind == kind && strings.Contains(op.Path, "checkpoints") {
					return crashfs.Short{Err: errDisk}
				}
				return nil
			}
		}
		fail(crashfs.OpWrite)
		require.ErrorIs(t, l.Checkpoint(), errDisk)
		fail(kind)
		require.ErrorIs(t, l.Checkpoint(), errDisk, kind)
		require.Equal(t, int64(1), l.Newest().Size, kind)
		require.NoError(t, l.Append(entry(3)), "%s: the log continues", kind)
		disk.Fail = nil
		require.NoError(t, l.Checkpoint(), kind)
		require.Equal(t, int64(3), l.Newest().Size)
		rep, err := verify(t, disk, l.Newest().Foot())
		require.NoError(t, err, kind)
		require.Equal(t, 2, rep.Checkpoints, kind)
	}
	disk := newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	disk.Fail = func(op crashfs.Op) error {
		if strings.Contains(op.Path, "checkpoints") && op.Kind != crashfs.OpStat {
			return errDisk
		}
		return nil
	}
	for n := 1; n <= 1000; n++ {
		require.NoError(t, l.Append(entry(n)))
	}
	require.ErrorIs(t, l.Close(), errDisk, "Close returns the error")
}

// Entries that are not committed, or not in the file, are not signed.
func TestOnlyWrittenEntriesAreSigned(t *testing.T) {
	disk := newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	j := audittest.Attach(l)
	require.NoError(t, l.Append(entry(1)))
	disk.Before = func(op crashfs.Op) {
		if strings.Contains(op.Path, "checkpoints") {
			disk.Before = nil
			_, _, err := l.Next(entry(3))
			require.NoError(t, err)
		}
	}
	l.Note(entry(2))
	require.NoError(t, l.Checkpoint())
	require.Equal(t, int64(2), l.Newest().Size, "3 is not committed")
	disk.Fail = func(op crashfs.Op) error {
		if op.Kind == crashfs.OpWrite {
			return errDisk
		}
		return nil
	}
	require.NoError(t, l.Append(entry(4)))
	disk.Fail = nil
	require.Equal(t, int64(4), j.Durable())
	require.Equal(t, int64(2), l.Appended())
	_, err := verify(t, disk, l.Newest().Foot())
	require.NoError(t, err)
}

func TestKeyRotation(t *testing.T) {
	disk := newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	require.NoError(t, l.Append(entry(1)))
	require.NoError(t, l.Close())
	private, public, err := note.GenerateKey(nil, "home.example.org")
	require.NoError(t, err)
	next, err := note.NewSigner(private)
	require.NoError(t, err)
	nextKey, err := note.NewVerifier(public)
	require.NoError(t, err)
	oldKey, err := note.NewVerifier(testPublic)
	require.NoError(t, err)
	keys := audit.Keys{Signer: next, Known: note.VerifierList(nextKey, oldKey)}

	l = openLog(t, disk.Process("again"), dir, clock, keys)
	require.NoError(t, l.Checkpoint())
	require.NoError(t, l.Checkpoint())
	require.Equal(t, int64(1), l.Newest().Size)
	require.Equal(t, next.KeyHash(), l.Newest().Key, "the new key signs the existing entries, once")
	c := &audit.Check{FS: disk.Process("verifier"), Dir: dir, Keys: keys.Known}
	rep, err := c.Run()
	require.NoError(t, err)
	require.Equal(t, 2, rep.Checkpoints)
	c.Keys = note.VerifierList(nextKey)
	_, err = c.Run()
	require.ErrorIs(t, err, audit.ErrTampered, "without the old key")
	c.Keys = nil
	_, err = c.Run()
	require.ErrorIs(t, err, audit.ErrNotSigned, "without keys")
}

func TestTail(t *testing.T) {
	disk := newDisk(t)
	p := disk.Process("reader")
	tail := &audit.Tail{FS: p, Dir: dir}
	lines, err := tail.Last(3)
	require.NoError(t, err)
	require.Empty(t, lines)
	got := ""
	next := func() string {
		got = ""
		require.NoError(t, tail.Next(func(l audit.Line) error {
			require.Contains(t, string(l.Raw), fmt.Sprintf(`{"seq":%d,`, l.Seq))
			got += fmt.Sprint(l.Seq, " ")
			return nil
		}))
		return strings.TrimSpace(got)
	}
	require.Empty(t, next())
	put(t, disk, "log.jsonl", line(1)+line(2)+line(3))
	require.Equal(t, "1 2 3", next(), "a log that was created later")
	require.Empty(t, next())

	put(t, disk, "log-2.jsonl", line(3)+line(4)+line(5))
	require.Equal(t, "4 5", next(), "entries that a new segment repeats are skipped")
	require.Equal(t, dir+"/log-2.jsonl", tail.Path())
	put(t, disk, "log-3.jsonl", line(6)+`{"seq":7,"ti`)
	require.Equal(t, "6", next(), "an incomplete line is skipped")
	for n, want := range map[int]string{0: "", 1: "6", 2: "5 6", 4: "3 4 5 6", 6: "1 2 3 4 5 6", 9: "1 2 3 4 5 6"} {
		tail := &audit.Tail{FS: p, Dir: dir}
		lines, err := tail.Last(n)
		require.NoError(t, err)
		got := ""
		for _, l := range lines {
			got += fmt.Sprint(l.Seq, " ")
		}
		require.Equal(t, want, strings.TrimSpace(got))
		require.NoError(t, tail.Next(func(audit.Line) error { return errors.New("entry returned twice") }))
	}
}

func TestTailFollowsARunningLog(t *testing.T) {
	home := t.TempDir()
	l := openLog(t, ipc.OS(), home, clock, testKeys(t))
	tail := &audit.Tail{FS: ipc.OS(), Dir: home}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		for n := 1; n <= 2000; n++ {
			l.Note(entry(n))
		}
		_ = l.Close()
	}()
	want := int64(1)
	read := func() {
		require.NoError(t, tail.Next(func(l audit.Line) error {
			require.Equal(t, want, l.Seq)
			want++
			return nil
		}))
	}
	for ctx.Err() == nil {
		read()
	}
	read()
	require.Equal(t, int64(2001), want)
}

func TestFeet(t *testing.T) {
	for text, want := range map[string]audit.Foot{
		"1042 9f3c": {Size: 1042, Digits: "9f3c"}, "log 1042 9F3C": {Size: 1042, Digits: "9f3c"},
		" 1  0123456789 ": {Size: 1, Digits: "0123456789"},
	} {
		f, err := audit.ParseFoot(text)
		require.NoError(t, err)
		require.Equal(t, want, f)
	}
	for _, text := range []string{"", "1042", "1042 9f3", "0 9f3c", "-1 9f3c", "1042 9f3g", "x 9f3c", "log 9f3c", "1 2 3", "1042 " + strings.Repeat("0", 65)} {
		_, err := audit.ParseFoot(text)
		require.Error(t, err, text)
	}
}
