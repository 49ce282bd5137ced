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
