package client

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Callers of shared Files wait with one inotify instance; others have one each.
func TestShared(t *testing.T) {
	f := Files{Requests: t.TempDir(), Responses: t.TempDir()}
	for _, tt := range []struct {
		files Files
		want  int
	}{{f, 20}, {f.Shared(), 1}} {
		before := instances(t)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				_, err := tt.files.Await(ctx, Submitted{ID: NewID()})
				require.ErrorIs(t, err, context.Canceled)
			})
		}
		require.Eventually(t, func() bool { return instances(t)-before == tt.want }, time.Minute, time.Millisecond)
		cancel()
		all.Wait()
	}
}

// instances is the number of inotify instances of this process.
func instances(t *testing.T) (n int) {
	const folder = "/proc/self/fd"
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		if of, err := os.Readlink(filepath.Join(folder, e.Name())); err == nil && of == "anon_inode:inotify" {
			n++
		}
	}
	return n
}
