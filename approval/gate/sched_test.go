package gate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// TestRetryIsScheduledBeforeNextStep: a step records its retry time before another
// worker can take the key. Otherwise it could overwrite the later step's retry time,
// and a record that was not written would not be retried.
func TestRetryIsScheduledBeforeNextStep(t *testing.T) {
	k := approval.Key{Workspace: "personal", ID: "0123456789abcdef"}
	for _, failed := range []bool{false, true} {
		g := &Gate{Now: time.Now, index: newIndex()}
		q := &g.sched
		q.init()
		g.Wake(k)
		mine, ok := q.pop()
		require.True(t, ok)
		g.Wake(mine) // during the step
		reported := false
		q.finishStep(mine, failed, func(failures int) {
			reported = true
			require.Equal(t, failed, failures == 1)
			require.True(t, q.busy[mine])
			require.False(t, q.queued[mine], "not queued before it is finished")
		})
		require.True(t, reported)
		require.False(t, q.busy[mine])
		require.Equal(t, !failed, q.queued[mine])
	}
}

func TestSchedule(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	k := func(id string) approval.Key { return approval.Key{Workspace: "personal", ID: id} }
	s := newSchedule()
	require.Zero(t, s.next())
	require.Empty(t, s.take(start))
	for id, due := range map[string]int{"c": 30, "a": 10, "e": 50, "b": 20, "d": 40} {
		s.set(k(id), at(due))
	}
	s.set(k("e"), at(5))  // earlier
	s.set(k("a"), at(45)) // later
	s.remove(k("c"))
	s.remove(k("never there"))
	require.Equal(t, at(5), s.next())
	require.Equal(t, at(45), s.byKey[k("a")].at)
	require.NotContains(t, s.byKey, k("c"))

	require.Empty(t, s.take(at(4)))
	require.Equal(t, []approval.Key{k("e"), k("b")}, s.take(at(20)), "those that are due, the first first")
	require.Equal(t, at(40), s.next())
	require.Empty(t, s.take(at(20)), "each once")

	s.set(k("retry"), at(21))
	require.Empty(t, s.take(at(20).Add(-time.Second)), "a small correction of the clock")
	require.Equal(t, []approval.Key{k("retry"), k("d"), k("a")}, s.take(at(-3600)), "the clock was set back: all are checked")
	require.Zero(t, s.next())
	s.set(k("now"), time.Now())
	require.NotContains(t, s.next().String(), "m=", "of the wall clock, which can be set back")
}
