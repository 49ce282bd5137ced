package telegram

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestIntervals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int64Range(1, 60), 0, 80).Draw(t, "ids")
		var set intervals
		want := map[int64]bool{}
		for _, id := range ids {
			set.add(id)
			want[id] = true
		}
		for id := range int64(62) {
			require.Equal(t, want[id], set.has(id), "%d in %v", id, set)
		}
		for i := 1; i < len(set); i++ {
			require.Greater(t, set[i][0], set[i-1][1]+1, "%v touch", set)
		}
	})
}

func TestIntervalsAreBounded(t *testing.T) {
	var long, many intervals
	for id := range int64(3 * maxIntervalLength) {
		long.add(id)
	}
	require.Equal(t, intervals{{2 * maxIntervalLength, 3*maxIntervalLength - 1}}, long)

	for id := range int64(3 * maxIntervals) {
		many.add(2 * id)
	}
	require.Len(t, many, maxIntervals)
	require.True(t, many.has(2*(3*maxIntervals-1)), "the newest are kept")
	require.False(t, many.has(0))
}
