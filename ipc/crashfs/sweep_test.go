package crashfs

import (
	"testing"

	"github.com/spf13/afero"
	"github.com/stretchr/testify/require"
)

// Many kills, cuts and recoveries must not make snapshots slower.
func TestCutFreesUnnamedNodes(t *testing.T) {
	d := New()
	for range 20 {
		p := d.Process("p")
		require.NoError(t, afero.WriteFile(p, "/kept", []byte("1"), 0o600))
		require.NoError(t, p.SyncFS("/"))
		require.NoError(t, afero.WriteFile(p, "/lost", []byte("2"), 0o600))
		require.NoError(t, p.Remove("/lost"))
		d = d.Cut(Everything)
	}
	require.LessOrEqual(t, len(d.nodes), 5)
	require.Equal(t, []byte("1"), d.Files()["/kept"])
}
