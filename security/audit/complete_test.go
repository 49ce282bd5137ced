package audit_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/audit"
)

// linesOf are the lines of a journal, from number first to last.
func linesOf(first, last int) (lines [][]byte) {
	for n := first; n <= last; n++ {
		lines = append(lines, []byte(line(n)))
	}
	return lines
}

func other(s string) string { return strings.Replace(s, "executed", "released", 1) }

// diskWith has the files of a log.
func diskWith(t *testing.T, files map[string]string) *crashfs.Disk {
	t.Helper()
	disk := newDisk(t)
	for name, content := range files {
		put(t, disk, name, content)
	}
	return disk
}

func alarmOf(t *testing.T, disk *crashfs.Disk) *audit.Alarm {
	t.Helper()
	a, err := audit.ReadAlarm(disk.Process("reader"), dir)
	require.NoError(t, err)
	return a
}

func TestComplete(t *testing.T) {
	for _, c := range []struct {
		why         string
		files       map[string]string
		first, last int // of the journal's lines
		want        string
	}{
		{"no log yet", nil, 1, 3, "1 2 3"},
		{"nothing in the journal", map[string]string{"log.jsonl": line(1)}, 1, 0, "1"},
		{"all is there", map[string]string{"log.jsonl": line(1) + line(2) + line(3)}, 2, 3, "1 2 3"},
		{"the last are missing", map[string]string{"log.jsonl": line(1)}, 2, 4, "1 2 3 4"},
		{"a torn line", map[string]string{"log.jsonl": line(1) + line(2) + line(3)[:20]}, 2, 4, "1 2 3 4"},
		{"zeros", map[string]string{"log.jsonl": line(1) + string(make([]byte, 300))}, 2, 4, "1 2 3 4"},
		{"a line of something else", map[string]string{"log.jsonl": line(1) + "x\n" + line(3)}, 2, 4, "1 2 3 4"},
		{"a new segment", map[string]string{"log.jsonl": line(1) + line(2), "log-2.jsonl": line(3)}, 2, 4, "1 2 3 4"},
		{"an empty new segment", map[string]string{"log.jsonl": line(1) + line(2), "log-2.jsonl": ""}, 3, 4, "1 2 3 4"},
		{"a new segment of zeros", map[string]string{"log.jsonl": line(1) + line(2), "log-2.jsonl": string(make([]byte, 300))}, 3, 4, "1 2 3 4"},
		{"two new segments, the first of which is lost", map[string]string{"log.jsonl": line(1), "log-3.jsonl": line(3)}, 2, 4, "1 2 3 4"},
		{"many new segments", map[string]string{"log.jsonl": line(1), "log-2.jsonl": line(2), "log-3.jsonl": "", "log-4.jsonl": line(3)}, 2, 4, "1 2 3 4"},
		{"only new segments", map[string]string{"log.jsonl": line(1)[:30], "log-2.jsonl": line(2)}, 1, 3, "1 2 3"},
	} {
		t.Run(c.why, func(t *testing.T) {
			disk := diskWith(t, c.files)
			p := disk.Process("daemon")
			for range 2 {
				require.NoError(t, audit.Complete(p, dir, linesOf(c.first, c.last)))
				all := entries(t, p)
				require.Equal(t, c.want, ids(all))
				for _, e := range all {
					require.Equal(t, entry(int(e.Seq)).Event, e.Event, "the journal's bytes count")
				}
			}
			require.Nil(t, alarmOf(t, disk))
			l := openSigned(t, p)
			require.NoError(t, l.Append(entry(9)))
			require.NoError(t, l.Close())
			_, err := verify(t, disk)
			require.NoError(t, err)
		})
	}
}

// What the journal cannot restore is an alarm, and changes nothing.
func TestCompleteRaisesAnAlarm(t *testing.T) {
	for _, c := range []struct {
		why         string
		files       map[string]string
		first, last int
		want, have  int64
	}{
		{"no log any more", nil, 5, 6, 4, 0},
		{"cut before the journal's first", map[string]string{"log.jsonl": line(1) + line(2)}, 5, 6, 4, 2},
		{"cut by one entry", map[string]string{"log.jsonl": line(1) + line(2) + line(3)}, 5, 6, 4, 3},
		{"a changed line before", map[string]string{"log.jsonl": line(1) + "x\n" + line(3) + line(4)}, 5, 6, 4, 1},
		{"a segment is gone", map[string]string{"log-2.jsonl": line(3) + line(4)}, 5, 6, 4, 0},
		{"the journal was set back", map[string]string{"log.jsonl": line(1) + line(2) + line(3)}, 2, 2, 3, 2},
		{"also over segments", map[string]string{"log.jsonl": line(1), "log-2.jsonl": line(2) + line(3)}, 2, 2, 3, 2},
	} {
		t.Run(c.why, func(t *testing.T) {
			disk := diskWith(t, c.files)
			before := disk.Files()
			p := disk.Process("daemon")
			require.NoError(t, audit.Complete(p, dir, linesOf(c.first, c.last)))
			left := disk.Cut(crashfs.OnlySynced)
			a := alarmOf(t, left)
			require.NotNil(t, a)
			require.Equal(t, []int64{c.want, c.have}, []int64{a.Want, a.Have})
			if c.have < int64(c.first) {
				require.Equal(t, line(5)+line(6), string(left.Files()[dir+"/journal-1.old"]), "kept, and durable")
			}
			after := disk.Files()
			delete(after, dir+"/alarm.json")
			delete(after, dir+"/journal-1.old")
			require.Equal(t, before, after)

			require.NoError(t, audit.Raise(p, dir, audit.Alarm{Want: 99}))
			require.Equal(t, a, alarmOf(t, disk), "the first alarm stays")
		})
	}
}

// Other entries than those of the journal are kept, with an alarm; the journal's count.
func TestCompleteKeepsOtherEntries(t *testing.T) {
	for _, c := range []struct {
		why   string
		files map[string]string
		kept  string // the file that is kept, of its content
		says  string
	}{
		{"one", map[string]string{"log.jsonl": line(1) + line(2) + other(line(3)) + line(4)}, "log-1.old", "entries 3 to 4 of log.jsonl"},
		{"all", map[string]string{"log.jsonl": line(1) + other(line(2)) + line(3)}, "log-1.old", "entries 2 to 3 of log.jsonl"},
		{"more than the journal has", map[string]string{"log.jsonl": line(1) + other(line(2)) + line(3) + line(4) + line(5) + line(6)}, "log-1.old", "entries 2 to 6 of log.jsonl"},
		{"in a new segment", map[string]string{"log.jsonl": line(1) + line(2), "log-2.jsonl": other(line(3))}, "log-2-1.old", "entry 3 of log-2.jsonl"},
		{"after a torn one", map[string]string{"log.jsonl": line(1) + line(2)[:9], "log-2.jsonl": "", "log-3.jsonl": line(2) + other(line(3))}, "log-3-1.old", "entry 3 of log-3.jsonl"},
	} {
		t.Run(c.why, func(t *testing.T) {
			disk := diskWith(t, c.files)
			for range 2 {
				p := disk.Process("daemon")
				require.NoError(t, audit.Complete(p, dir, linesOf(2, 4)))
				for _, e := range entries(t, p) {
					require.Equal(t, entry(int(e.Seq)).Event, e.Event, "the journal's bytes count")
				}
				require.Len(t, entries(t, p), 4)
				left := disk.Cut(crashfs.OnlySynced)
				require.Contains(t, alarmOf(t, left).Reason, c.says)
				segment := strings.Replace(c.kept, "-1.old", ".jsonl", 1)
				require.Equal(t, c.files[segment], string(left.Files()[dir+"/"+c.kept]))
				require.NotContains(t, disk.Files(), strings.Replace(c.kept, "-1.", "-2.", 1), "once")
			}
		})
	}
}

func TestCompleteRefusesLinesThatAreNoEntries(t *testing.T) {
	for why, lines := range map[string][][]byte{
		"a number is missing": slices.Concat(linesOf(1, 1), linesOf(3, 3)),
		"no number":           {[]byte("x\n")},
		"no line feed":        {[]byte(strings.TrimSpace(line(1)))},
	} {
		disk := newDisk(t)
		require.Error(t, audit.Complete(disk.Process("daemon"), dir, lines), why)
		require.Empty(t, disk.Files(), why)
	}
}

// The journal names the newest line before a clean stop.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		why   string
		files map[string]string
		line  string
		alarm *audit.Alarm
	}{
		{"it is there", map[string]string{"log.jsonl": line(1) + line(2)}, line(2), nil},
		{"as the first line", map[string]string{"log.jsonl": line(1)}, line(1), nil},
		{"in the second segment", map[string]string{"log.jsonl": line(1), "log-2.jsonl": line(2)}, line(2), nil},
		{"an older version went on", map[string]string{"log.jsonl": line(1) + line(2) + line(3)}, line(2), nil},
		{"the log was empty", map[string]string{}, "", nil},
		{"cut", map[string]string{"log.jsonl": line(1)}, line(3), &audit.Alarm{Want: 3, Have: 1}},
		{"gone", nil, line(3), &audit.Alarm{Want: 3}},
		{"changed", map[string]string{"log.jsonl": line(1) + other(line(2))}, line(2), &audit.Alarm{Want: 2, Have: 2}},
		{"within another line", map[string]string{"log.jsonl": line(1)[:10] + line(2)}, line(2), &audit.Alarm{Want: 2, Have: 0}},
		{"without its line feed", map[string]string{"log.jsonl": line(1) + strings.TrimSpace(line(2))}, line(2), &audit.Alarm{Want: 2, Have: 1}},
	} {
		t.Run(c.why, func(t *testing.T) {
			disk := diskWith(t, c.files)
			require.NoError(t, audit.Compare(disk.Process("daemon"), dir, []byte(c.line)))
			a := alarmOf(t, disk)
			if c.alarm == nil {
				require.Nil(t, a)
				return
			}
			require.NotNil(t, a)
			require.Equal(t, []int64{c.alarm.Want, c.alarm.Have}, []int64{a.Want, a.Have})
			require.NotEmpty(t, a.Reason)
		})
	}
	p := crashfs.New().Process("daemon")
	require.NoError(t, audit.Compare(p, dir, []byte(line(1))), "the folder is gone")
	a, err := audit.ReadAlarm(p, dir)
	require.NoError(t, err)
	require.Equal(t, int64(1), a.Want)
}

func TestTornAlarmIsAnAlarm(t *testing.T) {
	for _, content := range []string{"", "{", "\x00\x00"} {
		disk := diskWith(t, map[string]string{"log.jsonl": line(1), "alarm.json": content})
		require.NotNil(t, alarmOf(t, disk), "%q", content)
		require.NotEmpty(t, alarmOf(t, disk).Reason)
	}
	require.Nil(t, alarmOf(t, newDisk(t)))
}
