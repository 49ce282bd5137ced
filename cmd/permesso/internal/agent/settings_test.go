package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// An agent that writes its settings while a person reads the change loses nothing.
func TestSettingsChangedMeanwhile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.json")
	x := settingsEdit{file: file, kept: file + ".before", before: []byte("{}"), clean: []byte("{}"), after: []byte(`{"a":1}`), keeps: true}
	for _, now := range []string{`{"b":1}`, ""} {
		require.NoError(t, os.WriteFile(file, []byte(now), 0o600))
		require.ErrorContains(t, x.write(), file+" was changed meanwhile")
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, now, string(b))
	}
	require.NoError(t, os.Remove(file))
	require.ErrorContains(t, x.write(), "was changed meanwhile")
	require.NoFileExists(t, x.kept)

	require.NoError(t, os.WriteFile(file, []byte("{}"), 0o600))
	require.NoError(t, x.write())
	require.FileExists(t, x.kept)
}
