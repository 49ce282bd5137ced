package watcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
)

// exists is the condition that a client waits for.
func exists(path string) func() (bool, error) {
	return func() (bool, error) {
		_, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
}

func TestAwait(t *testing.T) {
	tests := []struct {
		why string
		do  func(t *testing.T, path string)
	}{
		{"exists already", func(t *testing.T, path string) { write(t, mkdir(t, filepath.Dir(path)), filepath.Base(path)) }},
		{"written later", func(t *testing.T, path string) {
			mkdir(t, filepath.Dir(path))
			soon(func() { write(t, path) })
		}},
		{"renamed in, as the gate does", func(t *testing.T, path string) {
			dir := mkdir(t, filepath.Dir(path))
			soon(func() {
				write(t, dir, ".tmp")
				require.NoError(t, os.Rename(filepath.Join(dir, ".tmp"), path))
			})
		}},
		{"the folder is created later", func(t *testing.T, path string) {
			soon(func() { write(t, mkdir(t, filepath.Dir(path)), filepath.Base(path)) })
		}},
		{"the folder is deleted and created again", func(t *testing.T, path string) {
			dir := mkdir(t, filepath.Dir(path))
			soon(func() {
				require.NoError(t, os.Remove(dir))
				write(t, mkdir(t, dir), filepath.Base(path))
			})
		}},
	}
	var shared Shared
	lasting := Shared{Idle: time.Minute}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			for _, s := range []*Shared{nil, &shared, &lasting} {
				path := filepath.Join(t.TempDir(), "responses", "a.json")
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				tt.do(t, path)
				require.NoError(t, s.Await(ctx, path, exists(path)))
				require.FileExists(t, path)
			}
		})
	}
	require.Empty(t, shared.waiting)
	require.Empty(t, lasting.waiting)
	lasting.close()
}

// Many wait with one instance, and each is told of its own file at once: before the first timer.
func TestShared(t *testing.T) {
	s := Shared{Idle: 300 * time.Millisecond}
	dir := t.TempDir()
	var all sync.WaitGroup
	looks := make([]atomic.Int64, 200)
	began := make(chan struct{}, len(looks))
	for i := range looks {
		all.Go(func() {
			path := filepath.Join(dir, fmt.Sprint(i))
			require.NoError(t, s.Await(t.Context(), path, func() (bool, error) {
				if looks[i].Add(1) == 1 {
					began <- struct{}{}
				}
				return exists(path)()
			}))
		})
	}
	for range looks {
		<-began
	}
	s.mu.Lock()
	waiting := len(s.waiting)
	s.mu.Unlock()
	require.Len(t, looks, waiting, "with one instance")
	for i := range looks {
		write(t, dir, fmt.Sprint(i))
	}
	all.Wait()
	require.Empty(t, s.waiting)
	require.NotNil(t, s.src, "the next one needs no other instance")
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.src == nil
	}, timeout, time.Millisecond, "not for ever")
}

// Each that waits looks when something happens to its file or its folder, and at every error; none looks at another's. One
// that waits keeps the instance.
func TestSharedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		src, _ := f.open()
		var closed atomic.Bool
		src.close = func() error { closed.Store(true); close(f.events); return nil }
		s := Shared{src: src, waiting: map[*waiting]struct{}{}}
		go s.tell(src)
		ctx, cancel := context.WithCancel(t.Context())
		var looks [2]atomic.Int64
		var all sync.WaitGroup
		for i, path := range []string{"/responses/a", "/responses/b"} {
			all.Go(func() {
				require.ErrorIs(t, s.Await(ctx, path, func() (bool, error) { looks[i].Add(1); return false, nil }), context.Canceled)
			})
		}
		tell := func(why string, a, b int64, do func()) {
			synctest.Wait()
			a, b = a+looks[0].Load(), b+looks[1].Load()
			do()
			synctest.Wait()
			require.Equal(t, []int64{a, b}, []int64{looks[0].Load(), looks[1].Load()}, why)
		}
		event := func(name string) func() {
			return func() { f.events <- fsnotify.Event{Name: name, Op: fsnotify.Create} }
		}
		tell("its file", 1, 0, event("/responses/a"))
		tell("a file of none", 0, 0, event("/responses/c"))
		tell("the folder", 1, 1, event("/responses"))
		tell("events were lost", 1, 1, func() { f.errors <- fsnotify.ErrEventOverflow })
		s.close()
		require.False(t, closed.Load(), "two wait")
		cancel()
		all.Wait()
		time.Sleep(time.Second) // of the bubble: after Idle
		require.True(t, closed.Load())
	})
}

// soon calls f when Await has probably started. The test is correct in any order.
func soon(f func()) { time.AfterFunc(20*time.Millisecond, f) }

func TestAwaitReturns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "never")
	torn := errors.New("not a response")
	require.ErrorIs(t, Await(t.Context(), path, func() (bool, error) { return false, torn }), torn)

	why := errors.New("the agent gave up")
	ctx, cancel := context.WithCancelCause(t.Context())
	soon(func() { cancel(why) })
	require.ErrorIs(t, Await(ctx, path, exists(path)), why)

	write(t, path)
	require.NoError(t, Await(ctx, path, exists(path)), "ready is called even after ctx is done")
}

// Without inotify ready is called after 250 ms, and then at most a second apart.
func TestAwaitWithoutInotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), []time.Duration(nil)
		err := await(t.Context(), &source{}, "/responses/a.json", func() (bool, error) {
			asked = append(asked, time.Since(began))
			return len(asked) == 20, nil
		})
		require.NoError(t, err)
		require.Equal(t, 250*time.Millisecond, asked[1])
		for i := range asked[1:] {
			require.LessOrEqual(t, asked[i+1]-asked[i], time.Second)
		}
		require.Equal(t, time.Second, asked[19]-asked[18], "and later not more often")
	})
}

// Events of the file and of its folder, and errors, cause an immediate call. Events
// of other files do not.
func TestAwaitEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		src, _ := f.open()
		const path = "/responses/a.json"
		var mu sync.Mutex
		asked, ready := 0, false
		done := make(chan error)
		go func() {
			done <- await(t.Context(), src, path, func() (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				asked++
				return ready, nil
			})
		}()
		asks := func(why string, want int, do func()) {
			synctest.Wait()
			mu.Lock()
			before := asked
			mu.Unlock()
			do()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, want, asked-before, why)
		}
		event := func(name string, op fsnotify.Op) func() {
			return func() { f.events <- fsnotify.Event{Name: name, Op: op} }
		}
		require.True(t, f.watchesSoon(t, "/responses"))
		asks("another response", 0, event("/responses/b.json", fsnotify.Create))
		asks("the awaited response", 1, event(path, fsnotify.Create))
		asks("a doubled event", 1, event(path, fsnotify.Create))
		asks("the folder was removed", 1, event("/responses", fsnotify.Remove))
		asks("events were lost", 1, func() { f.errors <- fsnotify.ErrEventOverflow })
		asks("inotify ended: only the timer is left", 0, func() { close(f.events) })
		asks("the timer", 1, func() { time.Sleep(firstCheck) })
		mu.Lock()
		ready = true
		mu.Unlock()
		require.NoError(t, <-done)
	})
}

func (f *fake) watchesSoon(t *testing.T, path string) bool {
	t.Helper()
	synctest.Wait()
	return f.watches(path)
}
