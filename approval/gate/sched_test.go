package gate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// TestRetryIsScheduledBeforeNextStep: when a step says when to look again, nobody else has
// the key yet; otherwise a worker that is held up in between would undo what the next
// one noted, and a record that could not be written would not be tried again.
func TestRetryIsScheduledBeforeNextStep(t *testing.T) {
	k := approval.Key{Workspace: "personal", ID: "0123456789abcdef"}
	for _, failed := range []bool{false, true} {
		g := &Gate{Now: time.Now, index: newIndex()}
		q := &g.sched
		q.init()
		g.Wake(k)
		mine, ok := q.pop()
		require.True(t, ok)
		g.Wake(mine) // while it is stepped
		told := false
		q.finishStep(mine, failed, func(failures int) {
			told = true
			require.Equal(t, failed, failures == 1)
			require.True(t, q.busy[mine])
			require.False(t, q.queued[mine], "somebody could have it")
		})
		require.True(t, told)
		require.False(t, q.busy[mine])
		require.Equal(t, !failed, q.queued[mine])
	}
}
