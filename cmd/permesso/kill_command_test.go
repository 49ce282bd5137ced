package main

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// TestRealKillsOfTheCommandLine kills permesso approve at random moments, with and
// without a daemon. The next command must be able to decide.
func TestRealKillsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	const each = 50
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random, h := rand.New(rand.NewPCG(seed, 0)), newRig(t, "default", "[workspaces.default]\nlimits = { pending = 200, ask_per_minute = 1000 }\n"+askAll)
	h.plain = true
	d := h.serve()
	var ids []string
	for range 2 * each {
		ids = append(ids, h.ask(`{"tool_name":"say"}`))
	}
	for _, id := range ids {
		h.awaitPending("default", id)
	}
	d.stop()
	began := time.Now()
	code, _, stderr := h.run("", "pending")
	require.Equal(t, console.ExitOK, code, stderr)
	maxDelay := time.Since(began) * 5 / 4 // a little more than a command takes
	tally := map[int]int{}
	for i, id := range ids {
		if i == each {
			d = h.serve()
			d.awaitLog(`"serving"`)
		}
		cmd := h.command("approve", id)
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(random.Int64N(int64(maxDelay))))
		_ = cmd.Process.Kill() // it may have exited
		_ = cmd.Wait()
		code, _, stderr := h.run("", "approve", id)
		tally[code]++
		if code != console.ExitOK { // the killed command had already decided
			require.Equal(t, console.ExitRefused, code, stderr)
			require.Contains(t, stderr, "already decided: approved by operator:")
		}
	}
	for _, id := range ids {
		require.Equal(t, approval.StatusApproved, h.response(id).Status)
	}
	d.stop()
	names, err := os.ReadDir(h.layout.Decisions("default"))
	require.NoError(t, err)
	for _, n := range names { // the next start removes the temporary files of killed writers
		require.True(t, strings.HasPrefix(n.Name(), ".tmp-"), n.Name())
	}
	d = h.serve()
	d.awaitLog(`"serving"`)
	d.stop()
	names, err = os.ReadDir(h.layout.Decisions("default"))
	require.NoError(t, err)
	require.Empty(t, names)
	t.Logf("afterwards: %d approved, %d were already", tally[console.ExitOK], tally[console.ExitRefused])
	require.NotZero(t, tally[console.ExitOK], "no command was killed before its decision")
}
