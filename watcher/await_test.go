package watcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
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
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "responses", "a.json")
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			tt.do(t, path)
			require.NoError(t, Await(ctx, path, exists(path)))
			require.FileExists(t, path)
		})
	}
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
