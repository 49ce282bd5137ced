package audit_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/audit/audittest"
)

var (
	_ audit.FS = ipc.FS(nil)
	_ audit.FS = (*crashfs.Proc)(nil)
)

const dir = "/audit"

func clock() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func newDisk(t testing.TB) *crashfs.Disk {
	t.Helper()
	disk := crashfs.New()
	p := disk.Process("set-up")
	require.NoError(t, p.Mkdir(dir, 0o700))
	require.NoError(t, p.SyncFS("/"))
	return disk
}

func open(t testing.TB, fsys audit.FS) *audit.Log {
	t.Helper()
	return openLog(t, fsys, dir, clock, audit.Keys{})
}

// openLog opens a log whose entries are committed in memory.
func openLog(t testing.TB, fsys audit.FS, dir string, now func() time.Time, keys audit.Keys) *audit.Log {
	t.Helper()
	l, err := audit.OpenSigned(fsys, dir, now, keys)
	require.NoError(t, err)
	audittest.Attach(l)
	return l
}

func entry(n int) event.Entry {
	return event.Entry{Event: event.Executed, RequestID: fmt.Sprintf("%016x", n)}
}

func entries(t testing.TB, fsys afero.Fs) []event.Entry {
	t.Helper()
	var all []event.Entry
	require.NoError(t, audit.Entries(fsys, dir, func(e event.Entry) error {
		all = append(all, e)
		return nil
	}))
	for i, e := range all {
		require.Equal(t, int64(i+1), e.Seq, "numbers have no gaps")
	}
	return all
}

func ids(all []event.Entry) string {
	var b strings.Builder
	for _, e := range all {
		b.WriteString(strings.TrimLeft(e.RequestID, "0") + " ")
	}
	return strings.TrimSpace(b.String())
}

func TestFormat(t *testing.T) {
	home := t.TempDir()
	l := openLog(t, ipc.OS(), home, clock, audit.Keys{})
	full := event.Entry{
		Seq: 99, Time: clock().Add(time.Millisecond).In(time.FixedZone("CET", 3600)), Event: event.Approved,
		Workspace: "personal", Tool: "x_post", RequestID: "a7f3b2c1d4e5f6a7", By: "ricardo", ByID: "123456789",
		Via: "telegram", Rule: "r", Reason: "perché no", ReceiptSHA256: "ab", Detail: "d", Taints: []string{"secret"},
	}
	require.NoError(t, l.Append(full))
	require.NoError(t, l.Append(event.Entry{Event: event.Stopped}))
	require.NoError(t, l.Close())

	b, err := os.ReadFile(filepath.Join(home, "log.jsonl"))
	require.NoError(t, err)
	//nolint:testifylint // the bytes are the format
	require.Equal(t, `{"seq":1,"time":"2026-11-21T12:00:00.001000000Z","event":"approved","workspace":"personal","tool":"x_post",`+
		`"request_id":"a7f3b2c1d4e5f6a7","by":"ricardo","by_id":"123456789","via":"telegram","rule":"r",`+
		`"reason":"perch\u00e9 no","receipt_sha256":"ab","detail":"d","taints":["secret"]}`+"\n"+
		`{"seq":2,"time":"2026-11-21T12:00:00.000000000Z","event":"stopped"}`+"\n", string(b))
	info, err := os.Stat(filepath.Join(home, "log.jsonl"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())

	var first event.Entry
	stop := errors.New("enough")
	err = audit.Entries(ipc.OS(), home, func(e event.Entry) error { first = e; return stop })
	require.ErrorIs(t, err, stop, "the caller may stop")
	full.Seq, full.Time = 1, full.Time.UTC()
	require.Equal(t, full, first, "and the log assigns the number")
}

func TestTextCannotForgeLines(t *testing.T) {
	disk := newDisk(t)
	p := disk.Process("daemon")
	l := open(t, p)
	evil := []string{
		"x\n{\"seq\":2,\"event\":\"approved\"}\n", `","event":"approved","x":"`, `\`, `\u0022,"by":"ann`, "a\u2028b\u2029c", "\r",
		"\x1b[2J", "\u009b2J", "\x00", "\u202e", "\u200b", "\U0001f600", "\ufeff", "\x7f", strings.Repeat("\n", 5000),
	}
	for _, s := range evil {
		require.NoError(t, l.Append(event.Entry{
			Event: event.Malformed, Workspace: s, Tool: s, Reason: s, Detail: s, Taints: []string{s},
		}))
	}
	file := disk.Files()[dir+"/log.jsonl"]
	require.Equal(t, len(evil), bytes.Count(file, []byte("\n")), "one line each")
	for _, c := range file {
		require.True(t, c == '\n' || c >= ' ' && c <= '~', "only printable ASCII: %#x", c)
	}
	for i, e := range entries(t, p) {
		require.Equal(t, event.Malformed, e.Event)
		require.Empty(t, e.By)
		if len(evil[i]) <= 4096 {
			require.Equal(t, evil[i], e.Reason)
			require.Equal(t, []string{evil[i]}, e.Taints)
		}
	}
}

func TestInvalidAndLongValues(t *testing.T) {
	p := newDisk(t).Process("daemon")
	l := open(t, p)
	taints := []string{strings.Repeat("t", 5000)}
	require.NoError(t, l.Append(event.Entry{
		Event: event.Malformed, Reason: "a\xff\xfeb", Detail: strings.Repeat("é", 4000), Taints: taints,
	}))
	e := entries(t, p)[0]
	require.Equal(t, "a\ufffd\ufffdb", e.Reason)
	require.True(t, strings.HasSuffix(e.Detail, "é… (8000 bytes)"), "cut visibly")
	require.Less(t, len(e.Detail), 4200)
	require.Len(t, taints[0], 5000, "the caller's slice is unchanged")
}

func TestEntriesRoundTrip(t *testing.T) {
	p := newDisk(t).Process("daemon")
	l := open(t, p)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		want := event.Entry{
			Time: time.Unix(rapid.Int64Range(0, 1<<34).Draw(rt, "sec"), 12345).UTC(), Event: event.Denied,
			Reason: rapid.String().Draw(rt, "reason"), By: rapid.String().Draw(rt, "by"),
			Taints: rapid.SliceOfN(rapid.String(), 1, 3).Draw(rt, "taints"),
		}
		require.NoError(rt, l.Append(want))
		all := entries(t, p)
		n++
		require.Len(rt, all, n)
		want.Seq = int64(n)
		require.Equal(rt, want, all[n-1])
	})
}

func TestReopenContinues(t *testing.T) {
	disk := newDisk(t)
	for n := range 3 {
		l := open(t, disk.Process("daemon"))
		require.NoError(t, l.Append(entry(2*n+1)))
		l.Note(entry(2*n + 2))
		require.NoError(t, l.Close())
	}
	require.Equal(t, "1 2 3 4 5 6", ids(entries(t, disk.Process("reader"))))
	require.Len(t, disk.Files(), 1, "one segment without failures")
}

// Durability is the journal's: the log's files are never synced.
func TestLinesAreWrittenWithoutSync(t *testing.T) {
	disk := newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	require.NoError(t, l.Append(entry(1)))
	before := disk.Ops()
	require.NoError(t, l.Append(entry(2)))
	require.Equal(t, before+1, disk.Ops(), "one write")
	l.Note(entry(3))
	l.Note(entry(4))
	require.Equal(t, before+1, disk.Ops(), "a note waits for the next commit")
	require.Equal(t, int64(2), l.Appended())
	require.NoError(t, l.Append(entry(5)))
	require.NoError(t, l.Sync())
	require.Equal(t, before+2, disk.Ops(), "one write for all that is committed, and none without new entries")
	require.True(t, strings.HasPrefix(string(l.Head()), line(5)), "%q", l.Head())
	require.NoError(t, l.Checkpoint())
	require.NoError(t, l.Close())
	for _, kind := range []crashfs.Kind{crashfs.OpSync, crashfs.OpSyncDir} {
		require.Zero(t, disk.Count(kind), kind)
	}
}

// Commits may end in another order than they began.
func TestLinesAreWrittenInOrder(t *testing.T) {
	disk := newDisk(t)
	l := open(t, disk.Process("daemon"))
	for n := 1; n <= 4; n++ {
		b, seq, err := l.Next(entry(n))
		require.NoError(t, err)
		require.Equal(t, int64(n), seq)
		require.Equal(t, line(n), string(b))
	}
	require.Empty(t, disk.Files(), "no line is written before its commit")
	for i, seq := range []int64{3, 1, 4, 2} {
		require.NoError(t, l.Durable(seq))
		require.Equal(t, []int64{3, 3, 4, 4}[i], l.Appended(), "a commit is durable only after those before it")
	}
	require.Equal(t, "1 2 3 4", ids(entries(t, disk.Process("reader"))))
}

// An error of a note is returned by the next caller that waits.
func TestFailedNoteIsReported(t *testing.T) {
	for why, call := range map[string]func(l *audit.Log) error{
		"Append": func(l *audit.Log) error { return l.Append(entry(2)) },
		"Sync":   func(l *audit.Log) error { return l.Sync() },
	} {
		l := open(t, newDisk(t).Process("daemon"))
		l.Note(event.Entry{Time: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)})
		require.ErrorContains(t, call(l), "note", why)
		require.NoError(t, call(l), "%s: once", why)
	}
}

func TestNotedEntriesAreAnnounced(t *testing.T) {
	disk := newDisk(t)
	l := open(t, disk.Process("daemon"))
	require.NoError(t, l.Append(entry(1)))
	require.Empty(t, l.Noted(), "its caller waited")
	l.Note(entry(2))
	l.Note(entry(3))
	require.Len(t, l.Noted(), 1)
	<-l.Noted()
	require.NoError(t, l.Sync())
	require.Empty(t, l.Noted())
	require.Equal(t, "1 2 3", ids(entries(t, disk.Process("reader"))))
}

// Nothing that is not committed is written or signed.
func TestFailedCommitIsNotWritten(t *testing.T) {
	disk := newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	j := audittest.Attach(l)
	require.NoError(t, l.Append(entry(1)))
	j.Fail = func() error { return errDisk }
	require.ErrorIs(t, l.Append(entry(2)), errDisk)
	require.ErrorIs(t, l.Sync(), errDisk)
	require.ErrorIs(t, l.Checkpoint(), errDisk)
	require.Nil(t, l.Newest())
	require.ErrorIs(t, l.Close(), errDisk)
	require.Equal(t, "1", ids(entries(t, disk.Process("reader"))))
}

func TestConcurrentWriters(t *testing.T) {
	home := t.TempDir()
	l := openLog(t, ipc.OS(), home, nil, audit.Keys{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 25 {
				l.Note(entry(n))
				if err := l.Append(entry(n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, l.Close())
	seq := int64(0)
	require.NoError(t, audit.Entries(ipc.OS(), home, func(e event.Entry) error {
		seq++
		require.Equal(t, seq, e.Seq)
		require.WithinDuration(t, time.Now(), e.Time, time.Minute, "nil means time.Now")
		return nil
	}))
	require.Equal(t, int64(400), seq)
}

func TestClosedLogRefuses(t *testing.T) {
	disk := newDisk(t)
	l := open(t, disk.Process("daemon"))
	require.NoError(t, l.Append(entry(1)))
	require.NoError(t, l.Close())
	require.Error(t, l.Append(entry(2)))
	l.Note(entry(3))
	require.NoError(t, l.Close(), "a second Close does nothing")
	require.Equal(t, "1", ids(entries(t, disk.Process("reader"))))
}

func TestInvalidEntryIsNotWritten(t *testing.T) {
	disk := newDisk(t)
	l := open(t, disk.Process("daemon"))
	bad := entry(1)
	bad.Time = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC) // RFC 3339 has four digits
	require.Error(t, l.Append(bad))
	require.NoError(t, l.Append(entry(2)))
	require.Equal(t, "2", ids(entries(t, disk.Process("reader"))), "it gets no number")
}

func TestNotesAreBounded(t *testing.T) {
	disk := newDisk(t)
	l := open(t, disk.Process("daemon"))
	e := entry(2)
	e.Detail = strings.Repeat("x", 4000)
	for range 300 {
		l.Note(e)
	}
	require.Greater(t, l.Appended(), int64(250), "after 1 MiB Note waits")
}

func TestLongSegmentIsRotated(t *testing.T) {
	home := t.TempDir()
	l := openLog(t, ipc.OS(), home, clock, audit.Keys{})
	e := entry(1)
	e.Detail = strings.Repeat("x", 4000)
	for range 4200 {
		l.Note(e)
	}
	require.NoError(t, l.Append(entry(2)))
	require.NoError(t, l.Append(entry(3)))
	require.NoError(t, l.Close())

	l = openLog(t, ipc.OS(), home, clock, audit.Keys{})
	require.NoError(t, l.Append(entry(4)))
	n := 0
	require.NoError(t, audit.Entries(ipc.OS(), home, func(event.Entry) error { n++; return nil }))
	require.Equal(t, 4203, n)
	info, err := os.Stat(filepath.Join(home, "log.jsonl"))
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(18<<20))
	second, err := os.ReadFile(filepath.Join(home, "log-2.jsonl"))
	require.NoError(t, err)
	require.True(t, bytes.HasSuffix(second, []byte(`"request_id":"0000000000000004"}`+"\n")))
	_, err = os.Stat(filepath.Join(home, "log-3.jsonl"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}
