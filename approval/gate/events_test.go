package gate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

// unreliableWatcher drops, doubles, delays and reorders hints.
type unreliableWatcher struct {
	h    *rig
	rng  *rand.Rand
	kept []approval.Key
}

func (u *unreliableWatcher) hint(k approval.Key) {
	switch u.rng.IntN(5) {
	case 0: // lost
	case 1:
		u.h.gate.Wake(k)
		u.h.gate.Wake(k)
	case 2, 3:
		u.kept = append(u.kept, k)
	default:
		u.h.gate.Wake(k)
	}
	for len(u.kept) > 0 && u.rng.IntN(3) == 0 {
		i := u.rng.IntN(len(u.kept))
		u.h.gate.Wake(u.kept[i])
		u.kept = append(u.kept[:i], u.kept[i+1:]...)
	}
}

func (u *unreliableWatcher) flush() {
	for _, k := range u.kept {
		u.h.gate.Wake(k)
	}
	u.kept = nil
}

// scenario is one request: its tool, what happens when it is pending, and its
// expected end.
type scenario struct {
	tool string
	then func(h *rig, k approval.Key) // nil: nothing
	want approval.Status
	ran  int
}

func scenarios() []scenario {
	decide := func(v approval.Verdict) func(*rig, approval.Key) {
		return func(h *rig, k approval.Key) { h.decide(decision(k, v)) }
	}
	return []scenario{
		{"auto", nil, approval.StatusAutoApproved, 1},
		{"never", nil, approval.StatusAutoRejected, 0},
		{"run", decide(approval.Approved), approval.StatusApproved, 1},
		{"run", decide(approval.Denied), approval.StatusDenied, 0},
		{"run", (*rig).cancel, approval.StatusCancelled, 0},
		{"fails", decide(approval.Approved), approval.StatusFailed, 1},
		{"receipt", decide(approval.Approved), approval.StatusApproved, 1},
		{"run", func(h *rig, k approval.Key) {
			h.writeRequest(k, request(k, "run", `{"another":"payload"}`))
			h.decide(decision(k, approval.Approved))
		}, approval.StatusApproved, 1},
	}
}

// Whatever happens to the events, one rescan makes up for it: every request is
// handled, and every decision is carried out exactly once.
func TestEventsAreHints(t *testing.T) {
	t.Parallel()
	limits := approval.Limits{PerMinute: 100_000, AskPerMinute: 100_000}
	var h *rig
	h = newRig(t, options{limits: limits, store: func(s store.Store) store.Store {
		return hookedStore{Store: s, method: "Remove", doc: approval.DocPending, after: func(approval.Key) { h.changed() }} // the end of a cleanup
	}})
	h.run(0)
	first, step := 0, 1
	if os.Getenv("PERMESSO_SOAK") == "" {
		step = 20
		first = rand.IntN(step) // each run takes other schedules; a failure names its seed
	}
	for seed := first; seed < 1000; seed += step {
		h.schedule(seed)
	}
}

func (h *rig) schedule(seed int) {
	u := &unreliableWatcher{h: h, rng: rand.New(rand.NewPCG(uint64(seed), 0))}
	chosen := map[approval.Key]scenario{}
	var keys []approval.Key
	for i := range 1 + u.rng.IntN(3) {
		k := keyIn([]string{personal, other}[u.rng.IntN(2)], 16*seed+i)
		chosen[k] = scenarios()[u.rng.IntN(len(scenarios()))]
		keys = append(keys, k)
	}
	rescan := func(what string, done func(approval.Key) bool) {
		for _, ws := range []string{personal, other} {
			require.NoError(h.t, h.gate.Rescan(context.Background(), ws))
		}
		for _, k := range keys {
			h.waitFor(10*time.Second, fmt.Sprintf("%s of %s, seed %d", what, k, seed), func() bool { return done(k) })
		}
	}
	for _, k := range keys {
		h.writeRequest(k, request(k, chosen[k].tool, ""))
		u.hint(k)
	}
	rescan("intake", func(k approval.Key) bool {
		return h.has(approval.DocPending, k) || chosen[k].then == nil && h.isSettled(k)
	})
	u.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, k := range keys {
		if then := chosen[k].then; then != nil {
			then(h, k)
			u.hint(k)
		}
	}
	rescan("outcome", h.isSettled)
	u.flush() // late hints must change nothing
	h.waitFor(10*time.Second, "idle", h.gate.Idle)
	for _, k := range keys {
		require.Equal(h.t, chosen[k].want, h.response(k).Status, "%s, seed %d", k, seed)
		require.Len(h.t, h.executor.argsOf(k), chosen[k].ran, "%s, seed %d", k, seed)
		require.True(h.t, h.isSettled(k), "%s, seed %d", k, seed)
	}
}

// An agent floods the watcher's queue. The next rescan finds its own request, and
// another workspace is not delayed.
func TestEventFlood(t *testing.T) {
	t.Parallel()
	const interval, junk = time.Second, 20_000
	h := newRig(t, options{})
	h.run(interval)
	warm := key(0)
	h.writeRequest(warm, request(warm, "auto", "")) // then the watcher works
	h.waitResponse(warm, 5*time.Second)

	var wg sync.WaitGroup
	began, half := make(chan struct{}), make(chan struct{})
	wg.Go(func() {
		a, b := filepath.Join(h.layout.Requests(personal), "junk.a"), filepath.Join(h.layout.Requests(personal), "junk.b")
		if err := os.WriteFile(a, nil, 0o644); err != nil {
			t.Error(err)
		}
		for n := range junk {
			_ = os.Rename(a, b) // two events each, never two equal ones in a row
			a, b = b, a
			switch n {
			case junk / 10:
				close(began)
			case junk / 2:
				close(half)
			}
		}
	})
	<-began
	early, neighbor, late := key(1), keyIn(other, 2), key(3)
	h.writeRequest(early, request(early, "auto", ""))
	h.writeRequest(neighbor, request(neighbor, "auto", ""))
	took := h.waitFor(interval, "the neighbor", func() bool { return h.has(approval.DocResponse, neighbor) })
	<-half
	h.writeRequest(late, request(late, "auto", ""))
	for _, k := range []approval.Key{early, late} {
		// A flooded folder is polled once a second.
		h.waitResponse(k, interval+time.Second)
		require.Len(t, h.executor.argsOf(k), 1)
	}
	wg.Wait()
	t.Logf("the neighbor got its response after %v", took)
	require.Contains(t, h.logs.String(), "too many events, polling instead")
}
