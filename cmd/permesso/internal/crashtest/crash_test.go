package crashtest

import (
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wantedStates is how many disk states TestCrash must reach. Without the flag it is a
// sample; the race detector is slower, so a small one is enough there.
var wantedStates = flag.Int("states", 50_000, "disk states to reach, in TestCrash")

const smallSample = 2_000

// TestCrash checks every promise on every disk state that it reaches.
func TestCrash(t *testing.T) {
	config, err := newConfig("")
	require.NoError(t, err)
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // millions of short-lived documents
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30))
	began := time.Now()
	x := &explorer{search: search{Config: config, NoCache: fullRun()}, Seed: 1, Seeds: seeds(), Budget: budget()}
	progress := time.NewTicker(10 * time.Second)
	defer progress.Stop()
	x.Progress = func(states int) {
		select {
		case <-progress.C:
			t.Logf("%d of %d disk states after %v", states, budget(), time.Since(began).Round(time.Second))
		default:
		}
	}
	r, err := x.Explore(runtime.NumCPU())
	require.NoError(t, err)
	t.Logf("%d disk states in %v: %v", r.States, time.Since(began).Round(time.Millisecond), r.ByFlow)
	require.Empty(t, r.Violations, "%s", r)
	require.GreaterOrEqual(t, r.States, budget())
	for _, f := range allFlows() {
		require.NotZero(t, r.ByFlow[f.Name], "flow %s was not explored", f.Name)
	}
}

func fullRun() bool { return os.Getenv("PERMESSO_SOAK") != "" }

// sampleSeed selects the sample. PERMESSO_SEED repeats it.
func sampleSeed(t *testing.T) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("PERMESSO_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("PERMESSO_SEED=%d", seed)
	return seed
}

// seeds is how many random power cuts are tried at every crash.
func seeds() int {
	if raceEnabled {
		return 1
	}
	return 6
}

// budget is how many states an exploration must reach.
func budget() int {
	if raceEnabled || testing.Short() {
		return smallSample
	}
	return *wantedStates
}
