package daemon

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGCPercent(t *testing.T) {
	const mb = 1 << 20
	for inUse, want := range map[uint64]int{
		0: 1000, 1: 1000, mb: 1000, 8 * mb: 200, 10 * mb: 160, 16 * mb: 100, 20 * mb: 80, 32 * mb: 50, 200 * mb: 50, 1 << 40: 50,
	} {
		require.Equal(t, want, gcPercent(inUse), "%d MB in use", inUse/mb)
	}
	runtime.GC()
	require.Greater(t, inUse(), uint64(100<<10), "this program uses memory")
}
