package main

import (
	"fmt"
	osexec "os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every command, also in a script's loop, pays for what packages do at their start.
func TestPackagesDoNothingAtTheirStart(t *testing.T) {
	const (
		maxBytes  = 200_000
		maxMillis = 1.0
		runs      = 5 // the shortest counts: other processes only add time
	)
	require.Equal(t, map[string]initCost{"a": {2.5, 30}, "a/b": {0, 4}}, initCosts(t,
		"init internal/x @0.1 ms, 9 ms clock, 9 bytes, 9 allocs\n"+
			"init github.com/permesso-dev/permesso/a @1 ms, 2.5 ms clock, 30 bytes, 2 allocs\n"+
			"init github.com/permesso-dev/permesso/a/b @1.5 ms, 0 ms clock, 4 bytes, 1 allocs\nok\n"))

	least := map[string]initCost{}
	for range runs {
		cmd := osexec.Command(program(t, true), "--version")
		cmd.Env = []string{"GODEBUG=inittrace=1"}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		for name, c := range initCosts(t, string(out)) {
			if before, ok := least[name]; ok {
				c.millis = min(c.millis, before.millis)
			}
			least[name] = c
		}
	}
	require.NotEmpty(t, least)
	var found []string
	for name, c := range least {
		if c.bytes > maxBytes || c.millis > maxMillis {
			found = append(found, fmt.Sprintf("%s: %.2f ms, %d bytes", name, c.millis, c.bytes))
		}
	}
	require.Empty(t, found, "build tables and compile patterns on first use")
}

type initCost struct {
	millis float64
	bytes  int
}

var initLine = regexp.MustCompile(`(?m)^init github\.com/permesso-dev/permesso/(\S+) @\S+ ms, (\S+) ms clock, (\d+) bytes`)

// initCosts reads the lines about our packages that GODEBUG=inittrace=1 writes.
func initCosts(t *testing.T, trace string) map[string]initCost {
	costs := map[string]initCost{}
	for _, m := range initLine.FindAllStringSubmatch(trace, -1) {
		millis, err := strconv.ParseFloat(m[2], 64)
		require.NoError(t, err)
		bytes, err := strconv.Atoi(m[3])
		require.NoError(t, err)
		costs[m[1]] = initCost{millis, bytes}
	}
	return costs
}
