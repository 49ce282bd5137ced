package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/event"
)

func writeLog(t *testing.T, file string, from, to int64, more string) {
	t.Helper()
	var b []byte
	for seq := from; seq <= to; seq++ {
		line, err := encode(event.Entry{Seq: seq, Time: time.Unix(seq, 0), Event: event.Started, Detail: strings.Repeat("x", 1000)})
		require.NoError(t, err)
		b = append(b, line...)
	}
	require.NoError(t, os.WriteFile(file, append(b, more...), 0o600))
}

func TestLast(t *testing.T) {
	for _, row := range []struct {
		why  string
		ask  int
		more string
		want []int64
		torn bool
	}{
		{"the last two", 2, "", []int64{1999, 2000}, false},
		{"a line that is being written", 1, `{"seq":2001,"ti`, []int64{2000}, false},
		{"an invalid line", 2, "{}x\n", nil, true},
		{"a missing number", 2, `{"seq":2002,"time":"2026-01-01T00:00:00Z","event":"started"}` + "\n", nil, true},
	} {
		t.Run(row.why, func(t *testing.T) {
			dir := t.TempDir()
			writeLog(t, filepath.Join(dir, "log.jsonl"), 1, 2000, row.more)
			entries, err := Last(afero.NewOsFs(), dir, row.ask)
			if row.torn {
				require.ErrorIs(t, err, ErrDamaged)
			} else {
				require.NoError(t, err)
			}
			var seqs []int64
			for _, e := range entries {
				seqs = append(seqs, e.Seq)
			}
			require.Equal(t, row.want, seqs)
		})
	}
	dir := t.TempDir()
	entries, err := Last(afero.NewOsFs(), dir, 5)
	require.NoError(t, err)
	require.Empty(t, entries)
	writeLog(t, filepath.Join(dir, "log.jsonl"), 1, 3, "")
	writeLog(t, filepath.Join(dir, "log-2.jsonl"), 4, 5, "")
	entries, err = Last(afero.NewOsFs(), dir, 5)
	require.NoError(t, err)
	require.Len(t, entries, 5, "those of the segment before, too")
	require.Equal(t, int64(5), entries[4].Seq)
	require.NoError(t, os.Remove(filepath.Join(dir, "log.jsonl")))
	_, err = Last(afero.NewOsFs(), dir, 5)
	require.ErrorIs(t, err, ErrDamaged)
}
