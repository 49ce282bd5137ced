package daemon

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Refusals of one UID are logged at a limited rate, and other UIDs are still logged.
func TestRefusalsAreRateLimited(t *testing.T) {
	var s rateLimited
	logged := map[string]int{}
	for i := range 100_000 {
		for _, uid := range []string{"1", strconv.Itoa(i)} {
			if s.allow(uid) {
				logged[uid]++
			}
		}
	}
	require.Equal(t, 10, logged["1"]) // no more for a minute
	require.Equal(t, 1, logged["2"])
	require.LessOrEqual(t, len(s.uid), maxUIDs+1)
	require.Less(t, len(logged), maxUIDs+20, "beyond maxUIDs the UIDs share one limit")
}
