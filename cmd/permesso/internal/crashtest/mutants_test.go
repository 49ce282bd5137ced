//go:build !race

package crashtest

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutantStates is the most that are tried until a violation is found.
const mutantStates = 100_000

// mutantCount is how many mutants TestMutants explores. Without the flag it is a sample.
var mutantCount = flag.Int("mutants", 4, "mutants to explore, in TestMutants; 0: all")

// wantedMutant is set in the test binary that TestMutants builds with edited source.
var wantedMutant = flag.String("mutant", "", "the mutant of TestOneMutant")

// TestMutants removes one part of the protocol at a time. The explorer must find a
// violation each time. Some mutants are edits of the source: one binary has all of them, and
// runs with one. It is built for a sample, too: every edit must still fit. PERMESSO_SEED repeats
// a sample.
func TestMutants(t *testing.T) {
	all := allMutants()
	require.Len(t, all, fromModel+9)
	edited := slices.DeleteFunc(slices.Clone(all), func(m removed) bool { return m.edits == nil })
	binary := buildMutants(t, edited)
	for _, m := range sampled(t, all) {
		t.Run(string(m.mutant), func(t *testing.T) {
			if m.edits == nil {
				requireViolation(t, m)
				return
			}
			c := exec.CommandContext(t.Context(), binary, "-test.run", "^TestOneMutant$", "-test.v", "-mutant", string(m.mutant))
			c.Env = append(os.Environ(), "PERMESSO_MUTANT="+string(m.mutant))
			out, err := c.CombinedOutput()
			t.Logf("%s", out)
			require.NoError(t, err)
		})
	}
}

// sampled returns as many mutants as are wanted.
func sampled(t *testing.T, all []removed) []removed {
	t.Helper()
	if fullRun() || *mutantCount == 0 {
		return all
	}
	rand.New(rand.NewPCG(sampleSeed(t), 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), *mutantCount)]
}

// TestOneMutant is run by TestMutants, in a binary with edited source.
func TestOneMutant(t *testing.T) {
	i := slices.IndexFunc(allMutants(), func(m removed) bool { return string(m.mutant) == *wantedMutant })
	if i < 0 {
		require.Empty(t, *wantedMutant)
		return
	}
	requireViolation(t, allMutants()[i])
}

func requireViolation(t *testing.T, m removed) {
	t.Helper()
	config, err := newConfig(m.mutant)
	require.NoError(t, err)
	// Some mutants fail only in interleavings. Both kinds stop at the first
	// violation. A mutant may also break the gate completely.
	x := &explorer{search: search{Config: config}, Seed: 1, Seeds: 6, Budget: mutantStates, StopEarly: true, First: m.first}
	r, err := x.Explore(runtime.NumCPU())
	if err != nil {
		t.Logf("the mutant fails without a crash: %v", err)
	}
	t.Logf("%s", r)
	require.NotEmpty(t, r.Violations, "no violation without %s", m.mutant)
}

// buildMutants builds the tests of this package with the edits of all mutants.
func buildMutants(t *testing.T, list []removed) string {
	t.Helper()
	root, err := filepath.Abs("../../../..")
	require.NoError(t, err)
	dir := t.TempDir()
	sources := map[string]string{}
	for folder, text := range helpers {
		sources[filepath.Join(root, folder, "mutated.go")] = text
	}
	for _, m := range list {
		for _, e := range m.edits {
			path := filepath.Join(root, e.file)
			if sources[path] == "" {
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				sources[path] = string(b)
			}
			require.Equal(t, 1, strings.Count(sources[path], e.old), "%s: %s has changed: %q", m.mutant, e.file, e.old)
			sources[path] = strings.Replace(sources[path], e.old, strings.ReplaceAll(e.new, "NAME", strconv.Quote(string(m.mutant))), 1)
		}
	}
	replace := map[string]string{}
	for path, text := range sources {
		replace[path] = filepath.Join(dir, strconv.Itoa(len(replace))+".go")
		require.NoError(t, os.WriteFile(replace[path], []byte(text), 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	file, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "crash.test")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-trimpath", "-vet=off", "-ldflags=-w", "-overlay", file, "-o", binary, ".")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}
