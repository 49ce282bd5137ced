package main

import (
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/ipc/client"
)

// closeBy is the most that is between an acknowledgement and a kill at once.
const closeBy = time.Millisecond

// killWhenDecided decides a request over the daemon's socket, and kills the daemon as soon as it
// acknowledges that.
func (k *killRig) killWhenDecided(d *daemonProcess, random *rand.Rand) {
	k.t.Helper()
	id, p := client.NewID(), plan{tool: "ask_slow", verdict: []approval.Verdict{approval.Approved, approval.Denied}[random.IntN(2)]}
	k.mu.Lock()
	k.busy[id] = true // the other loop leaves it
	k.mu.Unlock()
	k.submit(id, p)
	k.awaitPending(killWorkspace, id)
	c, err := control.Open(k.t.Context(), k.console())
	require.NoError(k.t, err)
	require.True(k.t, c.Served)
	acknowledged := k.decideOne(k.t.Context(), c, id, p)
	k.killAtOnce(d)
	require.True(k.t, acknowledged, "%s %v: %v", id, p, k.lost[id])
}

// killWhenAnswered kills the daemon as soon as some responses are seen. These may be others than
// those that it asks for.
func (k *killRig) killWhenAnswered(d *daemonProcess, random *rand.Rand) {
	k.t.Helper()
	some := 1 + random.IntN(8)
	wanted := k.responses() + some
	for range some {
		k.submit(client.NewID(), plan{tool: "ask_quick", verdict: approval.Denied})
	}
	await(k.t, k.agent.Responses, func() bool {
		k.readResponses()
		if k.responses() < wanted {
			return false
		}
		k.killAtOnce(d)
		return true
	})
}

// killAtOnce kills the daemon that has just acknowledged something.
func (k *killRig) killAtOnce(d *daemonProcess) {
	arrived := time.Now()
	_ = d.cmd.Process.Kill()
	k.near++
	if time.Since(arrived) <= closeBy {
		k.atOnce++
	}
}

func (k *killRig) responses() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.seen)
}
