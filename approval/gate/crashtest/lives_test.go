package crashtest

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// A life is taken for another one only where nothing can tell their worlds
// apart. Whoever gives the World a field says here what it does to it.
func TestAFingerprintCoversTheWorld(t *testing.T) {
	change := map[string]func(*World){
		"disk":      func(w *World) { require.NoError(t, w.disk.Process("x").Mkdir("/home/x", 0o700)) },
		"now":       func(w *World) { w.now = w.now.Add(time.Nanosecond) },
		"flow":      func(w *World) { w.flow = Flows()[1] },
		"stage":     func(w *World) { w.stage++ },
		"down":      func(w *World) { w.down = true },
		"effects":   func(w *World) { w.effects = []effect{{id: idA}} },
		"told":      func(w *World) { w.told = []told{{idA, approval.Denied}} },
		"consent":   func(w *World) { w.consent[idA] = []string{"x"} },
		"accepted":  func(w *World) { w.accepted[idB] = true },
		"submitted": func(w *World) { w.submitted[idOther] = "x" },
		"read":      func(w *World) { w.read[idAfter] = "x" },
		"pruned":    func(w *World) { w.pruned[idOther] = true },
		"paused":    func(w *World) { w.paused = true },
		"broken":    func(w *World) { w.broken = []string{"x"} },
		"overdue":   func(w *World) { w.overdue = []string{"x"} },
		// The lab is the same for a whole exploration; a report is no future; the
		// others are hooks of what is under way when worlds are compared.
		"lab": nil, "trace": nil, "renamed": nil, "onOpen": nil,
	}
	lab, err := NewLab("")
	require.NoError(t, err)
	as := func(change func(*World)) [3]uint64 {
		w, err := lab.newWorld(Flows()[0])
		require.NoError(t, err)
		if change != nil {
			change(w)
		}
		return w.fingerprint()
	}
	require.Equal(t, as(nil), as(nil))
	seen := map[[3]uint64]string{as(nil): "nothing"}
	fields := reflect.TypeFor[World]()
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

// Files that differ in their time alone are two futures: old ones are pruned.
func TestAFingerprintCoversTimes(t *testing.T) {
	lab, err := NewLab("")
	require.NoError(t, err)
	w, err := lab.newWorld(Flows()[0])
	require.NoError(t, err)
	later := w.clone(w.disk.Snapshot())
	require.NoError(t, later.disk.Process("x").Chtimes(home, w.now, w.now.Add(time.Second)))
	require.Equal(t, w.hash(), later.hash())
	require.NotEqual(t, w.fingerprint(), later.fingerprint())
}

// The same life twice has the same verdict, and the second time it costs one
// look at an open home.
func TestAKnownLifeIsNotLivedAgain(t *testing.T) {
	lab, err := NewLab("")
	require.NoError(t, err)
	flow := Flows()[1]
	w, err := lab.newWorld(flow)
	require.NoError(t, err)
	require.NoError(t, flow.Script[0](&stageSet{w: w})) // the agent asks
	w.broken = []string{"P something"}                  // so that there is a verdict
	for _, all := range []bool{false, true} {
		l := &lives{verdicts: map[life][]string{}, all: all}
		ops := [2]int{}
		for i := range ops {
			c := w.clone(w.disk.Snapshot())
			require.Equal(t, []string{"P something"}, l.live(c, 1))
			ops[i] = c.disk.Ops()
		}
		require.Equal(t, all, ops[0] == ops[1], "%v operations", ops)
	}
}
