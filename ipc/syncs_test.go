package ipc

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestCoalescer: a caller that comes while a run is in progress waits for one that begins
// afterwards. All such callers share that run and get its error, and no other's.
func TestCoalescer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, end := make(chan int, 1), make(chan error)
		runs := 0
		f := func() error {
			runs++
			begun <- runs
			return <-end
		}
		var s coalescer
		call := func(n int) chan error {
			errs := make(chan error, n)
			for range n {
				go func() { errs <- s.do(f) }()
			}
			synctest.Wait()
			return errs
		}
		one := call(1)
		require.Equal(t, 1, <-begun)
		five := call(5)
		require.Empty(t, begun, "not two at once")
		failed := errors.New("the first")
		end <- failed
		synctest.Wait()
		require.ErrorIs(t, <-one, failed)
		require.Empty(t, five, "a run that began before the call does not cover it")
		require.Equal(t, 2, <-begun)
		late := call(2)
		end <- nil
		synctest.Wait()
		require.Len(t, five, 5, "one run for all of them")
		for range 5 {
			require.NoError(t, <-five)
		}
		require.Equal(t, 3, <-begun)
		end <- failed
		synctest.Wait()
		require.ErrorIs(t, <-late, failed)
		require.ErrorIs(t, <-late, failed)
		again := call(1)
		require.Equal(t, 4, <-begun, "it can be reused")
		end <- nil
		require.NoError(t, <-again)
	})
}

// TestCoalescerCoversEarlierCalls: a run covers only calls made before it began.
func TestCoalescerCoversEarlierCalls(t *testing.T) {
	const callers, calls = 16, 200
	var s coalescer
	var mu sync.Mutex
	written, durable := 0, 0
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range calls {
				mu.Lock()
				written++
				mine := written
				mu.Unlock()
				err := s.do(func() error {
					mu.Lock()
					now := written
					mu.Unlock()
					mu.Lock()
					defer mu.Unlock()
					durable = max(durable, now)
					return nil
				})
				mu.Lock()
				ok := err == nil && durable >= mine
				mu.Unlock()
				if !ok {
					t.Errorf("%d is not durable", mine)
				}
			}
		})
	}
	wg.Wait()
}
