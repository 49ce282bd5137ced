package deliver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A job that is added again while it runs waits as long as it was told to: an edit waits for the outcome, so that
// one edit shows the decision, too.
func TestAddedWhileItRuns(t *testing.T) {
	for _, tc := range []struct {
		name  string
		again []time.Duration
		wait  time.Duration
	}{
		{"later", []time.Duration{outcomeDelay}, outcomeDelay},
		{"at once", []time.Duration{0}, 0},
		{"the earliest counts", []time.Duration{outcomeDelay, 0}, 0},
		{"in any order", []time.Duration{0, outcomeDelay}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				o := &outbox{ctx: ctx, retryUnit: firstRetry, queues: map[ID]*queue{}, onDone: func(ID, error) {}, delay: func(ID, int) time.Duration { return 0 }}
				began, release := make(chan time.Time, 2), make(chan struct{}, 2)
				j := job{name: "a card", do: func(context.Context) error { began <- time.Now(); <-release; return nil }}
				o.put("chat", j, 0)
				<-began
				start := time.Now()
				for _, after := range tc.again {
					o.put("chat", j, after)
				}
				release <- struct{}{}
				release <- struct{}{}
				require.Equal(t, tc.wait, (<-began).Sub(start))
				synctest.Wait()
				require.Empty(t, began, "once")
				cancel()
				o.wg.Wait()
			})
		})
	}
}
