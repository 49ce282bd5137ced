package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every settledEvery-th rescan of a workspace is thorough, and the one after a failed one.
func TestThoroughRounds(t *testing.T) {
	s := &server{rounds: map[string]int{}}
	for round := 1; round <= 3*settledEvery; round++ {
		require.Equal(t, round%settledEvery == 0, s.countRound("a"), "round %d", round)
	}
	require.False(t, s.countRound("b"), "each workspace has its own rounds")
	s.setThorough("b")
	require.True(t, s.countRound("b"))
	require.False(t, s.countRound("b"))
	require.False(t, s.countRound("a"))
}
