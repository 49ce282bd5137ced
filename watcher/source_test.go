package watcher

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
)

// fsnotify reports an error while it holds the lock that Add needs. The test does
// not read errors, as the loop does not during Add. Add must return.
func TestAddDoesNotWaitForErrors(t *testing.T) {
	top := t.TempDir()
	a, b, c := mkdir(t, top, "a"), mkdir(t, top, "b"), mkdir(t, top, "c")
	src, err := openSource()
	require.NoError(t, err)
	require.NoError(t, src.Add(a))
	require.NoError(t, src.Add(b))

	// The reader blocks at the first event, so that b is gone when it handles the
	// second and finds no watch to remove.
	mkdir(t, a, "first")              // one event; a file would cause two
	time.Sleep(50 * time.Millisecond) // until the reader blocks; otherwise the test only checks less
	require.NoError(t, os.Rename(b, filepath.Join(top, "gone")))
	require.NoError(t, os.Remove(filepath.Join(top, "gone")))
	require.Equal(t, fsnotify.Create, (<-src.events).Op)
	time.Sleep(50 * time.Millisecond) // until the error is reported, likewise

	added := make(chan error, 1)
	go func() { added <- src.Add(c) }()
	for {
		select {
		case err := <-added:
			require.NoError(t, err)
			require.NoError(t, src.close())
			return
		case <-src.events:
		case <-time.After(timeout):
			require.FailNow(t, "Add waits for the error to be read")
		}
	}
}

func TestExplain(t *testing.T) {
	for err, want := range map[error]string{
		syscall.ENOSPC:     "max_user_watches",
		syscall.EMFILE:     "max_user_instances",
		syscall.ENOENT:     whyMissing,
		syscall.EACCES:     "permission denied",
		fsnotify.ErrClosed: "closed",
	} {
		why := explain(fmt.Errorf("wrapped: %w", err))
		require.Contains(t, why.what+why.hint, want)
	}
}
