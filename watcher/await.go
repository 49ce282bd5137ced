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

// Await waits until ready says so, calling it at once, whenever something happens
// to the file at path, and every now and then besides (250 ms at first, later
// 1 s). It returns nil, the error of ready, or that of ctx. Neither the file nor
// its folder need exist, nor need there be inotify: then the checks alone find it.
func Await(ctx context.Context, path string, ready func() (bool, error)) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("await %s: %w", path, err)
	}
	src, err := openSource()
	if err != nil {
		src = &source{}
	} else {
		defer func() { _ = src.close() }() // nobody listens any more
	}
	return await(ctx, src, path, ready)
}

func await(ctx context.Context, src *source, path string, ready func() (bool, error)) error {
	wait := firstCheck
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		if src.watches != nil {
			// Again and again: the folder may be new, or have been exchanged.
			// A watch that cannot be had is made up for by the timer.
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

// next returns when it is worth looking again, and whether that was the timer.
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
