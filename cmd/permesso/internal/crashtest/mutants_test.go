//go:build !race

package crashtest

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutantStates is the most that are tried until a violation is found.
const mutantStates = 200_000

// shownBy names a flow in which a mutant soon violates a promise. The search begins
// there and goes on with all flows; the full run begins with the first flow.
var shownBy = map[mutant]string{
	noSlot: "two deciders", noStartSync: "submit allowed", noRecheck: "slow decider",
	noExpirySlot: "submit and withdraw", noPauseCheck: "pause between", noGrantFirst: "always",
}

// TestMutants removes one part of the protocol at a time. The explorer must find a
// violation each time.
func TestMutants(t *testing.T) {
	require.Len(t, allMutants(), 10)
	for _, m := range allMutants() {
		t.Run(string(m), func(t *testing.T) {
			config, err := newConfig(m)
			require.NoError(t, err)
			// Some mutants fail only in interleavings. Both kinds stop at the first
			// violation. A mutant may also break the gate completely.
			x := &explorer{search: search{Config: config}, Seed: 1, Seeds: 6, Budget: mutantStates, StopEarly: true}
			if !fullRun() {
				x.First = shownBy[m]
			}
			r, err := x.Explore(runtime.NumCPU())
			if err != nil {
				t.Logf("the mutant fails without a crash: %v", err)
			}
			t.Logf("%s", r)
			require.NotEmpty(t, r.Violations, "no violation without %s", m)
		})
	}
}
