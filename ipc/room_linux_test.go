package ipc

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

// A plausibility check: too high a value would start actions that cannot be recorded, too
// low a value would refuse all.
func TestFreeIsWhatTheKernelSays(t *testing.T) {
	spacer, ok := OS().(SpaceReporter)
	require.True(t, ok)
	bytes, inodes, err := spacer.Free(t.TempDir())
	require.NoError(t, err)
	require.Greater(t, bytes, uint64(1<<20))
	require.Greater(t, inodes, uint64(100))
	_, _, err = spacer.Free("/missing")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
