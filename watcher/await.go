package watcher

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	firstCheck = 250 * time.Millisecond
	laterCheck = time.Second
)

// Await waits until ready returns true. It calls ready at once, at every event of
// the file at path, and by timer (after 250 ms, later every 1 s). It returns nil,
// the error of ready, or that of ctx. The file and its folder need not exist.
// Without inotify only the timer is used.
func Await(ctx context.Context, path string, ready func() (bool, error)) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("await %s: %w", path, err)
	}
	src, err := openSource()
	if err != nil {
		src = &source{}
	} else {
		defer func() { _ = src.close() }() // nothing reads it any more
	}
	return await(ctx, src, path, ready)
}

func await(ctx context.Context, src *source, path string, ready func() (bool, error)) error {
	wait := firstCheck
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		if src.watches != nil {
			// In every round, because the folder may be new or replaced. If the
			// watch fails, the timer is used.
			_ = src.Add(filepath.Dir(path))
		}
		if ok, err := ready(); ok || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if timed := next(ctx, src, path, timer); timed {
			wait = min(wait*3/2, laterCheck)
		}
		timer.Reset(wait)
	}
}

// next returns when to call ready again, and whether the timer caused that.
func next(ctx context.Context, src *source, path string, timer *time.Timer) (timed bool) {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-src.errors: //nolint:errcheck // an error is a hint like any other
			return false
		case ev, ok := <-src.events:
			if !ok {
				src.events = nil
				continue
			}
			if ev.Name == path || ev.Name == filepath.Dir(path) {
				return false
			}
		}
	}
}

var _ watches = (*fsnotify.Watcher)(nil)
