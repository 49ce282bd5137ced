package crashtest

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFaults lets every file operation of every flow fail in every way.
func TestFaults(t *testing.T) {
	config, err := newConfig("")
	require.NoError(t, err)
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	began := time.Now()
	x := &trialSearch{search: search{Config: config, NoCache: fullRun()}, Every: every(), Starts: starts(), given: int(sampleSeed(t) % uint64(every()))}
	r, err := x.Faults(runtime.NumCPU())
	require.NoError(t, err)
	t.Logf("%d trials, %d ends, %d restarts asked for, in %v: %v", r.Trials, r.States, r.Restarts, time.Since(began).Round(time.Millisecond), r.ByFlow)
	require.Empty(t, r.Violations, "%s", r)
	for _, f := range allFlows() {
		require.NotZero(t, r.ByFlow[f.Name], "flow %s was not explored", f.Name)
	}
}

// TestFullDisk fills the disk at every step of every flow: no outcome is lost, and nothing
// runs twice. The journal has its space.
func TestFullDisk(t *testing.T) {
	config, err := newConfig("")
	require.NoError(t, err)
	x := &trialSearch{search: search{Config: config}, Starts: starts()}
	if raceEnabled || testing.Short() {
		x.Every = every()
	}
	r, err := x.FullDisk(runtime.NumCPU())
	require.NoError(t, err)
	t.Logf("%d trials, %d ends, %d restarts asked for: %v", r.Trials, r.States, r.Restarts, r.ByFlow)
	require.Empty(t, r.Violations, "%s", r)
	require.Zero(t, r.Restarts)
}

// TestClocks lets the clock jump by ten years before every file operation of every
// flow.
func TestClocks(t *testing.T) {
	config, err := newConfig("")
	require.NoError(t, err)
	x := &trialSearch{search: search{Config: config}, Every: every(), Starts: starts(), given: int(sampleSeed(t) % uint64(every()))}
	r, err := x.Clocks(runtime.NumCPU())
	require.NoError(t, err)
	t.Logf("%d jumps: %v", r.Trials, r.ByFlow)
	require.Empty(t, r.Violations, "%s", r)
	for _, f := range allFlows() {
		require.NotZero(t, r.ByFlow[f.Name], "flow %s was not explored", f.Name)
	}
}

// every selects a sample of an exploration that would take too long.
func every() int {
	switch {
	case raceEnabled:
		return 61 // the shortest flow has a few more operations
	case testing.Short():
		return 23
	case fullRun():
		return 1
	}
	return 20
}

// starts selects a part of the operations of the gate's start. All flows together
// cover each of them three times.
func starts() int {
	if fullRun() {
		return 1
	}
	return 9
}
