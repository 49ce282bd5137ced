package audit_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
)

// backwards returns the entries of Backwards, oldest first.
func backwards(t testing.TB, fsys afero.Fs, dir string) (all []event.Entry, err error) {
	t.Helper()
	err = audit.Backwards(fsys, dir, nil, func(e event.Entry) error {
		all = append(all, e)
		return nil
	})
	slices.Reverse(all)
	return all, err
}

// Both directions read the same for any entries. Most values are plain and most
// entries have no taints, because only those use fastDecode.
func TestBackwardsEqualsEntries(t *testing.T) {
	disk := newDisk(t)
	plain := rapid.StringMatching(`[a-z0-9:_. -]{0,12}`)
	wild := rapid.OneOf(rapid.String(), rapid.Just("é"), rapid.Just(`","by":"ann`), rapid.Just(`{"seq":7,`), rapid.Just(`\`))
	rapid.Check(t, func(rt *rapid.T) {
		p := disk.Process("daemon")
		l := open(t, p)
		for range rapid.IntRange(1, 5).Draw(rt, "n") {
			e := event.Entry{
				Time:  time.Unix(rapid.Int64Range(0, 1<<34).Draw(rt, "sec"), rapid.Int64Range(0, 999_999_999).Draw(rt, "nsec")).UTC(),
				Event: event.Denied,
			}
			fields := []*string{
				&e.Workspace, &e.Tool, &e.Capability, &e.Target, &e.ActionType, &e.RequestID, &e.ClientID, &e.SessionID, &e.By, &e.ByID,
				&e.Via, &e.Rule, &e.Reason, &e.ReceiptSHA256, &e.Detail, (*string)(&e.Event),
			}
			for i, field := range fields[:15] {
				*field = plain.Draw(rt, fmt.Sprint(i))
			}
			if rapid.Bool().Draw(rt, "one is wild") {
				*fields[rapid.IntRange(0, 15).Draw(rt, "which")] = wild.Draw(rt, "wild")
			}
			if rapid.IntRange(0, 9).Draw(rt, "tainted") == 0 {
				e.Taints = rapid.SliceOfN(wild, 1, 2).Draw(rt, "taints")
			}
			l.Note(e)
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
		{"a line being written", map[string]string{"log.jsonl": line(1) + line(2)[:30]}},
		{"written again in the next segment", map[string]string{
			"log.jsonl":   line(1) + line(2) + strings.Replace(line(3), "executed", "failed", 1) + line(4)[:20],
			"log-2.jsonl": line(3) + line(4) + line(5),
		}},
		{"torn, and a complete line after it", map[string]string{
			"log.jsonl":   line(1) + line(2) + string(make([]byte, 50)) + "\n" + line(4) + line(5),
			"log-2.jsonl": line(3) + line(4),
		}},
		{"a line with missing bytes", map[string]string{
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

func TestBackwardsReportsDamage(t *testing.T) {
	for _, c := range []struct {
		why   string
		files map[string]string
		left  string
	}{
		{"an invalid line", map[string]string{"log.jsonl": line(1) + `{"seq":2,"x":1}` + "\n" + line(3)}, "3"},
		{"a duplicate key", map[string]string{"log.jsonl": line(1) + strings.Replace(line(2), `"request_id"`, `"tool":"x","tool":"y","request_id"`, 1) + line(3)}, "3"},
		{"a duplicate key, first empty", map[string]string{"log.jsonl": line(1) + strings.Replace(line(2), `"request_id"`, `"tool":"","tool":"y","request_id"`, 1) + line(3)}, "3"},
		{"an invalid time", map[string]string{"log.jsonl": line(1) + strings.Replace(line(2), `2026-11-21T12:00:00.000000000Z`, `today`, 1) + line(3)}, "3"},
		{"a line with another number", map[string]string{"log.jsonl": line(1) + line(3), "log-2.jsonl": line(4)}, "4"},
		{"lines missing between segments", map[string]string{"log.jsonl": line(1), "log-2.jsonl": line(3)}, "3"},
		{"a missing segment", map[string]string{"log.jsonl": line(1), "log-3.jsonl": line(2)}, ""},
		{"a missing first segment", map[string]string{"log-2.jsonl": line(2)}, ""},
		{"an empty segment", map[string]string{"log.jsonl": line(1), "log-2.jsonl": ""}, ""},
		{"an invalid segment", map[string]string{"log.jsonl": "hello\n", "log-2.jsonl": line(2)}, "2"},
	} {
		disk := newDisk(t)
		for name, content := range c.files {
			put(t, disk, name, content)
		}
		all, err := backwards(t, disk.Process("reader"), dir)
		require.ErrorIs(t, err, audit.ErrDamaged, c.why)
		require.Equal(t, c.left, ids(all), "%s: entries after the damage are returned", c.why)
	}
	_, err := backwards(t, newDisk(t).Process("reader"), "/nowhere")
	require.Error(t, err, "no folder")
}

func TestBackwardsKeep(t *testing.T) {
	disk := newDisk(t)
	put(t, disk, "log.jsonl", line(1)+`{"seq":2,"not decoded":}`+"\n"+line(3))
	stop := errors.New("stop")
	seen := 0
	err := audit.Backwards(disk.Process("reader"), dir,
		func(l []byte) bool { return !strings.Contains(string(l), "not decoded") },
		func(event.Entry) error {
			if seen++; seen == 2 {
				return stop
			}
			return nil
		})
	require.ErrorIs(t, err, stop, "the caller may stop")
	require.Equal(t, 2, seen)
}

// More lines than a batch, over more than one segment.
func TestBackwardsLongLog(t *testing.T) {
	home := t.TempDir()
	l := openLog(t, ipc.OS(), home, clock, audit.Keys{})
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
