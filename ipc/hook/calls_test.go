package hook

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// The end of a request is given to the hooks of one call, however many come at once, and to no other call.
func TestGivenToOneCall(t *testing.T) {
	known := calls(t.TempDir())
	for round := range 50 {
		for _, row := range []struct {
			calls func(hook int) Call
			want  int64
		}{
			{func(int) Call { return Call{UseID: "one"} }, 8},
			{func(hook int) Call { return Call{UseID: fmt.Sprint(hook / 2)} }, 2},
			{func(int) Call { return Call{} }, 1}, // they are told from no other
		} {
			id := digest([]byte(fmt.Sprint(round, row.want)))
			var got atomic.Int64
			var all sync.WaitGroup
			for hook := range 8 {
				all.Go(func() {
					if err := known.give(id, row.calls(hook).taker()); err == nil {
						got.Add(1)
					} else {
						require.ErrorIs(t, err, errGiven)
					}
				})
			}
			all.Wait()
			require.Equal(t, row.want, got.Load())
			require.True(t, known.isGiven(id))
		}
	}
}
