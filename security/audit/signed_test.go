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

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/audit"
)

func openSigned(t testing.TB, fsys audit.FS) *audit.Log {
	t.Helper()
	l, err := audit.OpenSigned(fsys, dir, clock, testKeys(t))
	require.NoError(t, err)
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
	l, err := audit.OpenSigned(disk.Process("daemon"), dir, func() time.Time { return now }, testKeys(t))
	require.NoError(t, err)
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
	require.Contains(t, disk.Cut(crashfs.OnlySynced).Files(), dir+"/log.jsonl")
	require.Equal(t, disk.Files(), disk.Cut(crashfs.OnlySynced).Files(), "everything is durable")
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

func TestCutLogIsRefused(t *testing.T) {
	disk := newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	for n := 1; n <= 5; n++ {
		require.NoError(t, l.Append(entry(n)))
	}
	require.NoError(t, l.Close())
	for what, left := range map[string]string{"the end": line(1) + line(2), "all": ""} {
		cut := disk.Snapshot()
		require.NoError(t, cut.Process("cut").Remove(dir+"/log.jsonl"))
		if left != "" {
			put(t, cut, "log.jsonl", left)
		}
		_, err := audit.OpenSigned(cut.Process("again"), dir, clock, testKeys(t))
		require.ErrorIs(t, err, audit.ErrDamaged, what)
		require.NotEmpty(t, hints.Of(err), what)
		_, err = verify(t, cut)
		require.ErrorIs(t, err, audit.ErrTampered, what)
	}
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
	for _, kind := range []crashfs.Kind{crashfs.OpWrite, crashfs.OpSync, crashfs.OpCreate, crashfs.OpRename, crashfs.OpRead} {
		disk := newDisk(t)
		l := openSigned(t, disk.Process("daemon"))
		require.NoError(t, l.Append(entry(1)))
		require.NoError(t, l.Checkpoint())
		require.NoError(t, l.Append(entry(2)))
		fail := func(kinds ...crashfs.Kind) {
			disk.Fail = func(op crashfs.Op) error {
				for _, k := range kinds {
					if op.Kind == k && strings.Contains(op.Path, "checkpoints") {
						return errDisk
					}
				}
				return nil
			}
		}
		fail(crashfs.OpSync)
		require.ErrorIs(t, l.Checkpoint(), errDisk)
		fail(kind)
		require.ErrorIs(t, l.Checkpoint(), errDisk, kind)
		require.Equal(t, int64(1), l.Newest().Size, kind)
		require.NoError(t, l.Append(entry(3)), "%s: the log continues", kind)
		disk.Fail = nil
		require.NoError(t, l.Checkpoint(), kind)
		require.Equal(t, int64(3), l.Newest().Size)
		for _, way := range crashfs.Ways() {
			rep, err := verify(t, disk.Cut(way), l.Newest().Foot())
			require.NoError(t, err, "%s, %s", kind, way)
			require.Equal(t, 2, rep.Checkpoints, "%s, %s", kind, way)
		}
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

// Entries written during a sync are not durable, so they are not signed.
func TestOnlyDurableEntriesAreSigned(t *testing.T) {
	disk := newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	require.NoError(t, l.Append(entry(1)))
	l.Note(entry(2))
	concurrent := 0
	disk.Before = func(op crashfs.Op) {
		if op.Kind == crashfs.OpSync && strings.Contains(op.Path, "log") {
			concurrent++
			l.Note(entry(2 + concurrent))
		}
	}
	require.NoError(t, l.Checkpoint())
	disk.Before = nil
	require.Equal(t, 1, concurrent)
	require.Equal(t, int64(2), l.Newest().Size)
	_, err := verify(t, disk.Cut(crashfs.OnlySynced), l.Newest().Foot())
	require.NoError(t, err)
}

// A power cut or kill before any operation: the log opens, continues and verifies,
// also with every foot that a card has shown.
func TestCrashesOfASignedLog(t *testing.T) {
	states, shown := 0, 0
	feet, acked := []string{}, 0
	see := func(l *audit.Log) {
		if c := l.Newest(); c != nil && (len(feet) == 0 || feet[len(feet)-1] != c.Foot()) {
			feet = append(feet, c.Foot())
		}
	}
	check := func(disk *crashfs.Disk, where string) {
		for _, way := range append(crashfs.Ways(), crashfs.Seeded(1), crashfs.Seeded(2), crashfs.Seeded(3), crashfs.Seeded(4)) {
			states++
			left := disk.Cut(way)
			where := fmt.Sprintf("%s, %s", where, way)
			l, err := audit.OpenSigned(left.Process("next"), dir, clock, testKeys(t))
			require.NoError(t, err, where)
			require.NoError(t, l.Append(entry(1000)), where)
			require.NoError(t, l.Checkpoint(), where)
			for _, way := range []crashfs.Survive{crashfs.OnlySynced, crashfs.Torn} {
				rep, err := verify(t, left.Cut(way), feet...)
				require.NoError(t, err, where)
				require.GreaterOrEqual(t, rep.Signed, int64(acked+1), where)
			}
		}
	}
	each, fewest := 1, 2000
	if raceDetector { // make test also runs all cases without the race detector
		each, fewest = 5, 500
	}
	for fail := -1; fail < 14; fail += each {
		disk := newDisk(t)
		feet, acked = nil, 0
		n := 0
		disk.Fail = func(op crashfs.Op) error {
			if op.Kind == crashfs.OpSync || op.Kind == crashfs.OpWrite || op.Kind == crashfs.OpRename {
				if n++; n-1 == fail {
					return errDisk
				}
			}
			return nil
		}
		disk.Before = func(op crashfs.Op) { check(disk, fmt.Sprintf("fail %d, before %s", fail, op)) }
		l, err := audit.OpenSigned(disk.Process("daemon"), dir, clock, testKeys(t))
		require.NoError(t, err)
		for i := range 3 {
			l.Note(entry(2*i + 1))
			if l.Append(entry(2*i+2)) == nil {
				acked = 2*i + 2
			}
			_ = l.Checkpoint() // it may fail
			see(l)
		}
		_ = l.Close()
		see(l)
		disk.Before = nil
		check(disk, fmt.Sprintf("fail %d, at the end", fail))
		shown += len(feet)
	}
	require.Greater(t, shown, 20/each)
	t.Logf("%d states", states)
	require.Greater(t, states, fewest)
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

	l, err = audit.OpenSigned(disk.Process("again"), dir, clock, keys)
	require.NoError(t, err)
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

func TestCompleteAddsMissingEntriesOnce(t *testing.T) {
	disk := newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	claim := func(id, receipt string) event.Entry {
		return event.Entry{Event: event.Approved, Workspace: "w", RequestID: id, ReceiptSHA256: receipt}
	}
	end := func(id string, kind event.Kind) event.Entry {
		return event.Entry{Event: kind, Workspace: "w", RequestID: id, Detail: "completed"}
	}
	require.NoError(t, l.Append(claim("a", "1")))
	require.NoError(t, l.Append(end("a", event.Released)))
	require.NoError(t, l.Append(claim("b", "2")))
	require.NoError(t, l.Close())
	put(t, disk, "log-2.jsonl", line(4)+"torn\n{")

	want := []event.Entry{
		claim("a", "1"),
		end("a", event.Executed), // logged as released: the same end
		claim("b", "2"),
		claim("b", "3"), // the second claim of an idempotent tool
		end("b", event.Failed),
		end("b", event.Interrupted), // a request has one end
		end("c", event.DeniedByUser),
	}
	for round, added := range []int{3, 0, 0} {
		l = openSigned(t, disk.Process("again"))
		require.Equal(t, []int64{4, 7, 7}[round], l.FoundAtOpen().Seq)
		n, err := l.Complete(want)
		require.NoError(t, err)
		require.Equal(t, added, n, "round %d", round)
		require.NoError(t, l.Close())
	}
	all := entries(t, disk.Process("reader"))
	require.Len(t, all, 7)
	require.Equal(t, "3", all[4].ReceiptSHA256)
	require.Equal(t, event.Failed, all[5].Event)
	require.Equal(t, "completed", all[5].Detail)
	require.Equal(t, event.DeniedByUser, all[6].Event)
}

// After a crash at any operation of Complete, the next call finishes it, without
// duplicates.
func TestCrashesOfTheCompletion(t *testing.T) {
	var want []event.Entry
	for n := range 5 {
		want = append(want, event.Entry{Event: event.Executed, Workspace: "w", RequestID: fmt.Sprint(n)})
	}
	disk := newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	require.NoError(t, l.Append(want[2]))
	require.NoError(t, l.Close())
	states := 0
	check := func(disk *crashfs.Disk, where string) {
		for _, way := range append(crashfs.Ways(), crashfs.Seeded(1), crashfs.Seeded(2)) {
			states++
			left := disk.Cut(way)
			l := openSigned(t, left.Process("next"))
			_, err := l.Complete(want)
			require.NoError(t, err, where)
			require.NoError(t, l.Close(), where)
			seen := map[string]int{}
			for _, e := range entries(t, left.Process("reader")) {
				seen[e.RequestID]++
			}
			require.Equal(t, map[string]int{"0": 1, "1": 1, "2": 1, "3": 1, "4": 1}, seen, "%s, %s", where, way)
		}
	}
	disk.Before = func(op crashfs.Op) { check(disk, op.String()) }
	l = openSigned(t, disk.Process("again"))
	n, err := l.Complete(want)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	disk.Before = nil
	check(disk, "at the end")
	require.Greater(t, states, 50)
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
	l, err := audit.OpenSigned(ipc.OS(), home, clock, testKeys(t))
	require.NoError(t, err)
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
