package ipc

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

// The real figures are of the right order: more would let runs start in vain,
// less would keep every gate shut.
func TestFreeIsWhatTheKernelSays(t *testing.T) {
	spacer, ok := OS().(SpaceReporter)
	require.True(t, ok)
	bytes, inodes, err := spacer.Free(t.TempDir())
	require.NoError(t, err)
	require.Greater(t, bytes, uint64(1<<20))
	require.Greater(t, inodes, uint64(100))
	_, _, err = spacer.Free("/nowhere")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
