package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/audit"
)

// A log with the head of the journal: signed up to 3, then 4 and 5 are in the journal only.
func logWithHead(t *testing.T) (disk *crashfs.Disk, head []byte) {
	t.Helper()
	disk = newDisk(t)
	l := openSigned(t, disk.Process("daemon"))
	for n := 1; n <= 3; n++ {
		require.NoError(t, l.Append(entry(n)))
	}
	require.NoError(t, l.Close())
	return disk, l.Head()
}

func recoverAndOpen(t *testing.T, disk *crashfs.Disk, head []byte, lines [][]byte) (*audit.Log, []byte) {
	t.Helper()
	p := disk.Process("next")
	after, err := audit.Recover(p, dir, head, lines)
	require.NoError(t, err)
	l, err := audit.OpenFrom(p, dir, clock, testKeys(t), after)
	require.NoError(t, err)
	return l, after
}

func TestHeadFollowsTheLines(t *testing.T) {
	for _, c := range []struct {
		why         string
		first, last int
	}{{"none", 1, 0}, {"those after it", 4, 5}, {"also some before it", 2, 5}, {"all", 1, 5}} {
		disk, head := logWithHead(t)
		l, after := recoverAndOpen(t, disk, head, linesOf(c.first, c.last))
		require.False(t, l.Alarmed(), c.why)
		require.Equal(t, after, l.Head(), c.why)
	}
	disk, _ := logWithHead(t)
	l, after := recoverAndOpen(t, disk, nil, linesOf(1, 5))
	require.False(t, l.Alarmed(), "a first life")
	require.Equal(t, after[:len(after)-8], l.Head()[:len(after)-8], "the tree is known, not what is signed")
	require.Equal(t, "\n", string(openSigned(t, newDisk(t).Process("p")).Head()))
}

// An earlier version committed only the newest line.
func TestHeadOfAnEarlierVersion(t *testing.T) {
	disk, _ := logWithHead(t)
	l, after := recoverAndOpen(t, disk, []byte(line(3)), nil)
	require.False(t, l.Alarmed())
	require.Equal(t, line(3), string(after))
	l, _ = recoverAndOpen(t, disk, l.Head(), linesOf(4, 5))
	require.False(t, l.Alarmed())
	for _, bad := range []string{"x", "x\n", line(3) + "x"} {
		_, err := audit.Recover(disk.Process("next"), dir, []byte(bad), nil)
		require.ErrorContains(t, err, "later version", bad)
	}
}

func TestHeadShowsWhatWasChanged(t *testing.T) {
	for _, c := range []struct {
		why   string
		files map[string]string // "-": removed
		says  string
	}{
		{"a line", map[string]string{"log.jsonl": line(1) + other(line(2)) + line(3), "checkpoints.jsonl": "-"}, "an entry between numbers 1 and 5 was changed: they are not those that the journal committed"},
		{"only the checkpoints", map[string]string{"checkpoints.jsonl": "-"}, "checkpoints.jsonl is missing or empty, but 3 entries were signed there"},
	} {
		disk, head := logWithHead(t)
		for name, content := range c.files {
			require.NoError(t, disk.Process("hand").Remove(dir+"/"+name))
			if content != "-" {
				put(t, disk, name, content)
			}
		}
		l, _ := recoverAndOpen(t, disk, head, linesOf(4, 5))
		require.True(t, l.Alarmed(), c.why)
		require.Contains(t, alarmOf(t, disk).Reason, c.says)
		require.NoError(t, l.Close())
		_, err := verify(t, disk)
		require.ErrorIs(t, err, audit.ErrAlarm)
		l, _ = recoverAndOpen(t, disk, l.Head(), nil)
		require.False(t, l.Alarmed(), "with its own head")
	}
}
