package setup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// An edit does not overwrite what another process wrote meanwhile.
func TestEditFileRefusesAChangedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "permesso.toml")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o640))
	holds := func(want string) {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, want, string(b))
		entries, err := os.ReadDir(filepath.Dir(file))
		require.NoError(t, err)
		require.Len(t, entries, 1, "no temporary file is left")
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.EqualValues(t, 0o640, info.Mode())
	}
	require.NoError(t, editFile(file, func([]byte) ([]byte, error) { return []byte("new"), nil }))
	holds("new")
	err := editFile(file, func([]byte) ([]byte, error) {
		return []byte("ours"), os.WriteFile(file, []byte("theirs"), 0o640)
	})
	require.ErrorContains(t, err, "was changed by another process")
	holds("theirs")
}
