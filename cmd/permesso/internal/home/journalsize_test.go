package home

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

func TestJournalSize(t *testing.T) {
	for text, want := range map[string]int64{"": 8 << 20, "262144": 256 << 10, "2097152": 2 << 20} {
		t.Setenv(JournalSize, text)
		h := New(config.Default(), filepath.Join(t.TempDir(), "home"))
		require.NoError(t, h.Layout.PrepareHome(h.FS))
		release, err := h.Lock(t.Context())
		require.NoError(t, err, "%q", text)
		require.NoError(t, release())
		files, err := filepath.Glob(filepath.Join(h.Layout.Journal(), "segment-*"))
		require.NoError(t, err)
		require.Len(t, files, 4)
		for _, f := range files {
			info, err := os.Stat(f)
			require.NoError(t, err)
			require.Equal(t, want, info.Size(), "%q", text)
		}
	}
	for _, text := range []string{"-1", "0", "65536", "2M", "262145", "134217728"} {
		t.Setenv(JournalSize, text)
		_, err := New(config.Default(), filepath.Join(t.TempDir(), "home")).Lock(t.Context())
		require.ErrorContains(t, err, "no size of a segment", "%q", text)
	}
}
