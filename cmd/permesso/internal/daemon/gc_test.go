package daemon

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGCPercent(t *testing.T) {
	const mb = 1 << 20
	for inUse, want := range map[uint64]int{
		0: 1000, 1: 1000, mb: 1000, 8 * mb: 400, 10 * mb: 320, 16 * mb: 200, 20 * mb: 160, 32 * mb: 100, 64 * mb: 50, 200 * mb: 50, 1 << 40: 50,
	} {
		require.Equal(t, want, gcPercent(inUse), "%d MB in use", inUse/mb)
	}
	runtime.GC()
	require.Greater(t, inUse(), uint64(100<<10), "this program uses memory")
}

// Memory is returned once after each burst, not while one lasts.
func TestTrimmer(t *testing.T) {
	const mb = 1 << 20
	var m trimmer
	for i, beat := range []struct {
		allocated uint64
		due       bool
	}{
		{50 * mb, false},
		{90 * mb, false},
		{91 * mb, true},
		{92 * mb, false},
		{93 * mb, false},
		{95 * mb, false},
		{106 * mb, false},
		{107 * mb, true},
		{108 * mb, false},
		{300 * mb, false},
		{500 * mb, false},
		{500 * mb, true},
	} {
		require.Equal(t, beat.due, m.due(beat.allocated), "beat %d", i)
	}
	require.Greater(t, readMetrics("/gc/heap/allocs:bytes"), uint64(100<<10), "this program uses memory")
}
