package exec

import (
	osexec "os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b background[int, string]
		now := func() string { return "now" }
		value, waited := b.get(1, now)
		require.Equal(t, "now", value)
		require.Zero(t, waited)

		release := make(chan struct{})
		var reads atomic.Int64
		slow := func() string { reads.Add(1); <-release; return "late" }
		start := time.Now()
		for i := range 5 {
			value, waited = b.get(2, slow)
			require.Empty(t, value)
			require.Positive(t, waited)
			require.Equal(t, patience, time.Since(start), "only the first call waits, call %d", i)
		}
		require.EqualValues(t, 1, reads.Load(), "one at a time")
		value, waited = b.get(1, now)
		require.Equal(t, "now", value, "another one goes on")
		require.Zero(t, waited)

		for key := 3; key < 200; key++ {
			value, waited = b.get(key, slow)
			require.Empty(t, value)
			require.Positive(t, waited)
		}
		synctest.Wait()
		require.EqualValues(t, maxReading, reads.Load(), "each has a thread")
		require.Equal(t, maxWaited*patience, time.Since(start))

		close(release)
		synctest.Wait()
		value, waited = b.get(2, now)
		require.Equal(t, "late", value)
		require.Zero(t, waited)
		value, _ = b.get(2, now)
		require.Equal(t, "now", value, "each is returned once")
		time.Sleep(kept + 1)
		synctest.Wait()
		require.Empty(t, b.readings, "and not kept for ever")
	})
}

// A process that holds up those who read its memory holds up no count, and the limit of its memory
// for a while only.
func TestMemoryThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		m := &meter{count: 1, exact: func(int64, []proc) bool { <-release; return false }}
		j := &job{memory: 100, tasks: 2}
		large := proc{threads: 1, memory: 60}
		require.Empty(t, m.overOf(j, j, []proc{large}))
		require.Empty(t, m.overOf(j, j, []proc{large, large}))
		require.Equal(t, overTasks, m.overOf(j, j, []proc{large, large, large}))
		time.Sleep(unreadable)
		require.Empty(t, m.overOf(j, j, []proc{large}))
		require.Equal(t, overMemory, m.overOf(j, j, []proc{large, large}))
		close(release)
		synctest.Wait()
		require.Empty(t, m.overOf(j, j, []proc{large, large}), "known now")
		time.Sleep(2 * kept)
	})
}

// A command that is being started has no mark yet: it is not taken for what the only run abandoned.
func TestStartingIsOfNoRun(t *testing.T) {
	child := osexec.Command("/bin/sleep", "1000")
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		require.NoError(t, child.Process.Kill())
		_ = child.Wait()
	})
	j := &job{mark: "m"}
	for _, starting := range []bool{true, false} {
		m := &meter{now: func() (map[int]*job, []int, bool) { return map[int]*job{1: j}, []int{child.Process.Pid}, starting }}
		_, found := m.members()
		require.Equal(t, starting, len(found[j]) == 0)
		require.Empty(t, found[nil])
	}
}
