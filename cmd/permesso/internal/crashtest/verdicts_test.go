package crashtest

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/audit"
)

// Two simulations may share a verdict only if nothing can tell them apart. A new
// field of sim needs an entry here.
func TestFingerprintCoversSim(t *testing.T) {
	change := map[string]func(*sim){
		"disk":           func(w *sim) { require.NoError(t, w.disk.Process("x").Mkdir("/home/x", 0o700)) },
		"now":            func(w *sim) { w.now = w.now.Add(time.Nanosecond) },
		"flow":           func(w *sim) { w.flow = allFlows()[1] },
		"actionIndex":    func(w *sim) { w.actionIndex++ },
		"gateWasDown":    func(w *sim) { w.gateWasDown = true },
		"committed":      func(w *sim) { w.committed[1] = "x" },
		"heads":          func(w *sim) { w.heads = []audit.Foot{{Size: 1, Digits: "abcd"}} },
		"effects":        func(w *sim) { w.effects = []effect{{id: idA}} },
		"tasks":          func(w *sim) { w.tasks[idB] = serverTask{} },
		"acknowledged":   func(w *sim) { w.acknowledged = []acknowledged{{idA, approval.Denied}} },
		"approvedArgs":   func(w *sim) { w.approvedArgs[idA] = []string{"x"} },
		"accepted":       func(w *sim) { w.accepted[idB] = true },
		"submitted":      func(w *sim) { w.submitted[idOther] = "x" },
		"read":           func(w *sim) { w.read[idAfter] = "x" },
		"pruned":         func(w *sim) { w.pruned[idOther] = true },
		"paused":         func(w *sim) { w.paused = true },
		"brokenPromises": func(w *sim) { w.brokenPromises = []string{"x"} },
		"ranLate":        func(w *sim) { w.ranLate = []string{"x"} },
		// The config is the same for a whole exploration, trace is only for reports,
		// and the others are hooks that are not set when simulations are compared.
		"config": nil, "trace": nil, "renamed": nil, "onOpen": nil, "phase": nil, "gate": nil, "command": nil,
	}
	config, err := newConfig("")
	require.NoError(t, err)
	as := func(change func(*sim)) [3]uint64 {
		w, err := config.newSim(allFlows()[0])
		require.NoError(t, err)
		if change != nil {
			change(w)
		}
		return w.fingerprint()
	}
	same := as(nil)
	require.Equal(t, same, as(nil))
	seen := map[[3]uint64]string{as(nil): "nothing"}
	fields := reflect.TypeFor[sim]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		require.Contains(t, change, name)
		if change[name] == nil {
			continue
		}
		h := as(change[name])
		require.Empty(t, seen[h], "%s makes no difference", name)
		seen[h] = name
	}
}

// Files that differ only in their times have two futures: old ones are pruned.
func TestFingerprintCoversFileTimes(t *testing.T) {
	config, err := newConfig("")
	require.NoError(t, err)
	w, err := config.newSim(allFlows()[0])
	require.NoError(t, err)
	later := w.clone(w.disk.Snapshot())
	require.NoError(t, later.disk.Process("x").Chtimes(home, w.now, w.now.Add(time.Second)))
	require.Equal(t, w.hash(), later.hash())
	require.NotEqual(t, w.fingerprint(), later.fingerprint())
}

// The second run of the same state returns the same verdict and only opens HOME.
func TestKnownFutureIsNotRunTwice(t *testing.T) {
	config, err := newConfig("")
	require.NoError(t, err)
	flow := allFlows()[1]
	w, err := config.newSim(flow)
	require.NoError(t, err)
	require.NoError(t, flow.Script[0](&env{w: w})) // the agent asks
	w.brokenPromises = []string{"P something"}     // so that there is a verdict
	for _, all := range []bool{false, true} {
		l := &verdictCache{verdicts: map[futureKey][]string{}, disabled: all}
		ops := [2]int{}
		for i := range ops {
			c := w.clone(w.disk.Snapshot())
			require.Equal(t, []string{"P something"}, l.run(c, 1))
			ops[i] = c.disk.Ops()
		}
		require.Equal(t, all, ops[0] == ops[1], "%v operations", ops)
	}
}

// The flows reach what they are about: a gate that refused their requests at once would
// keep all promises.
func TestFlowsReachTheirEnds(t *testing.T) {
	config, err := newConfig("")
	require.NoError(t, err)
	type end struct{ effects, decisions int }
	ends := map[string]end{}
	for _, f := range allFlows() {
		if f.Actors != nil {
			continue
		}
		w, err := config.newSim(f)
		require.NoError(t, err)
		_, err = (&worker{}).run(w)
		require.NoError(t, err, f.Name)
		ends[f.Name] = end{len(w.effects), len(w.acknowledged)}
	}
	for name, want := range map[string]end{
		"allow": {1, 0}, "approve": {1, 1}, "always": {1, 1}, "deny": {0, 1}, "question": {0, 1},
		"override": {0, 1}, "handler fails": {1, 1}, "idempotent": {1, 1}, "task": {1, 1},
		"submit and approve": {1, 1}, "approve outside": {1, 1}, "approve while down": {1, 1}, "approve after a kill": {1, 1},
		"always inside": {1, 1}, "recycled": {1, 1}, "head": {2, 1}, "large": {1, 1}, "checkpoints": {1, 1}, "prune and approve again": {1, 1}, "submit allowed": {1, 0}, "two requests": {2, 1}, "pause": {2, 1},
	} {
		require.Equal(t, want, ends[name], "%s of %v", name, ends)
	}
}
