package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A configuration behind symbolic links, as in containers: the folders of each
// link and of each target are watched.
func TestLinkFolders(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "..1"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "..1", "permesso.toml"), nil, 0o600))
	require.NoError(t, os.Symlink("..1", filepath.Join(dir, "..data")))
	file := filepath.Join(dir, "permesso.toml")
	require.NoError(t, os.Symlink("..data/permesso.toml", file))
	require.Equal(t, []string{dir, filepath.Join(dir, "..1")}, linkFolders(file))
}
