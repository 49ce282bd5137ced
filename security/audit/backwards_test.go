package audit_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
)

// backwards is what Backwards gives, oldest first.
func backwards(t testing.TB, fsys afero.Fs, dir string) (all []approval.Entry, err error) {
	t.Helper()
	err = audit.Backwards(fsys, dir, nil, func(e approval.Entry) error {
		all = append(all, e)
		return nil
	})
	slices.Reverse(all)
	return all, err
}

// Whatever anybody writes, both directions read the same.
func TestBackwardsReadsWhatEntriesReads(t *testing.T) {
	disk := newDisk(t)
	text := rapid.OneOf(rapid.String(), rapid.Just(""), rapid.StringMatching(`[ -~]{0,12}`), rapid.Just(`","by":"ann`), rapid.Just(`{"seq":7,`))
	rapid.Check(t, func(rt *rapid.T) {
		p := disk.Process("daemon")
		l := open(t, p)
		for range rapid.IntRange(1, 5).Draw(rt, "n") {
			l.Note(approval.Entry{
				Time:  time.Unix(rapid.Int64Range(0, 1<<34).Draw(rt, "sec"), rapid.Int64Range(0, 999_999_999).Draw(rt, "nsec")).UTC(),
				Event: approval.Event(text.Draw(rt, "event")), Workspace: text.Draw(rt, "workspace"), Tool: text.Draw(rt, "tool"),
				Capability: text.Draw(rt, "capability"), Target: text.Draw(rt, "target"), ActionType: text.Draw(rt, "action"),
				RequestID: text.Draw(rt, "id"), ClientID: text.Draw(rt, "client"), SessionID: text.Draw(rt, "session"),
				By: text.Draw(rt, "by"), ByID: text.Draw(rt, "by_id"), Via: text.Draw(rt, "via"), Rule: text.Draw(rt, "rule"),
				Reason: text.Draw(rt, "reason"), ReceiptSHA256: text.Draw(rt, "receipt"), Detail: text.Draw(rt, "detail"),
				Taints: rapid.SliceOfN(text, 0, 2).Draw(rt, "taints"),
			})
		}
		require.NoError(rt, l.Close())
		all, err := backwards(t, p, dir)
		require.NoError(rt, err)
		require.Equal(rt, entries(t, p), all)
	})
}

func TestBackwardsOverSegments(t *testing.T) {
	for _, c := range []struct {
		why   string
		files map[string]string
	}{
		{"no log", nil},
		{"one line", map[string]string{"log.jsonl": line(1)}},
		{"a line under way", map[string]string{"log.jsonl": line(1) + line(2)[:30]}},
		{"written again in the next segment", map[string]string{
			"log.jsonl":   line(1) + line(2) + strings.Replace(line(3), "executed", "failed", 1) + line(4)[:20],
			"log-2.jsonl": line(3) + line(4) + line(5),
		}},
		{"torn, and a whole line behind", map[string]string{
			"log.jsonl":   line(1) + line(2) + string(make([]byte, 50)) + "\n" + line(4) + line(5),
			"log-2.jsonl": line(3) + line(4),
		}},
		{"a line with a hole in its middle", map[string]string{
			"log.jsonl":   line(1) + line(2)[:30] + string(make([]byte, 50)) + line(3)[40:] + line(4),
			"log-2.jsonl": line(2),
		}},
		{"a number twice", map[string]string{
			"log.jsonl":   line(1) + line(2) + strings.Replace(line(2), "executed", "failed", 1),
			"log-2.jsonl": line(3),
		}},
		{"three segments", map[string]string{
			"log.jsonl": line(1) + line(2), "log-2.jsonl": line(2) + line(3) + "x\n", "log-3.jsonl": line(4),
		}},
	} {
		disk := newDisk(t)
		for name, content := range c.files {
			put(t, disk, name, content)
		}
		p := disk.Process("reader")
		all, err := backwards(t, p, dir)
		require.NoError(t, err, c.why)
		require.Equal(t, entries(t, p), all, c.why)
	}
}

func TestBackwardsTellsDamage(t *testing.T) {
	for _, c := range []struct {
		why   string
		files map[string]string
		left  string
	}{
		{"a line that is none", map[string]string{"log.jsonl": line(1) + `{"seq":2,"x":1}` + "\n" + line(3)}, "3"},
		{"a line with another number", map[string]string{"log.jsonl": line(1) + line(3), "log-2.jsonl": line(4)}, "4"},
		{"lines missing between segments", map[string]string{"log.jsonl": line(1), "log-2.jsonl": line(3)}, "3"},
		{"a segment taken out", map[string]string{"log.jsonl": line(1), "log-3.jsonl": line(2)}, ""},
		{"the first segment taken out", map[string]string{"log-2.jsonl": line(2)}, ""},
		{"an empty segment", map[string]string{"log.jsonl": line(1), "log-2.jsonl": ""}, ""},
		{"a segment of something else", map[string]string{"log.jsonl": "hello\n", "log-2.jsonl": line(2)}, "2"},
	} {
		disk := newDisk(t)
		for name, content := range c.files {
			put(t, disk, name, content)
		}
		all, err := backwards(t, disk.Process("reader"), dir)
		require.ErrorIs(t, err, audit.ErrDamaged, c.why)
		require.Equal(t, c.left, ids(all), "%s: what stands behind it is told", c.why)
	}
	_, err := backwards(t, newDisk(t).Process("reader"), "/nowhere")
	require.Error(t, err, "no folder")
}

func TestBackwardsKeepsOnlyWhatIsAskedFor(t *testing.T) {
	disk := newDisk(t)
	put(t, disk, "log.jsonl", line(1)+`{"seq":2,"not decoded":}`+"\n"+line(3))
	stop := errors.New("stop")
	seen := 0
	err := audit.Backwards(disk.Process("reader"), dir,
		func(l []byte) bool { return !strings.Contains(string(l), "not decoded") },
		func(approval.Entry) error {
			if seen++; seen == 2 {
				return stop
			}
			return nil
		})
	require.ErrorIs(t, err, stop, "the caller may stop")
	require.Equal(t, 2, seen)
}

// More lines than are decoded at once, over more than one segment.
func TestBackwardsOverALongLog(t *testing.T) {
	home := t.TempDir()
	l, err := audit.Open(ipc.OS(), home, clock)
	require.NoError(t, err)
	e := entry(1)
	e.Detail = strings.Repeat("x", 1500)
	for n := range 12_000 {
		e.RequestID = entry(n).RequestID
		l.Note(e)
	}
	require.NoError(t, l.Close())
	all, err := backwards(t, ipc.OS(), home)
	require.NoError(t, err)
	require.Len(t, all, 12_000)
	for i, e := range all {
		require.Equal(t, int64(i+1), e.Seq)
		require.Equal(t, entry(i).RequestID, e.RequestID)
	}
}
