package crashfs_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/crashfs"
)

const block = 4 << 10

// large returns a disk with a durable file of sixteen blocks of zeros, and the open file.
func large(t *testing.T) (*crashfs.Disk, afero.File) {
	d := crashfs.New()
	p := d.Process("p")
	require.NoError(t, afero.WriteFile(p, "/large", make([]byte, 16*block), 0o600))
	require.NoError(t, p.SyncFS("/"))
	f, err := p.OpenFile("/large", os.O_RDWR, 0)
	require.NoError(t, err)
	return d, f
}

// blocksAfter names each block of the file after a cut: zero, a letter that fills it, or "?".
func blocksAfter(t *testing.T, d *crashfs.Disk, way crashfs.Survive, n int) (names string) {
	b, ok := d.Cut(way).File("/large")
	require.True(t, ok)
	require.Len(t, b, 16*block)
	for i := range n {
		one := b[i*block : (i+1)*block]
		switch {
		case bytes.Equal(one, bytes.Repeat(one[:1], block)) && one[0] == 0:
			names += "0"
		case bytes.Equal(one, bytes.Repeat(one[:1], block)):
			names += string(one[:1])
		default:
			names += "?"
		}
	}
	return names
}

func fill(t *testing.T, f afero.File, at, n int, letter string) {
	_, err := f.WriteAt(bytes.Repeat([]byte(letter), n*block), int64(at*block))
	require.NoError(t, err)
}

// A power cut may leave of each overwritten block the old bytes, the new ones, or neither.
// The blocks between stay as they are.
func TestCutOfOverwrittenBlocks(t *testing.T) {
	d, f := large(t)
	fill(t, f, 0, 4, "a")
	require.NoError(t, f.Sync())
	fill(t, f, 1, 2, "b")
	for way, want := range map[crashfs.Survive]string{
		crashfs.OnlySynced: "aaaa", crashfs.Everything: "abba", crashfs.NamesNotData: "aaaa",
		crashfs.DataNotNames: "abba", crashfs.Torn: "ab?a", crashfs.Zeroed: "a00a",
	} {
		require.Equal(t, want, blocksAfter(t, d, way, 4), way.String())
	}
	seen := map[string]bool{}
	for seed := range uint64(300) {
		s := blocksAfter(t, d, crashfs.Seeded(seed), 4)
		require.Equal(t, "a", s[:1])
		require.Equal(t, "a", s[3:])
		seen[s] = true
	}
	for _, s := range []string{"aaaa", "abba", "abaa", "aaba", "a?aa", "ab?a", "a00a", "a??a"} {
		require.True(t, seen[s], "%s is not among %v", s, seen)
	}
	require.NoError(t, f.Sync())
	require.Equal(t, "abba", blocksAfter(t, d, crashfs.OnlySynced, 4))
}

// The kernel drops what a failed fsync could not write. Only what is written again counts.
func TestFailedSyncDropsBlocks(t *testing.T) {
	d, f := large(t)
	fill(t, f, 0, 2, "a")
	d.Fail = func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync {
			return errors.New("input/output error")
		}
		return nil
	}
	require.Error(t, f.Sync())
	d.Fail = nil
	require.NoError(t, f.Sync())
	require.Equal(t, "000", blocksAfter(t, d, crashfs.OnlySynced, 3), "the second sync writes nothing")
	fill(t, f, 1, 2, "b")
	require.NoError(t, f.Sync())
	require.Equal(t, "0bb", blocksAfter(t, d, crashfs.OnlySynced, 3))
	b := make([]byte, 1)
	_, err := f.ReadAt(b, 0)
	require.NoError(t, err)
	require.Equal(t, "a", string(b), "programs still read what was dropped")
}

// Only a write beyond the length needs space.
func TestOverwriteIsAKindOfItsOwn(t *testing.T) {
	d, f := large(t)
	var kinds []crashfs.Kind
	d.Before = func(op crashfs.Op) { kinds = append(kinds, op.Kind) }
	fill(t, f, 15, 1, "a")
	fill(t, f, 15, 2, "a")
	require.Equal(t, []crashfs.Kind{crashfs.OpOverwrite, crashfs.OpWrite}, kinds)
}

// Versions of a file that its normal form makes equal have equal hashes.
func TestHashOfTheNormalForm(t *testing.T) {
	d, f := large(t)
	d.NormalData = func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("x"), []byte("y")) }
	fill(t, f, 0, 1, "x")
	x := d.Snapshot().Hash()
	fill(t, f, 0, 1, "y")
	require.Equal(t, x, d.Hash())
	fill(t, f, 0, 1, "z")
	require.NotEqual(t, x, d.Hash())
}
