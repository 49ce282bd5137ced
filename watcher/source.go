package watcher

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// watches is the part of fsnotify that places watches. Add on a path that is
// watched renews it; on an unchanged folder that changes nothing.
type watches interface {
	Add(path string) error
	Remove(path string) error
}

// A source is where events come from. Tests put one here that drops, doubles,
// delays and reorders them.
type source struct {
	watches
	events <-chan fsnotify.Event
	errors <-chan error
	close  func() error
}

// openSource takes one inotify instance. There are few of them (128 a user on
// many systems), so all folders share it.
func openSource() (*source, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &source{watches: w, events: w.Events, errors: pump(w.Errors), close: w.Close}, nil
}

// pump always takes what the channel offers and keeps one. fsnotify may report an
// error (a watched folder renamed and deleted at once) while it holds the lock
// that Add needs: the goroutine that calls Add must not be the one it waits for.
// One error is as good as many, because all of them mean "look at everything".
func pump(in <-chan error) <-chan error {
	out := make(chan error, 1)
	go func() {
		for err := range in {
			select {
			case out <- err:
			default:
			}
		}
	}()
	return out
}

// explain says why inotify refused, with the cure where there is one.
func explain(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "no inotify watches left (hint: raise sysctl fs.inotify.max_user_watches)"
	case errors.Is(err, syscall.EMFILE):
		return "no inotify instances left (hint: raise sysctl fs.inotify.max_user_instances, or the limit on open files)"
	case errors.Is(err, syscall.ENOENT):
		return whyMissing
	case errors.Is(err, fsnotify.ErrClosed):
		return "inotify was closed"
	}
	return fmt.Sprintf("inotify: %v", err)
}
