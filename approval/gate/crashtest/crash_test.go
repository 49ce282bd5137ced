package crashtest

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wanted is how many disk states a full run must see, and how long it may
// take; under the race detector a sample has to do.
const (
	wantedStates = 200_000
	wantedTime   = 60 * time.Second
	sampleStates = 5_000
)

// TestCrash holds every promise on every disk state that it can reach.
func TestCrash(t *testing.T) {
	began := time.Now()
	scripts, woven := explore(t, "", budget())
	states := scripts.States + woven.States
	took := time.Since(began).Round(time.Millisecond)
	t.Logf("%d disk states in %v: scripts %v, interleaved %v", states, took, scripts.ByFlow, woven.ByFlow)
	require.Empty(t, scripts.Violations, "%s", scripts)
	require.Empty(t, woven.Violations, "%s", woven)
	require.GreaterOrEqual(t, states, 2*budget())
	require.Len(t, scripts.ByFlow, 14)
	require.Len(t, woven.ByFlow, 6)
}

// budget is how many states each of the two explorations may see.
func budget() int {
	if raceEnabled || testing.Short() {
		return sampleStates / 2
	}
	return wantedStates / 2
}

// explore runs both explorations, one on each processor.
func explore(t *testing.T, m Mutant, budget int) (scripts, woven *Report) {
	t.Helper()
	var errs [2]error
	var wg sync.WaitGroup
	for i, run := range []func(x *Explorer) (*Report, error){
		func(x *Explorer) (*Report, error) { return x.Scripts() },
		func(x *Explorer) (*Report, error) { return x.Interleaved(100_000) },
	} {
		lab, err := NewLab(m)
		require.NoError(t, err)
		x := &Explorer{Lab: lab, Seed: 1, Second: 1, Seeds: 6, Budget: budget, Stop: m != ""}
		wg.Go(func() {
			r, err := run(x)
			if i == 0 {
				scripts = r
			} else {
				woven = r
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if m == "" {
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
	}
	return scripts, woven
}

// TestMutants takes one ingredient out of the protocol at a time. A harness
// that does not notice proves nothing.
func TestMutants(t *testing.T) {
	require.Len(t, Mutants(), 8)
	for _, m := range Mutants() {
		t.Run(string(m), func(t *testing.T) {
			scripts, woven := explore(t, m, 100_000)
			t.Logf("scripts: %v\nwoven: %v", scripts, woven)
			caught := 0
			for _, r := range []*Report{scripts, woven} {
				if r != nil {
					caught += len(r.Violations)
				}
			}
			require.NotZero(t, caught, "the protocol without %s is not found out", m)
		})
	}
}
