package telegram_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-telegram/bot"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram"
)

// send calls Wait n times at once for each chat and returns the send times, ascending.
func send(t *testing.T, l *telegram.Limiter, chats []int64, n int, group bool) (all []time.Duration, each map[int64][]time.Duration) {
	t.Helper()
	start, each := time.Now(), map[int64][]time.Duration{}
	var mu sync.Mutex
	var done sync.WaitGroup
	for _, chat := range chats {
		for range n {
			done.Go(func() {
				err := l.Wait(context.Background(), chat, group)
				at := time.Since(start)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				all = append(all, at)
				each[chat] = append(each[chat], at)
			})
		}
	}
	done.Wait()
	slices.Sort(all)
	for _, times := range each {
		slices.Sort(times)
	}
	return all, each
}

// most returns the largest number of times within any window of that length.
func most(times []time.Duration, window time.Duration) int {
	n := 0
	for i := range times {
		j := i
		for j < len(times) && times[j]-times[i] < window {
			j++
		}
		n = max(n, j-i)
	}
	return n
}

func TestLimiterKeepsTelegramsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := send(t, &telegram.Limiter{}, []int64{1}, 10, false)
		require.LessOrEqual(t, most(all, time.Second), 3, "three at once after a pause, then one a second")
		require.Equal(t, 7*time.Second, all[9], "no slower than needed")
	})
	synctest.Test(t, func(t *testing.T) {
		all, _ := send(t, &telegram.Limiter{}, []int64{-1}, 50, true)
		require.LessOrEqual(t, most(all, time.Minute), 20, "twenty a minute to a group")
		require.Less(t, all[49], 2*time.Minute+20*time.Second)
	})
	synctest.Test(t, func(t *testing.T) {
		var chats []int64
		for id := range int64(60) {
			chats = append(chats, id+1)
		}
		all, each := send(t, &telegram.Limiter{}, chats, 2, false)
		require.LessOrEqual(t, most(all, time.Second), 30, "thirty a second in total")
		require.Less(t, all[119], 5*time.Second, "close to the limit")
		require.Len(t, each, 60)
	})
}

func TestLimiterChatsAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &telegram.Limiter{}
		slow := make(chan struct{})
		go func() {
			defer close(slow)
			send(t, l, []int64{1}, 10, false)
		}()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, l.Wait(t.Context(), 2, false))
		require.Less(t, time.Since(start), time.Second, "another chat does not delay this one")
		<-slow
	})
}

func TestLimiterObeysRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &telegram.Limiter{}
		start := time.Now()
		err := fmt.Errorf("send: %w", &bot.TooManyRequestsError{RetryAfter: 30})
		require.Equal(t, 30*time.Second, l.NoteError(1, err))
		require.Zero(t, l.NoteError(1, errors.New("bad gateway")))
		require.Equal(t, time.Second, l.NoteError(1, &bot.TooManyRequestsError{RetryAfter: 1}), "a shorter retry_after does not end a longer one")

		require.NoError(t, l.Wait(t.Context(), 2, false))
		require.Zero(t, time.Since(start), "only that chat is blocked")
		require.NoError(t, l.Wait(t.Context(), 1, false))
		require.Equal(t, 30*time.Second, time.Since(start))
	})
}

func TestLimiterAppliesRetryAfterWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &telegram.Limiter{}
		send(t, l, []int64{1}, 3, false)
		start, done := time.Now(), make(chan time.Duration)
		go func() {
			_ = l.Wait(context.Background(), 1, false)
			done <- time.Since(start)
		}()
		synctest.Wait()
		l.NoteError(1, &bot.TooManyRequestsError{RetryAfter: 5})
		require.Equal(t, 5*time.Second, <-done)
	})
}

func TestLimiterStopsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &telegram.Limiter{}
		l.NoteError(1, &bot.TooManyRequestsError{RetryAfter: 60})
		start := time.Now()
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, l.Wait(short, 1, false), context.DeadlineExceeded)
		require.Zero(t, time.Since(start), "fails at once if the deadline is too early")

		ctx, stop := context.WithCancel(t.Context())
		failed := make(chan error)
		for range 2 { // the next sender, and one behind it
			go func() { failed <- l.Wait(ctx, 1, false) }()
		}
		synctest.Wait()
		stop()
		for range 2 {
			require.ErrorIs(t, <-failed, context.Canceled)
		}
		require.NoError(t, l.Wait(t.Context(), 1, false))
		require.Equal(t, time.Minute, time.Since(start), "canceled waits do not count")
		require.NoError(t, l.Wait(t.Context(), 1, false))
		require.NoError(t, l.Wait(t.Context(), 1, false))
		require.Equal(t, time.Minute, time.Since(start))
	})
}

func TestLimiterForgetsIdleChats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &telegram.Limiter{}
		l.NoteError(7, &bot.TooManyRequestsError{RetryAfter: 3600})
		start := time.Now()
		for id := range int64(1500) {
			require.NoError(t, l.Wait(t.Context(), 100+id, false))
		}
		require.NoError(t, l.Wait(t.Context(), 7, false))
		require.Equal(t, time.Hour, time.Since(start), "a blocked chat is kept")
	})
}
