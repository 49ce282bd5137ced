package ipc

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

// A plausibility check: too high a value would start actions that cannot be recorded, too
// low a value would refuse all.
func TestFreeMatchesKernel(t *testing.T) {
	bytes, inodes, err := OS().Free(t.TempDir())
	require.NoError(t, err)
	require.Greater(t, bytes, uint64(1<<20))
	require.Greater(t, inodes, uint64(100))
	_, _, err = OS().Free("/missing")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
